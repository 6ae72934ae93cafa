"""The fan-out of an ordered lane: of each room one event after the other, nothing behind a failure.

A publisher that `chains` takes several events of a room at once and lets none arrive behind one that failed; others
get the next one when the last one is done with.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence

from outboxd.event import PARKED, Dead, Delivered, Outcome, Retry
from outboxd.publishers.fanout import Fanout
from outboxd.publishers.route import Item, Line, Route

BEHIND = Retry(PARKED, "behind another event of its room", counted=False)
"""The outcome of what was not published because an event in front of it was not: it is to be given back."""

Key = tuple[str, str]


class OrderedFanout(Fanout):
    """A Fanout. blocks: is a dead letter a failure, for those behind it? With a publisher that chains, only rooms of
    which an event has just failed have a line."""

    def __init__(self, routes: Sequence[Route], timeout_s: float, blocks: bool) -> None:
        super().__init__(routes, timeout_s)
        self._blocks = blocks
        self.chains = len(self.routes) == 1 and bool(getattr(self.routes[0].publisher, "chains", False))
        self._lines: dict[Key, Line] = {}
        self.queued = 0
        """Events that wait for their turn."""
        self._unmatched = 0

    def offer(self, items: Iterable[Item]) -> int:
        """Take items in; how many no publisher wants. An event without a room waits for nobody."""
        lines, chains = self._lines, self.chains
        if chains and not lines:
            return super().offer(items)
        free: list[Item] = []
        for item in items:
            event = item.event
            if not event.room_id:
                free.append(item)
                continue
            key = (event.app_code, event.room_id)
            line = lines.get(key)
            if line is None:
                if chains:
                    free.append(item)
                    continue
                line = lines[key] = Line(key)
            item.line = line
            if line.queue or line.is_stuck or line.out:
                insort(line.queue, item, key=_id)
                self.queued += 1
            else:
                line.out += 1
                free.append(item)
        unmatched, self._unmatched = self._unmatched + super().offer(free), 0
        return unmatched

    def _next(self, line: Line) -> list[Item]:
        """What of a room goes to the publishers now."""
        if not line.queue or line.is_stuck or line.out:
            return []
        line.out += 1
        self.queued -= 1
        return [line.queue.pop(0)]

    def collect(self, now_s: float) -> list[tuple[Item, Outcome]]:
        """Items that are done since the last call; with one that failed come those behind it, as BEHIND."""
        finished = super().collect(now_s)
        if self.chains:
            self._line_up(finished)
            if not self._lines:
                return finished
        free: list[Item] = []
        stuck: set[Key] = set()
        lines = self._lines
        for place, (item, outcome) in enumerate(finished):
            line = item.line  # an event without a room has none
            if line is None or outcome is BEHIND:
                continue
            line.out -= 1
            if line.is_stuck or not (outcome.__class__ is Delivered or self._goes_past(outcome)):
                if line.is_stuck and not isinstance(outcome, Delivered):
                    finished[place] = (item, BEHIND)
                line.is_stuck = True
                stuck.add(line.key)
            elif line.queue:
                free += self._next(line)
            elif not line.out:
                del lines[line.key]
        if stuck:
            finished += self._stopped(stuck)
        if free:
            self._unmatched += super().offer(free)
        return finished

    def _line_up(self, finished: Sequence[tuple[Item, Outcome]]) -> None:
        """Give a line to each room of which an event has failed."""
        failed = [item for item, outcome in finished if outcome.__class__ is not Delivered and outcome is not BEHIND]
        new = {key: Line(key) for item in failed if (key := _key(item)) and key not in self._lines}
        if not new:
            return
        self._lines |= new
        route = self.routes[0]
        with_publishers = (item for item, _ in route.in_flight.values())
        ended = (item for item, outcome in finished if outcome is not BEHIND)
        for item in (*ended, *with_publishers, *route.waiting):
            key = _key(item)
            if key in new:
                item.line = new[key]
                item.line.out += 1

    def _goes_past(self, outcome: Outcome) -> bool:
        """Does an event that was not delivered keep nobody?"""
        return isinstance(outcome, Dead) and not self._blocks and not self.chains

    def _stopped(self, stuck: set[Key]) -> list[tuple[Item, Outcome]]:
        """What waits behind the failures of these rooms."""
        result: list[tuple[Item, Outcome]] = []
        if self.chains and self.waiting:
            for item in super().take_back(lambda item: _key(item) not in stuck):
                key = _key(item)
                if key is not None:
                    self._lines[key].out -= 1
                result.append((item, BEHIND))
        for key in stuck:
            line = self._lines[key]
            result += [(item, BEHIND) for item in line.queue]
            self.queued -= len(line.queue)
            line.queue.clear()
            if not line.out:  # all of its failure is told: what comes now comes anew
                del self._lines[key]
        return result

    def take_back(self, keep: Callable[[Item], bool] | None = None) -> list[Item]:
        """Items that no publisher was asked about, as Fanout does; those that wait for their turn, too. Those behind
        them, which `keep` keeps, come out of `collect` as BEHIND."""
        taken = super().take_back(keep)
        keys = {key for item in taken if (key := _key(item))}
        behind: list[Item] = []
        if self.chains and keys and self.waiting:
            behind = super().take_back(lambda item: _key(item) not in keys)
            self._finished += [(item, BEHIND) for item in behind]
        for item in (*taken, *behind):
            if (key := _key(item)) in self._lines:
                self._lines[key].out -= 1
        for key, line in list(self._lines.items()):
            gone = [item for item in line.queue if keep is None or not keep(item)]
            if not gone and key not in keys:
                continue
            taken += gone
            self._finished += [(item, BEHIND) for item in line.queue if keep is not None and keep(item)]
            self.queued -= len(line.queue)
            line.queue.clear()
            if not line.out:
                del self._lines[key]
        return taken


def _key(item: Item) -> Key | None:
    event = item.event
    return (event.app_code, event.room_id) if event.room_id else None


def _id(item: Item) -> int:
    return item.event.id
