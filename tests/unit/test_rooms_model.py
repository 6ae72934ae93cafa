"""Rooms against a naive model of the table: nothing is overtaken, everything comes, nothing is left in memory."""

from collections import defaultdict
from unittest import mock

from hypothesis import Phase, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from outboxd.publishers.route import Item
from outboxd.relay import open_rooms as module
from outboxd.relay.room import LIGHT
from outboxd.relay.rooms import Rooms
from outboxd.store.api import DELIVERED, FAILED, RELEASED, RETRYABLE, Settlement
from tests.services.publishing import make_event
from tests.unit.stored import Stored

LEASE_S, DELAY_S = 15.0, 5.0
REFILL = 3
ROOMS = ("a", "b", "c", "")


class RoomsAndTable(RuleBasedStateMachine):
    """One worker, one partition; other people change rows, and earlier workers' leases run out."""

    blocks = False

    def __init__(self) -> None:
        super().__init__()
        self.patch = mock.patch.object(module, "REMEMBERED", 3)
        self.patch.start()
        self.rooms = Rooms(self.blocks)
        self.rooms.owned = frozenset({1})
        self.rows: dict[int, Stored] = {}
        self.now_s = 0.0
        self.floor = 0
        self.news: set[int] = set()  # what a person has changed, and nobody has looked at
        self.late: set[int] = set()

    def teardown(self) -> None:
        """All that is open comes in the end, and then nothing is remembered."""
        try:
            self.run_dry()
        finally:
            self.patch.stop()

    def item(self, row: Stored) -> Item:
        """As a claim gives it."""
        return Item(make_event(id=row.id, room_id=row.room, envelope=b"{}"), 1, 0.0)

    # the table

    @rule(room=some.sampled_from(ROOMS), count=some.integers(1, 4))
    def write(self, room: str, count: int) -> None:
        """A producer commits."""
        for _ in range(count):
            row_id = len(self.rows) + 1
            self.rows[row_id] = Stored(row_id, room)

    @rule(room=some.sampled_from(ROOMS))
    def write_slowly(self, room: str) -> None:
        """Another one has an id, and has not committed yet."""
        self.write(room, 1)
        self.rows[len(self.rows)].status = "uncommitted"
        self.late.add(len(self.rows))

    @rule()
    def commit(self) -> None:
        """It does."""
        for row in self.rows.values():
            if row.status == "uncommitted":
                row.status = "pending"

    @rule(room=some.sampled_from(ROOMS), is_leased=some.booleans())
    def find_leased(self, room: str, is_leased: bool) -> None:
        """What another worker has taken, long ago or lately, and not settled."""
        row_id = len(self.rows) + 1
        row = self.rows[row_id] = Stored(row_id, room)
        row.status, row.lease_s = "delivering", self.now_s + (LEASE_S if is_leased else -1)

    @rule(pick=some.integers(0, 100), how=some.sampled_from(["replay", "skip", "kill", "purge"]))
    def person(self, pick: int, how: str) -> None:
        """Somebody decides about one event."""
        dead = [row for row in self.rows.values() if row.status == "failed"]
        open_rows = [row for row in self.rows.values() if row.status in ("pending", "retryable") and not row.is_held]
        if how == "kill" and open_rows:
            row = open_rows[pick % len(open_rows)]
            row.status = "failed"
            self.news.add(row.id)
            row.is_skipped = bool(self.rooms.unknown([row.id]))  # of what was not read nobody learns it
        elif how != "kill" and dead and self.blocks:
            row = dead[pick % len(dead)]
            self.news.add(row.id)
            if how == "replay":
                row.status, row.due_s = "pending", None
            row.is_skipped = how == "skip"
            if how == "purge":
                row.status = "delivered"

    # the worker

    @rule(limit=some.integers(1, 4), is_light=some.booleans())
    def scan(self, limit: int, is_light: bool) -> None:
        """Fresh rows behind the floor."""
        found = [row for row in self.open_rows() if row.due_s is None and row.id > self.floor][:limit]
        self.rooms.note([row.seen(self.now_s, is_light=is_light) for row in found], self.now_s)
        self.floor = max([self.floor, *(row.id for row in found)])

    @rule()
    def sweep(self) -> None:
        """All open rows up to the floor, and a look at all that keep others."""
        for row in self.open_rows():
            is_due = row.due_s is None or row.due_s <= self.now_s
            if row.id <= self.floor and is_due:
                self.rooms.note([row.seen(self.now_s, is_light=True)], self.now_s)
                self.news.discard(row.id)
        self.look(self.rooms.blocking())

    def look(self, ids: list[int]) -> None:
        """At rows."""
        self.news -= set(ids)
        self.rooms.looked_at(ids, [self.rows[one].seen(self.now_s, is_light=True) for one in ids], self.now_s)

    @rule()
    def look_at_unsure(self) -> None:
        """What was missed."""
        self.look(list(self.rooms.waits.unsure))

    @rule()
    def refill(self) -> None:
        """More of a room."""
        room = self.rooms.lacking()
        if room is not None and room.more_from is not None and not isinstance(room.key, int):
            name, start = room.key[1], room.more_from
            found = [row for row in self.open_rows() if row.room == name and row.due_s is None and row.id >= start]
            rows = [row.seen(self.now_s, is_light=True) for row in found[:REFILL]]
            self.rooms.refill(room, rows, REFILL, self.now_s)
            self.floor = max([self.floor, *(row[0] for row in rows)])

    @rule(limit=some.integers(1, 6), per_room=some.integers(1, 4))
    def claim(self, limit: int, per_room: int) -> None:
        """Pick, take what can be taken, check that nothing in front of it was open."""
        self.look_for_late()
        chosen = [one[0] for one in self.rooms.pick(limit, 1 << 20, per_room, True)]
        assert len(chosen) <= limit
        self.settle()
        taken = [row_id for row_id in chosen if self.rows[row_id].status in ("pending", "retryable")]
        for row_id in taken:
            self.check(row_id, taken)
        self.hold(taken)
        self.rooms.missed([row_id for row_id in chosen if row_id not in taken])

    def check(self, row_id: int, together: list[int]) -> None:
        """All in front of it in its room, as far as it was read, is done with, in hand, or claimed together with it."""
        row = self.rows[row_id]
        for other in self.rows.values():
            is_in_front = other.room == row.room and other.id < row_id and other.id <= self.floor
            is_dead = other.status == "failed" and self.goes_past(other)
            is_done = is_dead or other.status in ("delivered", "uncommitted")
            is_in_hand = other.is_held and other.owed is None
            is_news = other.id in self.news or (not self.rooms.is_whole and other.id in self.late)
            if row.room and is_in_front and not (is_done or is_in_hand or is_news or other.id in together):
                raise AssertionError(f"{row_id} overtakes {other.id}: {other.__dict__}")

    def goes_past(self, row: Stored) -> bool:
        """Does a dead letter keep nobody?"""
        return row.is_skipped or not self.blocks

    def hold(self, ids: list[int]) -> None:
        """They are this worker's."""
        for row_id in ids:
            row = self.rows[row_id]
            row.status, row.is_held, row.lease_s = "delivering", True, self.now_s + LEASE_S
        self.rooms.admitted([self.item(self.rows[row_id]).event for row_id in ids])

    def look_for_late(self) -> None:
        """What was committed in front of what was read."""
        open_ids = [row.id for row in self.open_rows() if row.due_s is None and row.id <= self.floor]
        for row_id in self.rooms.unknown(open_ids) if self.rooms.is_whole else ():
            self.rooms.note([self.rows[row_id].seen(self.now_s, is_light=True)], self.now_s)

    @rule()
    def claim_suspect(self) -> None:
        """Alone."""
        self.look_for_late()
        row_id = self.rooms.waits.suspect()
        if row_id is not None and not any(row.is_held for row in self.rows.values()):
            if (row := self.rows[row_id]).status == "delivering" and row.lease_s <= self.now_s:
                self.check(row_id, [])
                self.hold([row_id])
            else:
                self.rooms.missed([row_id])

    @rule(pick=some.integers(0, 100), end=some.sampled_from([DELIVERED, DELIVERED, RETRYABLE, FAILED]))
    def publish(self, pick: int, end: str) -> None:
        """A publish ends: the first one of a room in hand; behind a failure all are released."""
        held = sorted((row for row in self.rows.values() if row.is_held and row.owed is None), key=lambda row: row.id)
        if not held:
            return
        room = held[pick % len(held)].room
        first, *others = [row for row in held if row.room == room]
        self.owe(first, end)
        if room and end != DELIVERED and (end == RETRYABLE or self.blocks):
            for row in others:
                self.owe(row, RELEASED)

    def owe(self, row: Stored, end: str) -> None:
        """Its outcome waits to be written."""
        row.owed = Settlement(row.id, 1, end, delay_ms=round(DELAY_S * 1000) if end == RETRYABLE else 0)
        self.rooms.owed([(self.item(row), row.owed)], self.now_s)

    @rule()
    def settle(self) -> None:
        """Outcomes are written."""
        ended = [(self.item(row), row.owed) for row in self.rows.values() if row.owed is not None]
        for row in self.rows.values():
            if row.owed is not None:
                row.status = row.owed.status
                if row.owed.status == RETRYABLE:
                    row.due_s = self.now_s + DELAY_S
                elif row.owed.status == RELEASED:
                    row.status = "pending" if row.due_s is None else "retryable"
                row.owed, row.is_held, row.lease_s = None, False, 0.0
        self.rooms.settled(ended, frozenset())

    @rule()
    def lose_the_partition(self) -> None:
        """And own it again: all of it is read anew, what was tried after the rest."""
        self.rooms.owned = frozenset()
        self.rooms.forget(frozenset({1}))
        self.rooms.owned = frozenset({1})
        self.floor = len(self.rows)
        dead = [row for row in self.rows.values() if row.status == "failed" and not self.goes_past(row)]
        for row in [*sorted(self.open_rows(), key=lambda row: row.due_s is not None), *dead]:
            self.rooms.note([row.seen(self.now_s, is_light=True)], self.now_s)
        self.news.clear()

    @rule(by_s=some.sampled_from([0.1, DELAY_S, LEASE_S + 1]))
    def pass_time(self, by_s: float) -> None:
        """Its own leases are renewed."""
        self.now_s += by_s
        for row in self.rows.values():
            if row.is_held:
                row.lease_s = self.now_s + LEASE_S
        self.rooms.wake(self.now_s)

    @rule(pick=some.integers(0, 100))
    def hurry(self, pick: int) -> None:
        """A publisher is back: what waited is due."""
        waiting = [row for row in self.rows.values() if row.status == "retryable" and row.owed is None]
        if waiting:
            row = waiting[pick % len(waiting)]
            row.due_s = self.now_s
            self.rooms.hurried([row.id])

    def open_rows(self) -> list[Stored]:
        """By id."""
        return [row for row in self.rows.values() if row.status not in ("delivered", "failed", "uncommitted")]

    @invariant()
    def counts(self) -> None:
        """They say what is there."""
        rooms = set(self.rooms._rooms.values()) | set(self.rooms._turn)
        ready = [one for room in rooms for one in room.ready]
        assert self.rooms.ready_count == len(ready)
        assert self.rooms.light_count == sum(len(one) == LIGHT for one in ready)
        held: dict[str, int] = defaultdict(int)
        for row in self.rows.values():
            held[row.room] += row.is_held and row.owed is None
        assert sum(room.held for room in rooms) == sum(held.values())

    def run_dry(self) -> None:
        """Nothing fails any more: everything that is open comes, dead letters are skipped."""
        self.commit()
        for _ in range(60 + 6 * len(self.rows)):
            self.pass_time(LEASE_S + 1)
            self.scan(4, True)
            self.sweep()
            self.look_at_unsure()
            self.refill()
            self.claim(6, 4)
            self.publish(0, DELIVERED)
            self.settle()
            self.claim_suspect()
            self.publish(0, DELIVERED)
            self.settle()
            for row in self.rows.values():
                row.is_skipped = row.status == "failed"
        assert not self.open_rows()
        rooms = self.rooms
        assert not any((rooms._known, rooms._done, rooms._rooms, rooms._turn, rooms.waits.unsure, rooms._cut))


class BlockingRoomsAndTable(RoomsAndTable):
    blocks = True


TestRooms, TestBlockingRooms = RoomsAndTable.TestCase, BlockingRoomsAndTable.TestCase
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
TestRooms.settings = TestBlockingRooms.settings = settings(max_examples=100, stateful_step_count=30, phases=PHASES)
