"""Hands every event to the publishers that it is for, and puts their outcomes together.

An event goes on until no publisher is left to try: all accepted → Delivered; the rest refused → Dead; else Retry, and
`published_to` remembers who is done with it, so that the next attempt asks only the others. Each publisher has a queue,
a breaker, a rate and a pause of its own: one publisher's outage never holds up another. Publishers, and what judges
them, are handed in.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from outboxd.event import (
    DELIVERED,
    PARKED,
    REJECTED,
    THROTTLED,
    UNAVAILABLE,
    Dead,
    Delivered,
    Event,
    Outcome,
    Retry,
)
from outboxd.publishers.api import Publisher

FOREVER_S = float("inf")

ALL, ONE, NONE = "all", "one", "none"
"""How many events a lane's publishers can take: see Fanout.appetite."""


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


class Item:
    """An event on its way. `lease_s`: time.monotonic() at which its claim runs out, moved by whoever renews it."""

    __slots__ = ("accepted", "dead", "event", "lease_s", "open_routes", "refused", "retry", "token")

    def __init__(self, event: Event, token: int, lease_s: float) -> None:
        self.event = event
        self.token = token
        self.lease_s = lease_s
        self.open_routes = 0
        self.accepted: tuple[str, ...] = ()
        self.refused: tuple[str, ...] = ()
        self.retry: Retry | None = None
        self.dead: Dead | None = None


class Route:
    """One publisher of the lane, its filter (`wants`: event_type → is it for this publisher), gate and rate."""

    def __init__(
        self,
        name: str,
        publisher: Publisher,
        gate: Gate,
        wants: Callable[[str], bool],
        max_rate: float,
        max_hold_s: float,
    ) -> None:
        self.name = name
        self.publisher = publisher
        self.gate = gate
        self.wants = wants
        self.waiting: deque[Item] = deque()
        self.held_until_s = 0.0
        self.in_flight: dict[int, Item] = {}
        self.was_open = False
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
            self.in_flight[item.event.id] = item
            gate.started(item.event.id)
            if self._interval_s:
                self._next_s = max(self._next_s, now_s - self._interval_s) + self._interval_s

    def parks(self, now_s: float) -> bool:
        """Would an event that comes now wait too long?"""
        return now_s < self.held_until_s or self.gate.parks(now_s)

    def note_hold(self, outcome: Outcome, now_s: float) -> None:
        """Heed what the far side asked for: a pause of the whole publisher."""
        if isinstance(outcome, Retry) and outcome.retry_after_s and outcome.reason in (THROTTLED, UNAVAILABLE):
            self.held_until_s = max(self.held_until_s, now_s + min(outcome.retry_after_s, self._max_hold_s))

    def opens_at_s(self, now_s: float) -> float:
        """When `pump` could go on by the clock alone; forever if something else must happen first."""
        if not self.waiting:
            return FOREVER_S
        at_s = max(self.held_until_s, self._next_s, 0.0 if self.gate.admits(now_s) else self.gate.next_probe_s)
        return at_s if at_s > now_s else FOREVER_S


