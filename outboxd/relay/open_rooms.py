"""What stands open in the rooms of an ordered lane, as it is read: what waits, what keeps others, who is next. Pure.

Rows come as store.api.Partitions gives them; times are time.monotonic().
"""

from bisect import insort
from collections.abc import Iterable, Sequence

from outboxd.relay import room as at
from outboxd.relay.room import APP, DUE, LEASED_MS, LIGHT, NUMBER, PAYLOAD, ROOM, STATUS, Blocker, Key, Ready, Room, Row
from outboxd.relay.waits import Waits
from outboxd.store.api import FRESH

REMEMBERED = 100_000
"""Events that wait; above this only the first one of a room, the rest is read when its turn comes."""


class OpenRooms:
    """All of them. owned: the worker's partitions."""

    def __init__(self) -> None:
        self.owned: frozenset[int] = frozenset()
        self._rooms: dict[Key, Room] = {}
        self._known: dict[int, Room] = {}
        self._done: dict[int, int] = {}  # delivered, and that is not yet written; and their partitions
        self._turn: dict[Room, None] = {}  # in the order in which they are claimed from
        self.waits = Waits()
        self._cut: set[Key] = set()  # rooms of which there is more than is remembered
        self.ready_count = 0  # events that are remembered and not claimed, whether they may be or not
        self.light_count = 0  # of those, without their payload

    def note(self, rows: Iterable[Row], now_s: float) -> int:
        """Open rows; how many of them were not known."""
        known, done, rooms, turn, count = self._known, self._done, self._rooms, self._turn, 0
        for row in rows:
            row_id = row[0]
            is_plain = row[LEASED_MS] < 0 and row[DUE] == FRESH and row[STATUS] == "pending"  # nearly all are
            if row_id in known or row_id in done or (not is_plain and at.is_delayed(row)):
                continue
            count += 1
            key = (row[APP], row[ROOM]) if row[ROOM] else row_id
            room = rooms.get(key)
            if room is None:
                room = rooms[key] = Room(key, row[NUMBER])
            if is_plain and row[PAYLOAD] is not None and not room.blockers and self.ready_count < REMEMBERED:
                ready = room.ready
                if room.more_from is None and (not ready or row_id > ready[-1][0]):
                    if not ready:
                        turn[room] = None
                    ready.append(row)
                    self.ready_count += 1
                    known[row_id] = room
                    continue
            if (blocker := at.blocker_of(row, now_s)) is not None:
                self._block(room, row_id, blocker)
            else:
                self._ready(room, row)
        return count

    def _ready(self, room: Room, one: Ready) -> None:
        ready, row_id = room.ready, one[0]
        if len(one) > LIGHT:
            if one[DUE] == FRESH and self._is_left(room, row_id):  # others are not read with its rest
                return
            if one[PAYLOAD] is None or (room.blockers and row_id > room.open_until):
                one = at.light(one)
        if not ready or row_id > ready[-1][0]:
            ready.append(one)
        else:
            insort(ready, one, key=at.id_of)
        self.ready_count += 1
        self.light_count += len(one) == LIGHT
        self._known[row_id] = self._rooms[room.key] = room
        if ready[0] is one:
            self._queue(room)

    def _is_left(self, room: Room, row_id: int) -> bool:
        """Is it to be read again when its turn comes, since enough is remembered?"""
        if room.more_from is not None and row_id >= room.more_from:
            return True
        if self.ready_count < REMEMBERED or not room.ready or room.ready[0][0] > row_id:
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
        if room.ready and not room.blockers and room.more_from is None:  # mostly
            self._turn[room] = None
        elif room.ready or room.more_from is not None:
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

    def number_of(self, row_id: int) -> int | None:
        """The partition of a row that is known."""
        return self._known[row_id].number if row_id in self._known else self._done.get(row_id)

    def wake(self, now_s: float) -> None:
        """What waited long enough is ready; leases that are over are looked at."""
        for row_id in self.waits.over(now_s):
            room = self._known[row_id]
            if room.blockers[row_id].why == at.WAITING:
                self._ready(room, (row_id, self._unblock(room, row_id).size_bytes))
            else:
                self.waits.unsure.add(row_id)

    def hurried(self, ids: Iterable[int]) -> None:
        """Those that waited for their next try need not any more."""
        for row_id in ids:
            room = self._known.get(row_id)
            if room is not None and row_id in room.blockers and room.blockers[row_id].why == at.WAITING:
                self._ready(room, (row_id, self._unblock(room, row_id).size_bytes))

    @property
    def are_all_blocked(self) -> bool:
        """Is everything that is known behind a dead letter?"""
        return all(room.is_blocked for room in self._rooms.values())

    @property
    def known_count(self) -> int:
        """Of how many anything is known."""
        return len(self._known) + len(self._done)

    def unknown(self, ids: Iterable[int]) -> list[int]:
        """Those of which nothing is known."""
        return [row_id for row_id in ids if row_id not in self._known and row_id not in self._done]

    def blocking(self) -> list[int]:
        """Ids of all that keep others: a person, or a worker of before, may have changed them."""
        return [row_id for row_id, room in self._known.items() if row_id in room.blockers]
