"""How far the partitions of an ordered lane have been read: floors, late commits, sweeps. Pure.

A scan goes on behind the last row it saw. But a transaction with a lower id may commit later than that, and before the
next event of its room is written: so before new rows are claimed, the ids in front of them are compared with what is
known. That goes back to the start, unless thousands of events are blocked there, or a snapshot that is open for long
keeps the index from being purged; then as far as LATE_S. A sweep finds what is older still. Sweeps go in pieces, and
take a bounded share of the time.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from outboxd.relay.planner import SWEEP_MOST_S, SWEEP_SHARE, TRAIL_S
from outboxd.store.api import FRESH, ZERO, Floors

Row = tuple[Any, ...]

LATE_S = 10.0
STEP_S = 0.05
FEW, BRIEF_S = 2000, 0.25
"""Looking from the start for what came late costs little as long as it finds no more open ids, and takes no longer. The
time is generous: a busy server is no reason to look less far."""
FEW_PARTITIONS = 4
"""So many, and those whose due rows are read, are asked one by one: each costs a SELECT of its own."""
DUE_AT_ONCE = 16
PIECE_SHARE = 10
"""After a piece of a sweep none follows for so many times its duration."""

STATUS, DUE, NUMBER = 12, 13, 15


class Scans:
    """more: the partitions of which more is to be read at once, of fresh or due rows."""

    def __init__(self, poll_interval_s: float) -> None:
        self._poll_interval_s = poll_interval_s
        self._floors: dict[int, Floors] = {}
        self.more_fresh: set[int] = set()
        self.more_due: set[int] = set()
        self._is_backlog = True  # was there more than a scan would take?
        self._trail: deque[tuple[float, int]] = deque()  # when which id was the highest one read
        self._highest = 0  # id that any scan has come to
        self._from_start_s = 0.0
        self._seen: dict[int, int] = {}  # up to which id a partition was read, in pieces of different times
        self._checked_id = 0  # what was written up to here has been compared with what came in front of it
        self.unchecked = False
        """Has anything been read that was not?"""
        self._sweep: dict[int, Floors] = {}
        self.sweep_at_s = 0.0
        self._sweep_took_s = 0.0

    def begin(self, floors: Mapping[int, Floors]) -> None:
        """Partitions that are to be read from these floors on."""
        for number, floor in floors.items():
            self._floors[number] = floor
            self._passed(number, floor.fresh_id)
            self.unchecked = self.unchecked or bool(floor.fresh_id)
            self._is_backlog = True
            self.more_fresh.add(number)
            self.more_due.add(number)

    def refilled(self, number: int, row_id: int) -> None:
        """Rows of one room were read, up to this id."""
        self._passed(number, row_id)
        self.unchecked = True

    def _passed(self, number: int, row_id: int) -> None:
        self._seen[number] = max(self._seen.get(number, 0), row_id)

    @property
    def numbers(self) -> frozenset[int]:
        """The partitions that are read."""
        return frozenset(self._floors)

    def drop(self, numbers: Iterable[int]) -> None:
        """They are somebody else's."""
        for number in numbers:
            self._floors.pop(number, None)
            self._seen.pop(number, None)
            self._sweep.pop(number, None)
            self.more_fresh.discard(number)
            self.more_due.discard(number)

    def lowest(self, now_s: float) -> Floors:
        """Where a look begins that must find whatever came since, in any partition."""
        if not self._floors:
            return ZERO
        due = min((floor.due_at_ms, floor.due_id) for floor in self._floors.values())
        return Floors(min(self._start(number, now_s) for number in self._floors), *due)

    def _start(self, number: int, now_s: float) -> int:
        return min(self._floors[number].fresh_id, self._highest_at(now_s - TRAIL_S))

    def _highest_at(self, then_s: float) -> int:
        """The highest id that had been read then."""
        return next((highest for at_s, highest in reversed(self._trail) if at_s <= then_s), 0)

    def late_range(self, now_s: float) -> tuple[int, dict[int, int]]:
        """(behind which, in front of which of each partition) ids that are not known may have been committed late.

        Only what is written from then on can have something in front of it that this does not find.
        """
        start = 0 if now_s >= self._from_start_s else self._highest_at(now_s - LATE_S)
        return start, {number: self._seen.get(number, 0) + 1 for number in self._floors}

    def looked_for_late(self, last_id: int, found: int, now_s: float, took_s: float) -> None:
        """That was done. last_id: the lane's highest id before. found: how many open ids there were."""
        self.unchecked = False
        self._checked_id = max(self._checked_id, last_id)
        if found > FEW or took_s > BRIEF_S:
            self._from_start_s = max(self._from_start_s, now_s + min(SWEEP_MOST_S, SWEEP_SHARE * took_s))

    def look_everywhere(self, *, fresh: bool, due: bool) -> None:
        """A look has found something."""
        if fresh:
            self.more_fresh.update(self._floors)
        if due:
            self.more_due.update(self._floors)

    def due_starts(self) -> dict[int, Floors]:
        """From where to read due rows, of some partitions."""
        return {number: self._floors[number] for number in sorted(self.more_due)[:DUE_AT_ONCE]}

    def starts(self) -> dict[int, Floors]:
        """From where to read fresh rows: of all partitions that are furthest behind, from the same id on."""
        low = min((self._floors[number].fresh_id for number in self.more_fresh), default=0)
        found = {number: self._floors[number] for number in sorted(self.more_fresh)}
        return {number: floor for number, floor in found.items() if floor.fresh_id == low}

    def next_floor(self, starts: Mapping[int, Floors]) -> int:
        """Up to where these have to be read to be as far as the next ones; FRESH if there are none."""
        others = (self._floors[number].fresh_id for number in self.more_fresh if number not in starts)
        return min(others, default=FRESH)

    def are_level(self, starts: Mapping[int, Floors]) -> bool:
        """Are these caught up, so that only what came since is to be read, and of fresh rows alone?"""
        return not (self._is_backlog or self.more_due.intersection(starts))

    def fell_behind(self) -> None:
        """More came than was asked for: it is to be read in the order of ids. What was read of it may be claimed before
        that, so what came late in front of it must be looked for."""
        self._is_backlog = self.unchecked = True

    def saw_up_to(self, starts: Mapping[int, Floors], rows: Sequence[Row], upto: int, now_s: float) -> None:
        """All fresh rows of these partitions up to an id, those of each by their ids; FRESH: all there are."""
        if upto == FRESH:
            self._is_backlog = False
            self.saw(starts, rows, len(rows) + 1, now_s, due=False)
            return
        newest = max(rows)[0] if rows else 0
        self._note_newest(newest, now_s)
        for number in starts:
            self._floors[number] = Floors(upto, self._floors[number].due_at_ms, self._floors[number].due_id)
            self._passed(number, upto)
        if not rows or newest > self._checked_id:
            self.unchecked = True

    def saw(
        self, starts: Mapping[int, Floors], rows: Sequence[Row], limit: int, now_s: float, *,
        fresh: bool = True, due: bool = True,
    ) -> None:
        """What a scan of one kind or both found, at most limit rows of each partition and kind."""
        ids_of: dict[int, list[int]] = {number: [] for number in starts}
        dues_of: dict[int, list[tuple[int, int]]] = {number: [] for number in starts}
        for row in rows:
            if row[DUE] == FRESH:
                ids_of[row[NUMBER]].append(row[0])
            else:
                dues_of[row[NUMBER]].append((row[DUE], row[0]))
        newest = max((max(ids) for ids in ids_of.values() if ids), default=0)
        self._note_newest(newest, now_s)
        for number in starts:
            floor, ids, dues = self._floors[number], ids_of[number], dues_of[number]
            last = _last_due(floor, dues, limit)
            if len(dues) >= limit:
                self.more_due.add(number)
            elif due:
                self.more_due.discard(number)
            fresh_id = max([floor.fresh_id, *ids])
            if len(ids) >= limit:
                self.more_fresh.add(number)
                self._is_backlog = True
            elif fresh and number in self.more_fresh:
                # All there is: what any scan has seen by now is older than whatever comes here next, or that is late.
                self.more_fresh.discard(number)
                fresh_id = max(fresh_id, self._highest)
            self._floors[number] = Floors(fresh_id, *last)
            self._passed(number, fresh_id)
        self._is_backlog = self._is_backlog and bool(self.more_fresh)
        # Also if nothing was found: what the look saw may stand in front of the floors.
        if (fresh and not rows) or newest > self._checked_id or any(dues_of.values()):
            self.unchecked = True

    def _note_newest(self, newest: int, now_s: float) -> None:
        self._highest = max(self._highest, newest)
        if newest and (not self._trail or now_s >= self._trail[-1][0] + STEP_S):
            self._trail.append((now_s, self._highest))
            while len(self._trail) > 1 and self._trail[1][0] <= now_s - LATE_S:
                self._trail.popleft()

    # sweeps

    def sweeps(self, now_s: float) -> bool:
        """Is a piece of a sweep to be made?"""
        return bool(self._floors) and now_s >= self.sweep_at_s

    def sweep_starts(self, most: int) -> dict[int, Floors]:
        """The partitions of the next piece, and from where."""
        if not self._sweep:
            self._sweep = dict.fromkeys(self._floors, ZERO)
            self._sweep_took_s = 0.0
        return dict(list(self._sweep.items())[:most])

    def passed(self, rows: Iterable[Row]) -> list[Row]:
        """Without those that are simply new: a scan will come to them, and read them with their payload."""
        floors = self._floors
        return [
            row for row in rows
            if row[DUE] != FRESH or row[STATUS] != "pending" or row[0] <= floors[row[NUMBER]].fresh_id
        ]  # fmt: skip

    def swept(
        self, starts: Mapping[int, Floors], rows: Sequence[Row], limit: int, now_s: float, took_s: float
    ) -> bool:
        """A piece is done; is it the sweep's last one?"""
        for number, start in starts.items():
            own = [row for row in rows if row[NUMBER] == number]
            ids = [row[0] for row in own if row[DUE] == FRESH]
            dues = [(row[DUE], row[0]) for row in own if row[DUE] != FRESH]
            self._passed(number, max([start.fresh_id, *ids[-1:]]))
            self.unchecked = self.unchecked or bool(start.fresh_id)  # its pieces are of different times
            if (len(ids) < limit or ids[-1] > self._floors[number].fresh_id) and len(dues) < limit:
                self._sweep.pop(number, None)
            else:
                self._sweep[number] = Floors(max([start.fresh_id, *ids[-1:]]), *_last_due(start, dues, limit))
        self._sweep_took_s += took_s
        if self._sweep:
            self.sweep_at_s = now_s + PIECE_SHARE * took_s
            return False
        pause_s = min(SWEEP_MOST_S, SWEEP_SHARE * self._sweep_took_s)
        self.sweep_at_s = now_s + max(2 * self._poll_interval_s, pause_s)  # looks, which tell more, come between
        return True


def _last_due(start: Floors, dues: Sequence[tuple[int, int]], limit: int) -> tuple[int, int]:
    """Behind which row the due ones go on: not beyond the first value before all rows of that value were read."""
    equal = [due for due in dues if due[0] == start.due_at_ms]
    if len(equal) >= limit:
        return equal[-1]
    return max([(start.due_at_ms, start.due_id), *dues])
