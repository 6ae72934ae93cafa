"""What the source of an ordered lane reads, and when: owners, new rows, late ones, sweeps. A few statements a turn."""

import random
import time
from collections.abc import Iterable, Sequence

from outboxd import vitals
from outboxd.config.schema import Lane
from outboxd.relay.doorbell import Doorbell
from outboxd.relay.ledger import Ledger
from outboxd.relay.meter import Meter
from outboxd.relay.rooms import Rooms
from outboxd.relay.scans import Scans
from outboxd.relay.source import new_token, tell_pause
from outboxd.relay.tenure import Tenure
from outboxd.store.api import ZERO, Floors, Partitions

PIECE_PARTITIONS, PIECE_ROWS = 16, 200
"""How much one piece of a sweep reads, without payloads."""
LOOKED_AT = 1000
REFILL_ROWS = 500


class Reading:
    """Fills the rooms. paused: is the lane? found: has a sweep found anything since that was asked last?"""

    def __init__(
        self,
        lane: Lane,
        worker_id: str,
        rooms: Rooms,
        ledger: Ledger,
        meter: Meter,
        slot: vitals.Slot,
        doorbell: Doorbell,
    ) -> None:
        self._lane = lane
        self._rooms = rooms
        self._ledger = ledger
        self._meter = meter
        self._slot = slot
        self._doorbell = doorbell
        self._scans = Scans(lane.poll_interval_s)
        self.tenure = Tenure(worker_id, lane.lease_s, lane.concurrency, new_token())
        self._loading: dict[int, Floors] = {}
        self._look_at: list[int] = []  # what a sweep has yet to look at
        self._poll_at_s = 0.0
        self._has_rung = False
        self.paused = False
        self.found = False

    @property
    def idle(self) -> bool:
        """Nothing is known to be left to read."""
        return not (self.found or self._scans.more_fresh or self._scans.more_due or self._loading)

    def connected(self, partitions: Partitions, now_s: float) -> None:
        """A new session."""
        self.tenure.connected(partitions, now_s)
        self.own()
        self._poll_at_s = self._scans.sweep_at_s = now_s

    def keep(self, partitions: Partitions, now_s: float) -> None:
        """Lengthen the leases of partitions, if it is time."""
        self.tenure.keep(partitions, now_s)
        self.own()

    def rung(self) -> None:
        """Look at once."""
        self._has_rung = True
        self._poll_at_s = 0.0

    def wake_at_s(self) -> float:
        """When there is something to do (time.monotonic())."""
        if not self.tenure.numbers:
            return self.tenure.tick_at_s
        return min(self.tenure.tick_at_s, self._poll_at_s, self._scans.sweep_at_s)

    def upkeep(self, partitions: Partitions, now_s: float) -> bool:
        """One statement or a few, if it is time for any."""
        if now_s >= self.tenure.tick_at_s:
            self._tick(partitions, now_s)
        elif unsure := list(self._rooms.waits.unsure):
            self._look_again(partitions, unsure[:LOOKED_AT], now_s)
        elif self._loading:
            self._load(partitions, now_s)
        elif self._look_at:
            self._look_again(partitions, self._look_at[:LOOKED_AT], now_s)
            del self._look_at[:LOOKED_AT]
        elif self._scans.sweeps(now_s) and not self._has_rung:
            self._sweep(partitions, now_s)
        elif now_s >= self._poll_at_s and self.tenure.numbers:
            self._look(partitions, now_s)
        else:
            return False
        return True

    def _tick(self, partitions: Partitions, now_s: float) -> None:
        in_hand = {self._rooms.number_of(row_id) for row_id in self._ledger.ids()}
        self.tenure.tick(partitions, now_s, in_hand)
        self.own()
        # Not what this tick has brought: one before it may have been cut short.
        new = self.tenure.numbers - self._scans.numbers - self._loading.keys()
        clean = sorted(new & self.tenure.clean)
        # What was not given back in order may still be written to by a worker that only seemed dead: all of it is read
        # before anything is claimed, and what was tried after that, so that nothing slips through between the two.
        self._loading |= dict.fromkeys(new - self.tenure.clean, ZERO)
        self._bar()
        if clean:
            self._note_blockers(partitions, clean, now_s)
            self._scans.begin(dict.fromkeys(clean, ZERO))

    def own(self) -> None:
        """Forget what is no longer ours."""
        lost = self._rooms.owned - self.tenure.numbers
        self._rooms.owned = self.tenure.numbers
        if lost:
            self._rooms.forget(lost)
            self._scans.drop(lost)
            self._loading = {number: floor for number, floor in self._loading.items() if number not in lost}
            self._bar()

    def _bar(self) -> None:
        self._rooms.loading = frozenset(self._loading) | self.tenure.leaving

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
        return sum(self._rooms.note(row, now_s) for row in rows)

    def _look_again(self, partitions: Partitions, ids: Sequence[int], now_s: float) -> None:
        self._rooms.looked_at(ids, partitions.rows(ids), now_s)

    def _look(self, partitions: Partitions, now_s: float) -> None:
        peek = partitions.peek(sorted(self.tenure.numbers), self._scans.lowest(now_s))
        self._slot.add(vitals.LOOKS)
        self._poll_at_s = time.monotonic() + self._lane.poll_interval_s * random.uniform(0.9, 1.1)
        self._ledger.set_clock(peek.now_ms, time.monotonic())
        self._scans.look_everywhere(fresh=peek.fresh, due=peek.due)
        if self._has_rung and not (peek.fresh or peek.due):
            self._doorbell.answered(found=False)
        self._has_rung = False
        if peek.paused != self.paused:
            self.paused = peek.paused
            tell_pause(self._lane.name, peek.paused)

    def _sweep(self, partitions: Partitions, now_s: float) -> None:
        start_s = time.monotonic()
        starts = self._scans.sweep_starts(PIECE_PARTITIONS)
        rows = partitions.scan(starts, PIECE_ROWS, 0, fresh=True, due=True)
        self.found = bool(self._note(rows, now_s)) or self.found
        took_s = time.monotonic() - start_s
        self._meter.sweeps.observe(took_s)
        if self._scans.swept(starts, rows, PIECE_ROWS, now_s, took_s):
            self._look_at = self._rooms.blocking()
            self._poll_at_s = max(self._poll_at_s, now_s + self._lane.poll_interval_s)  # it has seen all there is

    def look_for_late(self, partitions: Partitions, now_s: float) -> None:
        """Note events in front of those just read that were committed after their ids had been passed."""
        if not (self._scans.unchecked and self._rooms.is_whole):
            return
        start_s = time.monotonic()
        after, before = self._scans.late_range(now_s)
        late = self._rooms.unknown(partitions.open_ids(sorted(self.tenure.numbers), after, before))
        self._scans.looked_for_late(now_s, time.monotonic() - start_s)
        if late:
            self._note(partitions.rows(late), now_s)

    def read_more(self, partitions: Partitions, now_s: float, budget_bytes: int) -> bool:
        """Read on where there is more; False: there is not, as far as is known. budget_bytes: of payload."""
        room = self._rooms.lacking()
        if room is not None and room.more_from is not None and not isinstance(room.key, int):
            rows = partitions.scan_room(room.number, room.key, room.more_from, REFILL_ROWS)
            self._rooms.refill(room, rows, REFILL_ROWS, now_s)
            return True
        starts = self._scans.starts()
        if not starts:
            return False
        # A batch from all of them together; payloads that are larger than usual are read one by one.
        limit = -(-self._lane.batch_size // len(starts))
        inline_bytes = max(1, budget_bytes // (2 * limit * len(starts))) if self._rooms.has_room_for_rows else 0
        rows = partitions.scan(
            starts, limit, inline_bytes, fresh=bool(self._scans.more_fresh), due=bool(self._scans.more_due)
        )
        self._note(rows, now_s)
        self._scans.saw(starts, rows, limit, now_s)
        return True
