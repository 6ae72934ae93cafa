"""Which events of a lane are too old to be published (`stale_discard_after`), and when to look for them.

An event's age counts from its creation, by the database's clock; one whose creation nobody knows is never stale.
"""

from collections.abc import Iterable

from outboxd.event import Event
from outboxd.publishers.fanout import Fanout
from outboxd.publishers.route import Item
from outboxd.relay.flight import Flight

LOOK_EVERY_S = 0.1
"""Events that wait for their publisher are looked at so often, at the most."""
NEVER_MS = 2**63


class Stale:
    """The rule of one lane. after_s: not positive: no event is ever stale."""

    def __init__(self, after_s: float) -> None:
        self._after_ms = after_s * 1000
        self._oldest_ms = NEVER_MS  # creation of the oldest event that was handed over
        self._look_at_s = 0.0

    def before_ms(self, database_ms: float) -> int:
        """What was created earlier is stale; 0: nothing is. database_ms: 0 while it is not known."""
        return max(0, int(database_ms - self._after_ms)) if self._after_ms > 0 and database_ms > 0 else 0

    def handed_over(self, events: Iterable[Event]) -> None:
        """They wait for their publishers now."""
        if self._after_ms > 0:
            known = (event.created_at_ms for event in events if event.created_at_ms)
            self._oldest_ms = min(self._oldest_ms, min(known, default=NEVER_MS))

    def taken_back(self, fanout: Fanout, flight: Flight, before_ms: int, now_s: float) -> list[Item]:
        """Those that have become stale before any publisher was asked, if it is time to look for them."""
        if self._oldest_ms >= before_ms or now_s < self._look_at_s:
            return []
        self._look_at_s, self._oldest_ms = now_s + LOOK_EVERY_S, NEVER_MS
        taken = fanout.take_back(lambda item: not is_stale(item.event, before_ms))
        gone = {item.event.id for item in taken}
        for claimed in flight.claims():
            self.handed_over(item.event for item in claimed.items.values() if item.event.id not in gone)
        return taken


def is_stale(event: Event, before_ms: int) -> bool:
    """Was it created before that?"""
    return 0 < event.created_at_ms < before_ms
