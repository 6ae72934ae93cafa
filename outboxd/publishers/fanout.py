"""Hands every event to the publishers that it is for, and puts their outcomes together.

An event goes on until no publisher is left to try: all accepted → Delivered; the rest refused → Dead; else Retry, and
`published_to` remembers who is done with it, so that the next attempt asks only the others. Each publisher has a queue,
a breaker, a rate and a pause of its own: one publisher's outage never holds up another. Some are first: the others get
an event when the first ones are done with it, and not before. Publishers, and what judges them, are handed in.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from outboxd.event import (
    DELIVERED,
    PARKED,
    REJECTED,
    Dead,
    Delivered,
    Event,
    Outcome,
    Retry,
)
from outboxd.publishers.route import FOREVER_S, Item, Route

ALL, ONE, NONE = "all", "one", "none"
"""How many events a lane's publishers can take: see Fanout.appetite."""


class Fanout:
    """All publishers of a lane, as one. A finished item comes out of `finish` exactly once."""

    def __init__(self, routes: Sequence[Route], timeout_s: float) -> None:
        self.routes = tuple(routes)
        self._timeout_s = timeout_s
        self._only = self.routes[0] if len(self.routes) == 1 else None
        self._finished: list[tuple[Item, Outcome]] = []
        self._is_ending = False

    def offer(self, items: Iterable[Item]) -> int:
        """Take items in; how many no publisher wants (those are delivered)."""
        unmatched = 0
        for item in items:
            event = item.event
            done = _names(event.published_to) if event.published_to else ()
            waits = False  # for a first one to be done with it
            for route in self.routes:
                if not route.wants(event.event_type):
                    continue
                item.open_routes += 1
                if route.name in done:
                    item.accepted += (route.name,)
                elif f"!{route.name}" in done:
                    item.refused += (route.name,)
                elif waits and not route.is_first:
                    item.later += (route,)
                else:
                    route.waiting.append(item)
                    waits = waits or route.is_first
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
                if route.waiting and (route.parks(now_s) or self._hinders(route, now_s)):
                    self._park(route, now_s)

    def _hinders(self, route: Route, now_s: float) -> bool:
        """Does it keep events from another publisher, which works?"""
        return (
            self._only is None
            and route.stalls(now_s)
            and any(other.gate.closed and not other.stalls(now_s) for other in self.routes if other is not route)
        )

    def _park(self, route: Route, now_s: float) -> None:
        held_s = max(0.0, route.held_until_s - now_s)
        why = f"asked for a pause of {held_s:.0f} s" if held_s else "is failing" if route.parks(now_s) else "is slow"
        parked = Retry(PARKED, f"waiting for {route.name}, which {why}", counted=False, retry_after_s=held_s or None)
        while route.waiting:
            self._note(route, route.waiting.popleft(), parked)

    def collect(self, now_s: float) -> list[tuple[Item, Outcome]]:
        """Items that are done since the last call."""
        for route in self.routes:
            ended = route.publisher.collect()
            if ended:
                route.progress_s = now_s
                self._take_in(route, ended, now_s)
        finished, self._finished = self._finished, []
        return finished

    def _take_in(self, route: Route, ended: list[tuple[Event, Outcome]], now_s: float) -> None:
        judge, tally, is_only = route.gate.judge, route.tally, self._only is not None
        for event, outcome in ended:
            sent = route.in_flight.pop(event.id, None)
            judged = judge(event.id, outcome, now_s)
            if judged is not DELIVERED:
                route.note(judged, now_s)
            if sent is None:
                continue
            item, since_s = sent
            tally.latency.observe(now_s - since_s)
            if judged is DELIVERED:
                tally.accepted += 1
                if is_only:  # the usual end: one publisher, nothing to put together
                    self._finished.append((item, judged))
                    continue
            self._note(route, item, judged)

    def _note(self, route: Route, item: Item, outcome: Outcome) -> None:
        if self._only is not None:
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
        if not item.open_routes and not self._goes_on(item):
            self._finished.append((item, _verdict(item)))

    def _goes_on(self, item: Item) -> bool:
        """The first ones have answered: are others to be asked now?"""
        later, item.later = item.later, ()
        if not later or item.retry is not None:
            return False
        if self._is_ending:
            names = ", ".join(route.name for route in later)
            item.retry = Retry(PARKED, f"not yet handed to {names}", counted=False)
            return False
        item.open_routes = len(later)
        for route in later:
            route.waiting.append(item)
        return True

    def take_back(self, keep: Callable[[Item], bool] | None = None) -> list[Item]:
        """Items that wait leave, save those that `keep` keeps; without it all, and nothing is handed over any more.
        Returned are those that nobody has been asked about; the others come out of `collect` with the answers so far.
        """
        self._is_ending = self._is_ending or keep is None
        left: dict[int, tuple[Item, list[str]]] = {}
        for route in self.routes:
            going = [item for item in route.waiting if keep is None or not keep(item)]
            if going:
                route.waiting = deque(item for item in route.waiting if keep is not None and keep(item))
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

    def lacks_probe(self, now_s: float) -> bool:
        """May a publisher be probed now, and no event at hand is for it?"""
        return any(
            not route.gate.closed and not route.waiting and now_s >= route.held_until_s and route.gate.admits(now_s)
            for route in self.routes
        )

    def wake_at_s(self, now_s: float) -> float:
        """The latest time.monotonic() to call `collect` and `pump`, or forever."""
        at_s = FOREVER_S
        for route in self.routes:
            until_s = route.publisher.wait_on().until_s
            at_s = min(at_s, route.opens_at_s(now_s), FOREVER_S if until_s is None else until_s)
        return now_s if self._finished else at_s

    @property
    def in_flight(self) -> bool:
        """Is any event with a publisher right now?"""
        return any(route.in_flight for route in self.routes)

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

    @property
    def open_breakers(self) -> int:
        """Those that were open at the last `changes`, as bits: the first publisher's is the lowest."""
        return sum(route.was_open << number for number, route in enumerate(self.routes))

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
