"""What stands open in the rooms of an ordered lane, as far as this worker owns them, and what may be claimed now. Pure.

An event may be claimed when nothing in front of it in its room keeps it: no event that waits for its next try, none
under a lease of somebody else, no suspect, no dead letter where the lane says `block`. What this worker holds itself
keeps nothing: its own publishing goes in order. An event without a room is a room of its own. Rows come as
store.api.Partitions gives them; times are time.monotonic().
"""

from bisect import insort
from collections.abc import Collection, Iterable, Sequence

from outboxd.event import Event
from outboxd.relay import room as at
from outboxd.relay.listener import Owed
from outboxd.relay.room import APP, DUE, LEASED_MS, NUMBER, PAYLOAD, ROOM, SIZE, STATUS, Blocker, Entry, Key, Room, Row
from outboxd.relay.waits import Waits
from outboxd.store.api import DELIVERED, FRESH, RELEASED, Settlement

REMEMBERED = 100_000
"""Events that wait; above this only the first one of a room, the rest is read when its turn comes."""


class Rooms:
    """All of them; listens to the ledger. blocks: does a dead letter keep its room? owned: the worker's partitions. Of
    those in loading not everything is known yet, so nothing is picked."""

    def __init__(self, blocks: bool) -> None:
        self._blocks = blocks
        self.owned: frozenset[int] = frozenset()
        self.loading: frozenset[int] = frozenset()
        self._rooms: dict[Key, Room] = {}
        self._known: dict[int, Room] = {}
        self._owed: set[int] = set()  # outcomes that are not yet written
        self._turn: dict[Room, None] = {}  # in the order in which they are claimed from
        self.waits = Waits()
        self._cut: set[Key] = set()  # rooms of which there is more than is remembered
        self.ready_count = 0  # events that are remembered and not claimed, whether they may be or not
        self.light_count = 0  # of those, without their payload

    # what is read

    def note(self, rows: Iterable[Row], now_s: float) -> int:
        """Open rows; how many of them were not known."""
        known, rooms, count = self._known, self._rooms, 0
        for row in rows:
            row_id = row[0]
            is_plain = row[LEASED_MS] < 0 and row[DUE] == FRESH and row[STATUS] == "pending"  # nearly all are
            if row_id in known or (not is_plain and at.is_delayed(row)):
                continue
            count += 1
            key = (row[APP], row[ROOM]) if row[ROOM] else row_id
            room = rooms.get(key)
            if room is None:
                room = rooms[key] = Room(key, row[NUMBER])
            ready = room.ready
            is_last = room.more_from is None and not room.blockers and (not ready or row_id > ready[-1].id)
            if is_last and is_plain and row[PAYLOAD] is not None and self.ready_count < REMEMBERED:
                if not ready:
                    self._turn[room] = None
                ready.append(Entry(row_id, row[SIZE], row))
                self.ready_count += 1
                known[row_id] = room
            elif (blocker := at.blocker_of(row, now_s)) is not None:
                self._block(room, row_id, blocker)
            else:
                self._ready(room, Entry(row_id, row[SIZE], row))
        return count

    def _ready(self, room: Room, entry: Entry) -> None:
        ready, row_id, row = room.ready, entry.id, entry.row
        if row is not None and row[DUE] == FRESH and self._is_left(room, row_id):  # others are not read with its rest
            return
        if row is not None and (row[PAYLOAD] is None or (room.blockers and row_id > room.open_until)):
            entry = Entry(row_id, entry.size_bytes, None)
        if not ready or row_id > ready[-1].id:
            ready.append(entry)
        else:
            insort(ready, entry, key=at.id_of)
        self.ready_count += 1
        self.light_count += entry.row is None
        self._known[row_id] = self._rooms[room.key] = room
        if ready[0] is entry:
            self._queue(room)

    def _is_left(self, room: Room, row_id: int) -> bool:
        """Is it to be read again when its turn comes, since enough is remembered?"""
        if room.more_from is not None and row_id >= room.more_from:
            return True
        if self.ready_count < REMEMBERED or not room.ready or room.ready[0].id > row_id:
            return False
        room.more_from = row_id
        self._cut.add(room.key)
        return True

    def _block(self, room: Room, row_id: int, blocker: Blocker) -> None:
        self._known[row_id] = self._rooms[room.key] = room
        if not room.blockers and room.ready:  # what waits behind it needs no payload in memory
            self.light_count += room.drop_payloads(row_id)
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
        if room.ready or room.more_from is not None:
            if room.is_claimable or room.lacks:
                self._turn[room] = None
        elif not (room.held or room.blockers):
            self._rooms.pop(room.key, None)
            self._turn.pop(room, None)

    def refill(self, room: Room, rows: Sequence[Row], limit: int, now_s: float) -> None:
        """What was read of a room that lacks more, at most limit rows from more_from on."""
        room.more_from = None
        self._cut.discard(room.key)
        self.note(rows, now_s)
        if len(rows) >= limit and room.more_from is None:
            room.more_from = rows[-1][0] + 1
            self._cut.add(room.key)
        self._queue(room)

    @property
    def is_whole(self) -> bool:
        """Is all that was read remembered?"""
        return not self._cut

    def lacking(self) -> Room | None:
        """A room of which more must be read."""
        return next((room for room in self._turn if room.lacks), None)

    # claims

    def pick(self, limit: int, budget_bytes: int, most_held: int, is_idle: bool) -> list[Entry]:
        """What to claim next, in the order of each room: of one, together with what is held of it, at most most_held.
        is_idle: the first one may exceed the budget. Nothing changes before `admitted` or `missed`."""
        rooms, chosen, size_bytes = list(self._turn), list[Entry](), 0
        # Of as many rooms as can be: the events of one have to wait for each other.
        at_once = -(-limit // max(1, len(rooms)))
        for room in rooms:
            offered = room.offers(at_once, most_held) if room.number not in self.loading else ()
            if not (offered or room.is_claimable or room.lacks):
                del self._turn[room]
            for entry in offered:
                size_bytes += entry.size_bytes
                if len(chosen) >= limit or (size_bytes > budget_bytes and (chosen or not is_idle)):
                    return chosen
                chosen.append(entry)
        return chosen

    def admitted(self, events: Iterable[Event]) -> None:
        """They are claimed, and held until they are owed."""
        known, ids_of = self._known, dict[Room, list[int]]()
        for event in events:
            if (room := known.get(event.id)) is not None:
                ids_of.setdefault(room, []).append(event.id)
        for room, ids in ids_of.items():
            room.held += len(ids)
            first = room.ready[: len(ids)]
            if [entry.id for entry in first] == ids:  # mostly
                del room.ready[: len(ids)]
                self.ready_count -= len(ids)
                if self.light_count:
                    self.light_count -= sum([entry.row is None for entry in first])
            else:
                for row_id in ids:
                    self._take_out(room, row_id)
                    known[row_id] = room
            self._turn.pop(room, None)  # the others come first now
            self._queue(room)

    def _take_out(self, room: Room, row_id: int) -> int:
        """It is neither ready nor does it keep others; its size in bytes."""
        if row_id in room.blockers:
            return self._unblock(room, row_id).size_bytes
        del self._known[row_id]
        place = room.place(row_id)
        if place is None:  # it was held
            return 0
        entry = room.ready.pop(place)
        self.ready_count -= 1
        self.light_count -= entry.row is None
        return entry.size_bytes

    def missed(self, ids: Iterable[int]) -> None:
        """They could not be claimed: they stand otherwise than was known."""
        for row_id in ids:
            room = self._known.get(row_id)
            if room is not None:
                self._block(room, row_id, Blocker(at.UNSURE, at.FOREVER_S, self._take_out(room, row_id)))

    def owed(self, ended: Iterable[Owed], now_s: float) -> None:
        """Events that were held are about to be settled so; they stay known until that is written, since their rows
        would be taken for somebody else's."""
        known, owned = self._known, self.owned
        for item, settlement in ended:
            row_id = settlement.id
            room = known.get(row_id)
            if room is None or not room.held:
                continue
            room.held -= 1
            self._owed.add(row_id)
            if room.number not in owned:
                del known[row_id]  # if it becomes ours again, it is read as what the table says
            elif settlement.status != DELIVERED:
                self._ended(room, len(item.event.envelope), settlement, now_s)
            if not room.held:
                self._queue(room)

    def _ended(self, room: Room, size_bytes: int, settlement: Settlement, now_s: float) -> None:
        """It was not delivered."""
        if settlement.status == RELEASED:
            self._ready(room, Entry(settlement.id, size_bytes, None))
        elif (blocker := at.blocker_after(settlement, size_bytes, self._blocks, now_s)) is not None:
            self._block(room, settlement.id, blocker)

    def settled(self, ended: Iterable[Owed], lost: Collection[int]) -> None:
        """They are written. lost: ids of those that are not, since their claims were over."""
        known, ids = self._known, [settlement.id for _, settlement in ended]
        for row_id in ids:
            room = known.get(row_id)
            if room is not None and not (row_id in room.blockers or (room.ready and room.place(row_id) is not None)):
                del known[row_id]
        self._owed.difference_update(ids)
        self.waits.unsure.update(lost)

    def lost(self, event: Event) -> None:
        """The claim of an event that is held holds no longer."""
        room = self._known.get(event.id)
        if room is not None and room.held:
            room.held -= 1
            self._block(room, event.id, Blocker(at.UNSURE, at.FOREVER_S, 0))

    def number_of(self, row_id: int) -> int | None:
        """The partition of a row that is known."""
        return self._known[row_id].number if row_id in self._known else None

    # time and other people

    def wake(self, now_s: float) -> None:
        """What waited long enough is ready; leases that are over are looked at."""
        for row_id in self.waits.over(now_s):
            room = self._known[row_id]
            if room.blockers[row_id].why == at.WAITING:
                self._ready(room, Entry(row_id, self._unblock(room, row_id).size_bytes, None))
            else:
                self.waits.unsure.add(row_id)

    def hurried(self, ids: Iterable[int]) -> None:
        """Those that waited for their next try need not any more."""
        for row_id in ids:
            room = self._known.get(row_id)
            if room is not None and row_id in room.blockers and room.blockers[row_id].why == at.WAITING:
                self._ready(room, Entry(row_id, self._unblock(room, row_id).size_bytes, None))

    @property
    def are_all_blocked(self) -> bool:
        """Is everything that is known behind a dead letter?"""
        return all(room.is_blocked for room in self._rooms.values())

    @property
    def known_count(self) -> int:
        """Of how many anything is known."""
        return len(self._known)

    def unknown(self, ids: Iterable[int]) -> list[int]:
        """Those of which nothing is known."""
        return [row_id for row_id in ids if row_id not in self._known]

    def blocking(self) -> list[int]:
        """Ids of all that keep others: a person, or a worker of before, may have changed them."""
        return [row_id for row_id, room in self._known.items() if row_id in room.blockers]

    def looked_at(self, ids: Iterable[int], rows: Iterable[Row], now_s: float) -> None:
        """How rows that kept others stand now; those that are not among them are gone. Where an outcome is not yet
        written, what is known here is newer."""
        for row_id in ids:
            room = self._known.get(row_id)
            if room is not None and row_id in room.blockers and row_id not in self._owed:
                self._unblock(room, row_id)
            self.waits.unsure.discard(row_id)
        self.note([row for row in rows if row[NUMBER] in self.owned and at.is_open(row, self._blocks)], now_s)

    def forget(self, numbers: frozenset[int] | None = None) -> None:
        """Partitions are no longer ours (None: none is): what is held of them stays known, nothing else does."""
        for room in [room for room in self._rooms.values() if numbers is None or room.number in numbers]:
            for entry in room.ready:
                del self._known[entry.id]
            self.ready_count -= len(room.ready)
            self.light_count -= sum(entry.row is None for entry in room.ready)
            room.ready, room.more_from = [], None
            self._cut.discard(room.key)
            for row_id in list(room.blockers):
                self._unblock(room, row_id)
            self._queue(room)
