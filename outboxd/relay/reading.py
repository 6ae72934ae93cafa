"""What a worker reads of its partitions: new rows, late ones, sweeps, rows to be looked at. Over the store."""

import time
from collections.abc import Iterable, Mapping, Sequence

from outboxd.config.schema import Lane
from outboxd.relay.meter import Meter
from outboxd.relay.rooms import Rooms
from outboxd.relay.scans import FEW_PARTITIONS, Scans
from outboxd.store.api import FRESH, ZERO, Floors, Partitions, Peek

PIECE_PARTITIONS, PIECE_ROWS = 16, 200
"""How much one piece of a sweep reads, without payloads."""
LOOKED_AT = 1000
REFILL_ROWS = 500
READ_SHARE = 1.25
"""So many batches are read of a backlog at once, if it goes on as it was."""
LATE_MOST = 1000
"""So many events that were committed late are read at once; more are read piece by piece."""


class Reading:
    """Fills the rooms. loading: partitions of which all must be read before anything of them is claimed. poll_at_s:
    when the next look is due. found: has the sweep found anything?"""

    def __init__(self, lane: Lane, rooms: Rooms, meter: Meter) -> None:
        self._lane = lane
        self._rooms = rooms
        self._meter = meter
        self._scans = Scans(lane.poll_interval_s)
        self._numbers: frozenset[int] = frozenset()
        self._leaving: frozenset[int] = frozenset()
        self._loading: dict[int, Floors] = {}
        self._look_at: list[int] = []  # what a sweep has yet to look at
        self._window_rows = 0  # of one partition, at least, in the next window of a backlog
        self._ids_each = 0.0  # on how many ids comes a row of one partition, by the last read; 0: that must be asked
        self.poll_at_s = 0.0
        self.found = False

    @property
    def is_done(self) -> bool:
        """Is nothing more known to be there?"""
        return not (self._scans.more_fresh or self._scans.more_due or self._loading)

    @property
    def wake_at_s(self) -> float:
        """When the next look or sweep is due."""
        return min(self.poll_at_s, self._scans.sweep_at_s)

    def all_again(self, now_s: float) -> None:
        """A new session: what happened meanwhile is to be seen at once."""
        self.poll_at_s = self._scans.sweep_at_s = now_s

    def own(self, numbers: frozenset[int], leaving: frozenset[int]) -> None:
        """These partitions are ours, and nothing is to be claimed of those that we leave. Forget what is no longer."""
        if numbers == self._numbers and leaving == self._leaving:
            return
        lost = self._numbers - numbers
        self._rooms.owned = self._numbers = numbers
        self._leaving = leaving
        if lost:
            self._rooms.forget(lost)
            self._scans.drop(lost)
            self._loading = {number: floor for number, floor in self._loading.items() if number not in lost}
        self._bar()

    def _bar(self) -> None:
        self._rooms.loading = frozenset(self._loading) | self._leaving

    def unread(self) -> frozenset[int]:
        """Partitions that are ours, and of which nothing is being read."""
        return self._numbers - self._scans.numbers - self._loading.keys()

    def begin(self, partitions: Partitions, clean: Sequence[int], unclean: Iterable[int], now_s: float) -> None:
        """Partitions that are new. What was not given back in order may still be written to by a worker that only
        seemed dead: all of it is read before anything is claimed, and what was tried after that, so that nothing slips
        through between the two."""
        new = dict.fromkeys(unclean, ZERO)
        if clean or new:
            self._scans.sweep_at_s = now_s + 2 * self._lane.poll_interval_s  # all of them are read anyway
        self._loading |= new
        if clean:
            self._note_blockers(partitions, clean, now_s)
            self._scans.begin(dict.fromkeys(clean, ZERO))
        self._bar()

    def upkeep(self, partitions: Partitions, now_s: float, has_rung: bool) -> bool:
        """One statement or a few, if it is time for any."""
        if unsure := list(self._rooms.waits.unsure):
            self._look_again(partitions, unsure[:LOOKED_AT], now_s)
        elif self._loading:
            self._load(partitions, now_s)
        elif self._look_at:
            self._look_again(partitions, self._look_at[:LOOKED_AT], now_s)
            del self._look_at[:LOOKED_AT]
        elif self._scans.sweeps(now_s) and not has_rung:
            self._sweep(partitions, now_s)
        else:
            return False
        return True

    def _load(self, partitions: Partitions, now_s: float) -> None:
        starts = dict(list(self._loading.items())[:PIECE_PARTITIONS])
        rows = partitions.scan(starts, PIECE_ROWS, 0, fresh=True, due=False)
        self._note(rows, now_s)
        read: dict[int, Floors] = {}
        for number, start in starts.items():
            ids = [row[0] for row in rows if row[15] == number]
            self._loading[number] = Floors(max([start.fresh_id, *ids]))
            if len(ids) < PIECE_ROWS:
                read[number] = self._loading[number]
        if read:
            self._note_blockers(partitions, sorted(read), now_s)
            self._scans.begin(read)
            self._loading = {number: floor for number, floor in self._loading.items() if number not in read}
            self._bar()

    def _note_blockers(self, partitions: Partitions, numbers: Sequence[int], now_s: float) -> None:
        self._note(partitions.blockers(numbers, dead=self._lane.blocks_on_dead), now_s)

    def _note(self, rows: Iterable[tuple[object, ...]], now_s: float) -> int:
        return self._rooms.note(rows, now_s)

    def _look_again(self, partitions: Partitions, ids: Sequence[int], now_s: float) -> None:
        self._rooms.looked_at(ids, partitions.rows(ids), now_s)

    def _sweep(self, partitions: Partitions, now_s: float) -> None:
        start_s = time.monotonic()
        starts = self._scans.sweep_starts(PIECE_PARTITIONS)
        rows = partitions.scan(starts, PIECE_ROWS, 0, fresh=True, due=True)
        self.found = bool(self._note(self._scans.passed(rows), now_s)) or self.found
        took_s = time.monotonic() - start_s
        self._meter.sweeps.observe(took_s)
        if self._scans.swept(starts, rows, PIECE_ROWS, now_s, took_s):
            self._look_at = self._rooms.blocking()
            self.poll_at_s = max(self.poll_at_s, now_s + self._lane.poll_interval_s)  # it has seen all there is

    def look(self, partitions: Partitions, now_s: float) -> Peek:
        """Is there anything new?"""
        peek = partitions.peek(sorted(self._numbers), self._scans.lowest(now_s))
        self._scans.look_everywhere(fresh=peek.fresh, due=peek.due)
        return peek

    def look_for_late(self, partitions: Partitions, now_s: float, *, surely: bool = False) -> bool:
        """Note events in front of those just read that were committed after their ids had been passed. True: those are
        so many that all is to be read again first."""
        if not ((surely or self._scans.unchecked) and self._rooms.is_whole):
            return False
        start_s = time.monotonic()
        after, before = self._scans.late_range(now_s)
        most = self._rooms.known_count + LATE_MOST
        last_id = partitions.last_id()  # before, so that what is written between the two is looked at next time
        found = partitions.open_ids(before, after, most + 1)
        late = self._rooms.unknown(found)
        self._scans.looked_for_late(last_id, len(found), now_s, time.monotonic() - start_s)
        if len(late) > LATE_MOST:
            self._loading |= dict.fromkeys(self._numbers, Floors(after))
            self._bar()
            return True
        if late:
            self._note(partitions.rows(late), now_s)
        return False

    def read_more(self, partitions: Partitions, now_s: float, budget_bytes: int) -> bool:
        """A batch of new rows, or more of a room of which not all is remembered; False if there is nothing to read."""
        room = self._rooms.lacking()
        if room is not None and room.more_from is not None and not isinstance(room.key, int):
            rows = partitions.scan_room(room.number, room.key, room.more_from, REFILL_ROWS)
            self._rooms.refill(room, rows, REFILL_ROWS, now_s)
            self._scans.refilled(room.number, rows[-1][0] if rows else 0)
            return True
        batch, scans = self._lane.batch_size, self._scans
        if starts := scans.due_starts():
            limit = -(-batch // len(starts))
            rows = partitions.scan(starts, limit, self._inline_bytes(batch, budget_bytes), fresh=False, due=True)
            self._note(rows, now_s)
            scans.saw(starts, rows, limit, now_s, fresh=False)
            return True
        starts = scans.starts()
        if not starts:
            return False
        if len(starts) <= FEW_PARTITIONS and not scans.are_level(starts):
            limit = -(-batch // len(starts))
            rows = partitions.scan(starts, limit, self._inline_bytes(batch, budget_bytes), fresh=True, due=False)
            self._note(rows, now_s)
            scans.saw(starts, rows, limit, now_s, due=False)
        else:
            self._read_new(partitions, starts, now_s, budget_bytes)
        return True

    def _read_new(
        self, partitions: Partitions, starts: Mapping[int, Floors], now_s: float, budget_bytes: int
    ) -> None:
        """Of all these partitions together, from where they stand: a batch, if they have their share of the events."""
        scans, batch, numbers = self._scans, self._lane.batch_size, list(starts)
        after, is_level = min(floor.fresh_id for floor in starts.values()), scans.are_level(starts)
        ids_each, self._ids_each = 0.0 if is_level else self._ids_each, 0.0
        each = min(batch, max(self._window_rows, -(-batch * 3 // (2 * len(numbers)))))
        if is_level:
            window, most = FRESH, batch
        elif ids_each:
            window, most = after + 1 + int(ids_each * batch * READ_SHARE / len(numbers)), 2 * batch
        else:
            window, most = partitions.window(numbers, after, each), each * len(numbers)
        upto = FRESH if is_level else min(window, scans.next_floor(starts))
        rows = partitions.scan_new(numbers, after, upto, most + 1, self._inline_bytes(most, budget_bytes))
        self._note(rows, now_s)
        is_short = upto == window != FRESH and len(rows) < batch // 2
        if not (is_level or ids_each):  # the more unevenly the partitions are filled, the sooner a window ends
            self._window_rows = 2 * each if is_short else each // 2 if len(rows) > 2 * batch else each
        if len(rows) > most:
            scans.fell_behind()
        elif rows or not ids_each:
            if ids_each and upto == window:  # perhaps nobody has so high an id yet, and what comes then is not late
                upto = max(rows)[0]
            scans.saw_up_to(starts, rows, upto, now_s)
            if upto != FRESH and not is_short:
                self._ids_each = (upto - min(rows)[0] + 1) * len(numbers) / len(rows) if rows else 0.0

    def _inline_bytes(self, rows: int, budget_bytes: int) -> int:
        """How long payloads may be to come along with so many rows. Longer ones are read one by one."""
        is_enough = self._rooms.ready_count - self._rooms.light_count >= 2 * self._lane.batch_size  # to claim next
        return 0 if is_enough else max(1, budget_bytes // (2 * rows))
