"""What a ledger tells of the events that pass through it."""

from collections.abc import Iterable
from typing import Protocol

from outboxd.event import Event
from outboxd.store.api import Settlement


class Listener(Protocol):
    """Who wants to know what becomes of events: the source of an ordered lane."""

    def admitted(self, events: Iterable[Event]) -> None:
        """They are claimed and held."""

    def owed(self, event: Event, settlement: Settlement, now_s: float) -> None:
        """It is to be settled so, and is published no more by this claim."""

    def settled(self, event: Event, is_lost: bool) -> None:
        """It is written. is_lost: not so, the claim was over."""

    def lost(self, event: Event) -> None:
        """The claim was over before it was published."""
