"""What of an ordered lane may be claimed now, and what becomes of what was. Pure.

An event may be claimed when nothing in front of it in its room keeps it: no event that waits for its next try, none
under a lease of somebody else, no suspect, no dead letter where the lane says `block`. What this worker holds itself
keeps nothing: its own publishing goes in order. An event without a room is a room of its own.
"""

from collections.abc import Collection, Iterable

from outboxd.event import Event
from outboxd.relay import room as at
from outboxd.relay.listener import Owed
from outboxd.relay.open_rooms import OpenRooms
from outboxd.relay.room import LIGHT, NUMBER, Blocker, Ready, Room, Row
from outboxd.store.api import DELIVERED, RELEASED, Settlement


class Rooms(OpenRooms):
    """Listens to the ledger. blocks: does a dead letter keep its room? Of the partitions in loading not everything is
    known yet, so nothing is picked."""

    def __init__(self, blocks: bool) -> None:
        super().__init__()
        self._blocks = blocks
        self.loading: frozenset[int] = frozenset()
        self._owed: set[int] = set()  # outcomes that are not yet written, but of what was delivered
        self._picked: list[tuple[Room, list[Ready]]] = []

    # claims

    def pick(
        self, limit: int, budget_bytes: int, most_held: int, is_idle: bool, at_least: int = 1
    ) -> list[Ready]:
        """What to claim next, in the order of each room: of one, together with what is held of it, at most most_held.
        is_idle: the first one may exceed the budget. at_least: of one room, if it has so many, before others have their
        turn. Nothing changes before `admitted` or `missed`."""
        rooms, loading, chosen, self._picked = list(self._turn), self.loading, list[Ready](), []
        # Of as many rooms as can be: the events of one have to wait for each other.
        at_once = max(at_least, -(-limit // max(1, len(rooms))))
        for room in rooms:
            offered = room.offers(at_once, most_held) if room.number not in loading else []
            if offered:
                chosen += offered
                self._picked.append((room, offered))
                if len(chosen) >= limit:
                    break
            elif not (room.is_claimable or room.lacks):
                del self._turn[room]
        if len(chosen) > limit:
            room, offered = self._picked.pop()
            self._picked.append((room, offered[: limit - len(chosen)]))
        count = at.fitting(chosen, limit, budget_bytes, is_idle)
        return chosen[:count]

    def admitted(self, events: Iterable[Event]) -> None:
        """They are claimed, and held until they are owed."""
        known, turn, picked, self._picked = self._known, self._turn, self._picked, []
        ids = [event.id for event in events]
        if ids == [one[0] for _, ready in picked for one in ready]:  # mostly
            ids = []
            for room, ready in picked:
                count = len(ready)
                if room.ready[:count] != ready:
                    ids += [one[0] for one in ready]
                    continue
                room.held += count
                self.ready_count -= count
                if self.light_count:
                    self.light_count -= sum([len(one) == LIGHT for one in ready])
                del room.ready[:count]
                turn.pop(room, None)  # the others come first now
                self._queue(room)
        for row_id in ids:
            if (one_of := known.get(row_id)) is not None:
                one_of.held += 1
                self._take_out(one_of, row_id)
                known[row_id] = one_of
                turn.pop(one_of, None)
                self._queue(one_of)

    def _take_out(self, room: Room, row_id: int) -> int:
        """It is neither ready nor does it keep others; its size in bytes."""
        if row_id in room.blockers:
            return self._unblock(room, row_id).size_bytes
        del self._known[row_id]
        place = room.place(row_id)
        if place is None:  # it was held
            return 0
        one = room.ready.pop(place)
        self.ready_count -= 1
        self.light_count -= len(one) == LIGHT
        return at.size_of(one)

    def missed(self, ids: Iterable[int]) -> None:
        """They could not be claimed: they stand otherwise than was known."""
        for row_id in ids:
            room = self._known.get(row_id)
            if room is not None:
                self._block(room, row_id, Blocker(at.UNSURE, at.FOREVER_S, self._take_out(room, row_id)))

    def owed(self, ended: Iterable[Owed], now_s: float) -> None:
        """Events that were held are about to be settled so. Till that is written their rows would be taken for somebody
        else's: they stay known, or done if they were delivered."""
        known, done, owned = self._known, self._done, self.owned
        for item, settlement in ended:
            row_id = settlement.id
            room = known.get(row_id)
            if room is None or not room.held:
                continue
            held = room.held = room.held - 1
            if settlement.status == DELIVERED and room.number in owned:
                done[row_id] = room.number
                del known[row_id]
            else:
                self._owed.add(row_id)
                if room.number in owned:
                    self._ended(room, len(item.event.envelope), settlement, now_s)
                else:
                    del known[row_id]  # if it becomes ours again, it is read as what the table says
            if not held:
                self._queue(room)

    def _ended(self, room: Room, size_bytes: int, settlement: Settlement, now_s: float) -> None:
        """It was not delivered."""
        if settlement.status == RELEASED:
            self._ready(room, (settlement.id, size_bytes))
        elif (blocker := at.blocker_after(settlement, size_bytes, self._blocks, now_s)) is not None:
            self._block(room, settlement.id, blocker)

    def settled(self, ended: Iterable[Owed], lost: Collection[int]) -> None:
        """They are written. lost: ids of those that are not, since their claims were over."""
        known, done = self._known, self._done
        for _, settlement in ended:
            row_id = settlement.id
            if done.pop(row_id, None) is not None:  # mostly
                continue
            self._owed.discard(row_id)
            room = known.get(row_id)
            if room is not None and not (row_id in room.blockers or room.place(row_id) is not None):
                del known[row_id]
        self.waits.unsure.update(lost)

    def lost(self, event: Event) -> None:
        """The claim of an event that is held holds no longer."""
        room = self._known.get(event.id)
        if room is not None and room.held:
            room.held -= 1
            self._block(room, event.id, Blocker(at.UNSURE, at.FOREVER_S, 0))

    # what other people do

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
            for one in room.ready:
                del self._known[one[0]]
            self.ready_count -= len(room.ready)
            self.light_count -= sum(len(one) == LIGHT for one in room.ready)
            room.ready, room.more_from = [], None
            self._cut.discard(room.key)
            for row_id in list(room.blockers):
                self._unblock(room, row_id)
            self._queue(room)
