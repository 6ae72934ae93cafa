"""What a ledger tells of the events that pass through it."""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from outboxd.event import Event
from outboxd.publishers.route import Item
from outboxd.store.api import Settlement

Owed = tuple[Item, Settlement]
"""An event that was held, and how it is to be settled."""


class Listener(Protocol):
    """Who wants to know what becomes of events: the source of an ordered lane. It is told of many at once."""

    def admitted(self, events: Sequence[Event]) -> None:
        """They are claimed and held."""

    def owed(self, ended: Iterable[Owed], now_s: float) -> None:
        """They are to be settled so, and are published no more by their claims."""

    def settled(self, ended: Iterable[Owed], lost: Collection[int]) -> None:
        """They are written. lost: ids of those that are not, since the claim was over."""

    def lost(self, event: Event) -> None:
        """The claim was over before it was published."""
