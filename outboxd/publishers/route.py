"""The way to one publisher of a lane: who waits for it, who is with it, and when it may be asked."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from outboxd.event import PARKED, THROTTLED, UNAVAILABLE, Dead, Delivered, Event, Outcome, Retry
from outboxd.publishers.api import Publisher
from outboxd.tally import Tally

FOREVER_S = float("inf")

STALL_S = 0.5
"""So long without any answer a publisher may keep the events waiting that are for other publishers, too."""


class Gate(Protocol):
    """What decides whether a publisher may be asked: relay.breaker.Breaker."""

    next_probe_s: float

    @property
    def closed(self) -> bool: ...
    @property
    def opened(self) -> bool: ...
    def admits(self, now_s: float) -> bool: ...
    def outage_s(self, now_s: float) -> float: ...
    def parks(self, now_s: float) -> bool: ...
    def started(self, event_id: int) -> None: ...
    def judge(self, event_id: int, outcome: Outcome, now_s: float) -> Outcome: ...


class Item(msgspec.Struct, eq=False, gc=False):
    """An event on its way. `lease_s`: time.monotonic() at which its claim runs out, moved by whoever renews it.
    later: those that are asked once the first ones have answered. line: of its room, where that has one. Itself, and
    no other with the same event."""

    event: Event
    token: int
    lease_s: float
    open_routes: int = 0
    later: "tuple[Route, ...]" = ()
    accepted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    retry: Retry | None = None
    dead: Dead | None = None
    line: "Line | None" = None


class Line(msgspec.Struct, eq=False):
    """One room's events in hand. queue: they wait for those in front of them. out: how many are with the publishers.
    is_stuck: one of those failed."""

    key: tuple[str, str]
    queue: list[Item] = []
    out: int = 0
    is_stuck: bool = False


class Route:
    """One publisher of the lane, its filter (`wants`: event_type → is it for this publisher), gate and rate.
    is_first: it is asked before those that are not."""

    def __init__(
        self,
        name: str,
        publisher: Publisher,
        gate: Gate,
        wants: Callable[[str], bool],
        max_rate: float,
        max_hold_s: float,
        is_first: bool = False,
    ) -> None:
        self.name = name
        self.is_first = is_first
        self.publisher = publisher
        self.gate = gate
        self.wants = wants
        self.waiting: deque[Item] = deque()
        self.held_until_s = 0.0
        self.in_flight: dict[int, tuple[Item, float]] = {}
        """By the event's id: the item, and since when (time.monotonic()) the publisher has it."""
        self.tally = Tally()
        self.was_open = False
        self.progress_s = 0.0
        self._interval_s = 1 / max_rate if max_rate > 0 else 0.0
        self._next_s = 0.0
        self._max_hold_s = max_hold_s

    def pump(self, now_s: float, timeout_s: float) -> None:
        """Hand over what may go now. An event whose lease would not outlive the publish stays behind (G4)."""
        waiting, publisher, gate = self.waiting, self.publisher, self.gate
        while waiting and gate.admits(now_s) and now_s >= self.held_until_s and now_s >= self._next_s:
            item = waiting[0]
            deadline_s = now_s + timeout_s
            if deadline_s > item.lease_s:
                return  # the worker renews the lease or takes the event back
            if not publisher.submit(item.event, deadline_s):
                return
            waiting.popleft()
            if not self.in_flight:
                self.progress_s = now_s
            self.in_flight[item.event.id] = (item, now_s)
            gate.started(item.event.id)
            if self._interval_s:
                self._next_s = max(self._next_s, now_s - self._interval_s) + self._interval_s

    def parks(self, now_s: float) -> bool:
        """Would an event that comes now wait too long?"""
        return now_s < self.held_until_s or self.gate.parks(now_s)

    def stalls(self, now_s: float) -> bool:
        """Do events wait while nothing of what is in flight has ended for a while?"""
        return bool(self.waiting and self.in_flight) and now_s - self.progress_s >= STALL_S

    def note(self, outcome: Outcome, now_s: float) -> None:
        """Count what was not simply accepted, and heed what the far side asked for: a pause of the whole publisher."""
        if isinstance(outcome, Delivered):
            self.tally.accepted += 1
            return
        if outcome.reason != PARKED:  # those were not tried
            self.tally.fail(outcome.reason)
        if isinstance(outcome, Retry) and outcome.retry_after_s and outcome.reason in (THROTTLED, UNAVAILABLE):
            self.held_until_s = max(self.held_until_s, now_s + min(outcome.retry_after_s, self._max_hold_s))

    def opens_at_s(self, now_s: float) -> float:
        """When `pump` could go on by the clock alone; forever if something else must happen first."""
        if not self.waiting:
            return FOREVER_S
        at_s = max(self.held_until_s, self._next_s, 0.0 if self.gate.admits(now_s) else self.gate.next_probe_s)
        stalls_s = self.progress_s + STALL_S if self.in_flight else 0.0
        return min((moment_s for moment_s in (at_s, stalls_s) if moment_s > now_s), default=FOREVER_S)
