"""What stands open in the rooms of an ordered lane, as far as this worker owns them, and what may be claimed now. Pure.

An event may be claimed when nothing in front of it in its room keeps it: no event that waits for its next try, none
under a lease of somebody else, no suspect, no dead letter where the lane says `block`. What this worker holds itself
keeps nothing: its own publishing goes in order. An event without a room is a room of its own.

Rows come as store.api.Partitions gives them. Times are time.monotonic().
"""

from bisect import insort
from collections.abc import Iterable, Sequence

from outboxd.event import Event
from outboxd.relay.room import (
    APP,
    DEAD,
    FOREVER_S,
    LEASED,
    NEXT_RETRY,
    NUMBER,
    PAYLOAD,
    ROOM,
    SIZE,
    STATUS,
    UNSURE,
    WAITING,
    Blocker,
    Entry,
    Key,
    Room,
    Row,
    blocker_of,
    id_of,
    is_delayed,
)
from outboxd.relay.waits import Waits
from outboxd.store.api import DELIVERED, FAILED, RELEASED, RETRYABLE, Settlement

REMEMBERED = 100_000
"""Events that wait; above this only the first one of a room, the rest is read when its turn comes."""


class Rooms:
    """All of them; listens to the ledger. blocks: does a dead letter keep its room? payload_bytes: kept at hand at the
    most. owned: the worker's partitions. Of those in loading not everything is known yet, so nothing is picked."""

    def __init__(self, blocks: bool, payload_bytes: int) -> None:
        self._blocks = blocks
        self._most_bytes = payload_bytes
        self._row_bytes = 0  # of payload, in rows that are at hand
        self.owned: frozenset[int] = frozenset()
        self.loading: frozenset[int] = frozenset()
        self._rooms: dict[Key, Room] = {}
        self._known: dict[int, Room] = {}
        self._turn: dict[Key, Room] = {}  # in the order in which they are claimed from
        self.waits = Waits()
        self._cut: set[Key] = set()  # rooms of which there is more than is remembered
        self.ready_count = 0
        """Events that are remembered and not claimed, whether they may be or not."""

    # what is read

    def note(self, row: Row, now_s: float) -> bool:
        """An open row; False if it was known."""
        row_id = row[0]
        if row_id in self._known or is_delayed(row):
            return False
        room = self._room(row)
        blocker = blocker_of(row, now_s)
        if blocker is None:
            self._ready(room, Entry(row_id, row[SIZE], row))
        else:
            self._block(room, row_id, blocker)
        return True

    def _room(self, row: Row) -> Room:
        key: Key = (row[APP], row[ROOM]) if row[ROOM] else row[0]
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = Room(key, row[NUMBER])
        return room

    def _ready(self, room: Room, entry: Entry) -> None:
        ready = room.ready
        row_id, _, row = entry
        if room.more_from is not None and row_id >= room.more_from:
            return
        if row is not None and (
            row[PAYLOAD] is None or not self.has_room_for_rows or (room.blockers and row_id > room.open_until)
        ):
            entry = entry._replace(row=None)
        if not ready or row_id > ready[-1].id:
            if ready and self.ready_count >= REMEMBERED:
                room.more_from = row_id
                self._cut.add(room.key)
                return
            ready.append(entry)
        else:
            insort(ready, entry, key=id_of)
        self.ready_count += 1
        self._row_bytes += entry.row_bytes
        self._known[row_id] = self._rooms[room.key] = room
        if ready[0] is entry:
            self._queue(room)

    def _block(self, room: Room, row_id: int, blocker: Blocker) -> None:
        self._rooms[room.key] = room
        self._known[row_id] = room
        if not room.blockers and room.ready:  # what waits behind it needs no payload in memory
            self._row_bytes -= sum(entry.row_bytes for entry in room.ready if entry.id > row_id)
            room.ready = [entry if entry.id < row_id else entry._replace(row=None) for entry in room.ready]
        room.blockers[row_id] = blocker
        self.waits.add(room, row_id, blocker)

    def _unblock(self, room: Room, row_id: int) -> Blocker:
        blocker = room.blockers.pop(row_id)
        del self._known[row_id]
        self.waits.remove(row_id)
        self._queue(room)
        return blocker

    def _queue(self, room: Room) -> None:
        """Give it a turn if it may be claimed from; forget it if nothing is known of it."""
        if room.is_claimable or room.lacks:
            self._turn[room.key] = room
        elif room.is_empty:
            self._rooms.pop(room.key, None)
            self._turn.pop(room.key, None)

    def refill(self, room: Room, rows: Sequence[Row], limit: int, now_s: float) -> None:
        """What was read of a room that lacks more, at most limit rows from more_from on."""
        self._is_whole(room)
        for row in rows:
            self.note(row, now_s)
        if len(rows) >= limit and room.more_from is None:
            room.more_from = rows[-1][0] + 1
            self._cut.add(room.key)
        self._queue(room)

    def _is_whole(self, room: Room) -> None:
        room.more_from = None
        self._cut.discard(room.key)

    @property
    def has_room_for_rows(self) -> bool:
        """May rows be kept with their payloads, until they are claimed?"""
        return self._row_bytes < self._most_bytes

    @property
    def are_all_blocked(self) -> bool:
        """Is everything that is known behind a dead letter?"""
        return all(
            room.blockers and not room.held and room.blockers[room.open_until].why == DEAD and not room.is_claimable
            for room in self._rooms.values()
        )

    @property
    def is_whole(self) -> bool:
        """Is all that was read remembered?"""
        return not self._cut

    def lacking(self) -> Room | None:
        """A room of which more must be read."""
        return next((room for room in self._turn.values() if room.lacks), None)

    # claims

    def pick(self, limit: int, budget_bytes: int, per_room: int, is_idle: bool) -> tuple[list[Entry], bool]:
        """What to claim next, in the order of each room: at most per_room of one, together with what is held of it; and
        whether more could be claimed if more were known. is_idle: the first one may exceed the budget. Nothing changes
        before `admitted` or `missed`."""
        chosen: list[Entry] = []
        size_bytes = 0
        for room in list(self._turn.values()):
            if not (room.is_claimable or room.lacks):
                del self._turn[room.key]
                continue
            if room.number in self.loading:
                continue
            end = room.open_until
            if room.held > per_room // 2:  # it is topped up by many, not by each that ends
                continue
            for entry in room.ready[: per_room - room.held]:
                if entry.id > end:
                    break
                size_bytes += entry.size_bytes
                if len(chosen) >= limit or (size_bytes > budget_bytes and (chosen or not is_idle)):
                    return chosen, False
                chosen.append(entry)
        return chosen, len(chosen) < limit

    def admitted(self, events: Iterable[Event]) -> None:
        """They are claimed, and held until they are owed."""
        for event in events:
            row_id = event.id
            room = self._known.get(row_id)
            if room is None:
                continue
            room.held += 1
            self._take_out(room, row_id)
            self._known[row_id] = room
            self._turn.pop(room.key, None)
            if room.ready or room.more_from is not None:  # the others come first now
                self._queue(room)

    def _take_out(self, room: Room, row_id: int) -> int:
        """It is neither ready nor does it keep others; its size in bytes."""
        if row_id in room.blockers:
            return self._unblock(room, row_id).size_bytes
        del self._known[row_id]
        place = room.place(row_id)
        if place is None:  # it was held
            return 0
        self.ready_count -= 1
        entry = room.ready.pop(place)
        self._row_bytes -= entry.row_bytes
        return entry.size_bytes

    def missed(self, ids: Iterable[int]) -> None:
        """They could not be claimed: they stand otherwise than was known."""
        for row_id in ids:
            room = self._known.get(row_id)
            if room is None:
                continue
            self._block(room, row_id, Blocker(UNSURE, FOREVER_S, self._take_out(room, row_id)))

    def owed(self, event: Event, settlement: Settlement, now_s: float) -> None:
        """An event that was held is about to be settled so; it stays known until that is written, since its row would
        be taken for somebody else's."""
        room = self._known.get(event.id)
        if room is None or not room.held:
            return
        room.held -= 1
        if settlement.status != DELIVERED and room.number in self.owned:
            size_bytes = len(event.envelope)
            if settlement.status == RETRYABLE:
                self._block(room, event.id, Blocker(WAITING, now_s + settlement.delay_ms / 1000, size_bytes))
            elif settlement.status == FAILED and self._blocks:
                self._block(room, event.id, Blocker(DEAD, FOREVER_S, size_bytes))
            elif settlement.status == RELEASED:
                self._ready(room, Entry(event.id, size_bytes, None))
        if room.is_empty:
            self._queue(room)

    def settled(self, event: Event, is_lost: bool) -> None:
        """It is written. is_lost: not so, its claim was over."""
        row_id = event.id
        room = self._known.get(row_id)
        if room is not None and row_id not in room.blockers and room.place(row_id) is None:
            del self._known[row_id]
        if is_lost:
            self.waits.unsure.add(row_id)

    def lost(self, event: Event) -> None:
        """The claim of an event that is held holds no longer."""
        room = self._known.get(event.id)
        if room is not None and room.held:
            room.held -= 1
            self._block(room, event.id, Blocker(UNSURE, FOREVER_S, 0))

    def number_of(self, row_id: int) -> int | None:
        """The partition of a row that is known."""
        room = self._known.get(row_id)
        return None if room is None else room.number

    # time and other people

    def wake(self, now_s: float) -> None:
        """What waited long enough is ready; leases that are over are looked at."""
        for row_id in self.waits.over(now_s):
            room = self._known.get(row_id)
            blocker = room.blockers.get(row_id) if room else None
            if room is None or blocker is None or blocker.until_s > now_s:
                continue
            if blocker.why == WAITING:
                self._is_due(room, row_id)
            elif blocker.why == LEASED:
                self.waits.unsure.add(row_id)

    def hurried(self, ids: Iterable[int]) -> None:
        """Those that waited for their next try need not any more."""
        for row_id in ids:
            room = self._known.get(row_id)
            blocker = room.blockers.get(row_id) if room else None
            if room is not None and blocker is not None and blocker.why == WAITING:
                self._is_due(room, row_id)

    def _is_due(self, room: Room, row_id: int) -> None:
        self._ready(room, Entry(row_id, self._unblock(room, row_id).size_bytes, None))

    def unknown(self, ids: Iterable[int]) -> list[int]:
        """Those of which nothing is known."""
        return [row_id for row_id in ids if row_id not in self._known]

    def blocking(self) -> list[int]:
        """Ids of all that keep others: a person, or a worker of before, may have changed them."""
        return [row_id for row_id, room in self._known.items() if row_id in room.blockers]

    def looked_at(self, ids: Iterable[int], rows: Iterable[Row], now_s: float) -> None:
        """How rows that kept others stand now; those that are not among them are gone."""
        for row_id in ids:
            room = self._known.get(row_id)
            if room is not None and row_id in room.blockers:
                self._unblock(room, row_id)
            self.waits.unsure.discard(row_id)
        for row in rows:
            skipped = row[STATUS] == "failed" and (row[NEXT_RETRY] < 0 or not self._blocks)
            if row[STATUS] != "delivered" and not skipped and row[NUMBER] in self.owned:
                self.note(row, now_s)

    def forget(self, numbers: frozenset[int] | None = None) -> None:
        """Partitions are no longer ours (None: none is): what is held of them stays known, nothing else does."""
        for room in [room for room in self._rooms.values() if numbers is None or room.number in numbers]:
            for entry in room.ready:
                del self._known[entry.id]
                self._row_bytes -= entry.row_bytes
            self.ready_count -= len(room.ready)
            room.ready = []
            self._is_whole(room)
            for row_id in list(room.blockers):
                self._unblock(room, row_id)
            self._queue(room)
