"""What a publisher promises. One contract suite runs against every implementation: tests/contract/test_publisher.py.

A publisher belongs to one worker process and one thread: the worker's loop. It is made after the fork and never
blocks; what must wait, waits in the loop's selector through `wait_on`.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from outboxd.event import Event, Outcome


class Waits(NamedTuple):
    """What a publisher waits for: descriptors, and the latest time.monotonic() at which to call `collect` anyway."""

    read: Sequence[int]
    write: Sequence[int]
    until_s: float | None


NOTHING = Waits((), (), None)


class Publisher(Protocol):
    """Sends events to one receiver."""

    @property
    def capacity(self) -> int:
        """How many events it can hold in flight at once; at least 1. Falls when parts of it are lost (threads)."""

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Start publishing an event; False when full (the event was not taken).

        deadline_s: time.monotonic() by which this publish has ended, whatever the far side does (G4): an outcome is
        collectable by then. Once submitted, an event comes out of `collect` exactly once. Nothing is ever sent twice
        for one submit. An event that cannot become a request (headers that are no object) is taken, and collected as
        Dead. Never raises for what is wrong with the event or the far side.
        """

    def collect(self) -> list[tuple[Event, Outcome]]:
        """Outcomes that have arrived since the last call. Does pending work, never blocks."""

    def wait_on(self) -> Waits:
        """What to wait for before the next `collect`. Cheap; asked in every turn of the loop."""

    def close(self, deadline_s: float) -> None:
        """Give up what is in flight and free everything, by deadline_s (time.monotonic()). Never raises."""