class Fanout:
    """All publishers of a lane, as one. A finished item comes out of `finish` exactly once."""

    def __init__(self, routes: Sequence[Route], timeout_s: float) -> None:
        self.routes = tuple(routes)
        self._timeout_s = timeout_s
        self._only = self.routes[0] if len(self.routes) == 1 else None
        self._finished: list[tuple[Item, Outcome]] = []

    def offer(self, items: Iterable[Item]) -> int:
        """Take items in; how many no publisher wants (those are delivered)."""
        unmatched = 0
        for item in items:
            event = item.event
            done = _names(event.published_to) if event.published_to else ()
            for route in self.routes:
                if not route.wants(event.event_type):
                    continue
                item.open_routes += 1
                if route.name in done:
                    item.accepted += (route.name,)
                elif f"!{route.name}" in done:
                    item.refused += (route.name,)
                else:
                    route.waiting.append(item)
                    continue
                item.open_routes -= 1
            if not item.open_routes:
                unmatched += not item.accepted and not item.refused
                self._finished.append((item, _verdict(item)))
        return unmatched

    def pump(self, now_s: float) -> None:
        """Submit what may go now; park what waits for a publisher that is not to be asked."""
        for route in self.routes:
            if route.waiting:
                route.pump(now_s, self._timeout_s)
                if route.waiting and route.parks(now_s):
                    self._park(route, now_s)

    def _park(self, route: Route, now_s: float) -> None:
        held_s = max(0.0, route.held_until_s - now_s)
        why = f"asked for a pause of {held_s:.0f} s" if held_s else "is failing"
        parked = Retry(PARKED, f"waiting for {route.name}, which {why}", counted=False, retry_after_s=held_s or None)
        while route.waiting:
            self._note(route, route.waiting.popleft(), parked)

    def collect(self, now_s: float) -> list[tuple[Item, Outcome]]:
        """Items that are done since the last call."""
        for route in self.routes:
            for event, outcome in route.publisher.collect():
                item = route.in_flight.pop(event.id, None)
                judged = route.gate.judge(event.id, outcome, now_s)
                if judged is not DELIVERED:
                    route.note_hold(judged, now_s)
                if item is not None:
                    self._note(route, item, judged)
        finished, self._finished = self._finished, []
        return finished

    def _note(self, route: Route, item: Item, outcome: Outcome) -> None:
        if self._only is not None:  # the usual lane: one publisher, nothing to put together
            if isinstance(outcome, Dead):
                outcome = Dead(outcome.reason, outcome.error, (), (route.name,))
            self._finished.append((item, outcome))
            return
        item.open_routes -= 1
        if isinstance(outcome, Delivered):
            item.accepted += (route.name,)
        elif isinstance(outcome, Dead):
            item.refused += (route.name,)
            item.dead = Dead(outcome.reason, f"{route.name}: {outcome.error}")
        elif item.retry is None or outcome.counted or item.retry.reason == PARKED:
            item.retry = Retry(outcome.reason, f"{route.name}: {outcome.error}", outcome.counted)
        if not item.open_routes:
            self._finished.append((item, _verdict(item)))

    def take_back(self, keep: Callable[[Item], bool] = lambda item: False) -> list[Item]:
        """Items that wait leave, save those that `keep` keeps. Returned are those that nobody has been asked about; the
        others come out of `collect` with the answers so far."""
        left: dict[int, tuple[Item, list[str]]] = {}
        for route in self.routes:
            going = [item for item in route.waiting if not keep(item)]
            if going:
                route.waiting = deque(item for item in route.waiting if keep(item))
            for item in going:
                left.setdefault(item.event.id, (item, []))[1].append(route.name)
        untouched: list[Item] = []
        for item, names in left.values():
            item.open_routes -= len(names)
            if not (item.open_routes or item.accepted or item.refused or item.retry):
                untouched.append(item)
                continue
            item.retry = item.retry or Retry(PARKED, f"not yet handed to {', '.join(names)}", counted=False)
            if not item.open_routes:
                self._finished.append((item, _verdict(item)))
        return untouched

    @property
    def waiting(self) -> int:
        """How many are not yet handed over, at the publisher that is furthest behind."""
        return max(len(route.waiting) for route in self.routes)

    def appetite(self, now_s: float) -> str:
        """ALL: some publisher takes events; ONE: only a probe may go; NONE: nobody can be asked now."""
        probe = False
        for route in self.routes:
            if now_s >= route.held_until_s and route.gate.admits(now_s):
                if route.gate.closed:
                    return ALL
                probe = True
        return ONE if probe else NONE

    def wake_at_s(self, now_s: float) -> float:
        """The latest time.monotonic() to call `collect` and `pump`, or forever."""
        at_s = FOREVER_S
        for route in self.routes:
            until_s = route.publisher.wait_on().until_s
            at_s = min(at_s, route.opens_at_s(now_s), FOREVER_S if until_s is None else until_s)
        return now_s if self._finished else at_s

    @property
    def all_closed(self) -> bool:
        """No breaker stands in the way of anything."""
        return all(route.gate.closed for route in self.routes)

    def changes(self) -> list[tuple[str, bool]]:
        """Breakers that opened (True) or closed since the last call, by their publishers' names."""
        changed = [route for route in self.routes if route.gate.opened != route.was_open]
        for route in changed:
            route.was_open = route.gate.opened
        return [(route.name, route.was_open) for route in changed]

    def outage_s(self, now_s: float) -> float:
        """How long the publisher that has failed longest has been failing; 0 while all work."""
        return max(route.gate.outage_s(now_s) for route in self.routes)

    def asks_again_at_s(self, now_s: float) -> float:
        """While the appetite is NONE: when that may change by the clock alone, or forever (a probe is on its way)."""
        at_s = (max(route.held_until_s, route.gate.next_probe_s) for route in self.routes)
        return min((moment_s for moment_s in at_s if moment_s > now_s), default=FOREVER_S)

    def descriptors(self) -> tuple[set[int], set[int]]:
        """What to wait for: readable, writable."""
        waits = [route.publisher.wait_on() for route in self.routes]
        return {fd for wait in waits for fd in wait.read}, {fd for wait in waits for fd in wait.write}

    @property
    def worn_out(self) -> bool:
        """Has a publisher lost so much of its capacity that this process should be replaced?"""
        return any(getattr(route.publisher, "worn_out", False) for route in self.routes)

    def close(self, deadline_s: float) -> None:
        """Close every publisher, whatever is in flight."""
        for route in self.routes:
            route.publisher.close(deadline_s)


def published_to(outcome: Outcome) -> str | None:
    """What to write into `published_to`, None if nothing need be."""
    names = (*outcome.accepted, *(f"!{name}" for name in getattr(outcome, "refused", ())))
    return ",".join(dict.fromkeys(names)) or None


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(","))


def _verdict(item: Item) -> Outcome:
    if item.retry is not None:
        return Retry(item.retry.reason, item.retry.error, item.retry.counted, None, item.accepted, item.refused)
    if item.refused:
        reason = item.dead.reason if item.dead else REJECTED
        error = item.dead.error if item.dead else item.event.last_error or f"refused by {', '.join(item.refused)}"
        return Dead(reason, error, item.accepted, item.refused)
    return Delivered(item.accepted)
