"""What the store of an ordered lane reads in its partitions, and who owns them, on every kind of database."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from outboxd.config.schema import Database, Lane
from outboxd.relay.room import DUE, LEASED_MS, NEXT_RETRY, NUMBER, PAYLOAD, SIZE, STATUS, WAIT_MS
from outboxd.store import connect, open_store
from outboxd.store.api import FRESH, PARTITIONS, ZERO, Floors, Partitions, Store
from outboxd.store.migrate import init_db, patient
from tests.contract.conftest import LANE, Table

ALL = tuple(range(PARTITIONS))
LEASE_MS = 30_000
MINUTE_MS = 60_000


@pytest.fixture
def lane() -> Lane:
    """Settings of an ordered lane."""
    return Lane(name=LANE, direct=("console",), ordering="room")


@pytest.fixture
def partitions(store: Store) -> Partitions:
    """Those of one worker's store."""
    assert store.partitions is not None
    return store.partitions


def number_of(table: Table, row_id: int) -> int:
    """A row's partition."""
    sql = f"SELECT room_partition FROM {LANE} WHERE id = :id"
    return int(table.connection.query(sql, {"id": row_id})[0][0])


def ids(rows: Any) -> list[int]:
    """Of rows, in their order."""
    return [int(row[0]) for row in rows]


def test_a_lane_without_order_has_no_partitions(database: Database, table: Table) -> None:
    """Nothing of it costs such a lane anything."""
    lane = Lane(name=LANE, direct=("console",))
    with closing(connect(patient(database))) as connection:
        init_db(connection, [lane])
    with closing(open_store(database, lane)) as store:
        assert store.partitions is None


def test_a_look_sees_what_stands_behind_the_floors_in_these_partitions_alone(
    table: Table, partitions: Partitions
) -> None:
    """As Store.peek; by the database's clock."""
    assert not partitions.peek(ALL, ZERO).fresh
    fresh = table.insert()
    own = number_of(table, fresh)
    others = [number for number in ALL if number != own]
    seen = partitions.peek(ALL, ZERO)
    assert (seen.fresh, seen.due, seen.paused) == (True, False, False)
    assert abs(seen.now_ms - table.now_ms()) < 10_000
    assert not partitions.peek(others, ZERO).fresh
    assert not partitions.peek([own], Floors(fresh)).fresh
    table.change(fresh, next_retry_at_ms=5)
    assert partitions.peek([own], ZERO).due
    assert partitions.peek([own], Floors(0, 5, fresh - 1)).due
    assert not partitions.peek([own], Floors(0, 5, fresh)).due
    table.change(fresh, lock_until_ms=table.now_ms() + MINUTE_MS)
    assert not partitions.peek([own], ZERO).due
    table.connection.execute("UPDATE outboxd_lane SET paused = 1")
    assert partitions.peek(ALL, ZERO).paused


def test_a_scan_finds_open_rows_of_both_classes_leased_or_not(table: Table, partitions: Partitions) -> None:
    """What keeps a room is among them; what is done with, or not yet due, is not."""
    now_ms = table.now_ms()
    fresh, leased = table.insert(), table.insert(status="delivering", lock_until_ms=now_ms + MINUTE_MS)
    due = table.insert(status="retryable", next_retry_at_ms=7)
    for status in ("delivered", "failed"):
        table.insert(status=status)
    table.insert(next_retry_at_ms=now_ms + MINUTE_MS)
    own = number_of(table, fresh)
    rows = partitions.scan({own: ZERO}, 10, 1000, fresh=True, due=True)
    assert sorted(ids(rows)) == [fresh, leased, due]
    by_id = {row[0]: row for row in rows}
    assert by_id[fresh][1:6] == ("event-1", "RoomCreated", "room-1", "app", b"{}")
    assert (by_id[fresh][DUE], by_id[fresh][SIZE], by_id[fresh][NUMBER]) == (FRESH, 2, own)
    assert (by_id[due][STATUS], by_id[due][DUE]) == ("retryable", 7)
    assert 0 < by_id[leased][LEASED_MS] <= MINUTE_MS
    assert by_id[fresh][LEASED_MS] <= 0
    assert by_id[due][WAIT_MS] <= 0
    assert ids(partitions.scan({own: ZERO}, 10, 1000, fresh=True, due=False)) == [fresh, leased]
    assert ids(partitions.scan({own: ZERO}, 10, 1000, fresh=False, due=True)) == [due]
    assert not partitions.scan({(own + 1) % PARTITIONS: ZERO}, 10, 1000, fresh=True, due=True)
    assert not partitions.scan({}, 10, 1000, fresh=True, due=True)


def test_a_scan_goes_on_behind_the_floors_of_each_partition(table: Table, partitions: Partitions) -> None:
    """At most limit of each partition and class, in the order of ids."""
    rows = {room: table.insert_many(5, room_id=room) for room in ("one", "two")}
    numbers = {room: number_of(table, those[0]) for room, those in rows.items()}
    assert numbers["one"] != numbers["two"]
    floors = {numbers["one"]: Floors(rows["one"][1]), numbers["two"]: ZERO}
    found = partitions.scan(floors, 2, 0, fresh=True, due=True)
    assert ids(found) == rows["one"][2:4] + rows["two"][:2] or ids(found) == rows["two"][:2] + rows["one"][2:4]


def test_equal_due_values_beyond_the_limit_are_read_once_each(table: Table, partitions: Partitions) -> None:
    """After an outage thousands of rows may be due at one moment."""
    same = table.insert_many(7, status="retryable", next_retry_at_ms=50)
    later = table.insert_many(2, status="retryable", next_retry_at_ms=60)
    own = number_of(table, same[0])
    assert ids(partitions.scan({own: ZERO}, 3, 0, fresh=False, due=True)) == same[:3]
    assert ids(partitions.scan({own: Floors(0, 50, same[2])}, 3, 0, fresh=False, due=True)) == same[3:6] + later
    assert ids(partitions.scan({own: Floors(0, 50, same[5])}, 3, 0, fresh=False, due=True)) == same[6:] + later
    assert not partitions.scan({own: Floors(0, 60, later[1])}, 3, 0, fresh=False, due=True)


def test_payloads_come_along_up_to_a_length(table: Table, partitions: Partitions) -> None:
    """A light row carries nothing but what order asks for, but its length always."""
    short, long = table.insert(envelope=b"1234"), table.insert(envelope="ä" * 10)
    own = number_of(table, short)
    found = {row[0]: row for row in partitions.scan({own: ZERO}, 10, 4, fresh=True, due=True)}
    assert (found[short][PAYLOAD], found[long][PAYLOAD]) == (b"1234", None)
    light = {row[0]: row for row in partitions.scan({own: ZERO}, 10, 0, fresh=True, due=True)}
    assert (light[short][PAYLOAD], light[short][1], light[short][SIZE], light[long][SIZE]) == (None, "", 4, 20)
    assert light[short][3:5] == ("room-1", "app")


def test_ids_in_front_of_where_each_partition_was_read(table: Table, partitions: Partitions) -> None:
    """Fresh ones only; each partition has an end of its own."""
    one, two = table.insert_many(4, room_id="one"), table.insert_many(4, room_id="two")
    table.change(one[0], status="delivered")
    ends = {number_of(table, one[0]): one[3], number_of(table, two[0]): two[2]}
    assert sorted(partitions.open_ids(ends, 0, 100)) == one[1:3] + two[:2]
    assert sorted(partitions.open_ids(ends, one[1], 100)) == one[2:3] + two[:2]
    assert len(partitions.open_ids(ends, 0, 3)) == 3
    same = dict.fromkeys(ends, two[3] + 1)
    assert sorted(partitions.open_ids(same, 0, 100)) == one[1:] + two
    assert list(partitions.open_ids({}, 0, 100)) == []


def test_a_room_is_read_from_an_event_on(table: Table, partitions: Partitions) -> None:
    """Its own tenant's, fresh, by id."""
    mine = table.insert_many(5, room_id="r")
    table.insert(room_id="r", app_code="other")
    table.change(mine[3], status="retryable", next_retry_at_ms=9)
    own = number_of(table, mine[0])
    assert ids(partitions.scan_room(own, ("app", "r"), mine[1], 10)) == [mine[1], mine[2], mine[4]]
    assert ids(partitions.scan_room(own, ("app", "r"), mine[1], 2)) == [mine[1], mine[2]]
    assert not partitions.scan_room(own, ("app", "s"), 0, 10)


def test_what_was_tried_keeps_its_room_and_what_is_only_delayed_does_not(table: Table, partitions: Partitions) -> None:
    """Dead letters where they block, unless they are skipped."""
    later_ms = table.now_ms() + MINUTE_MS
    waiting = table.insert(status="retryable", next_retry_at_ms=later_ms)
    held = table.insert(status="delivering", next_retry_at_ms=later_ms, lock_until_ms=later_ms)
    table.insert(next_retry_at_ms=later_ms)
    table.insert()
    dead, skipped = table.insert(status="failed"), table.insert(status="failed", next_retry_at_ms=-1)
    own = number_of(table, waiting)
    assert sorted(ids(partitions.blockers([own], dead=False))) == [waiting, held]
    assert sorted(ids(partitions.blockers([own], dead=True))) == [waiting, held, dead]
    assert not partitions.blockers([(own + 1) % PARTITIONS], dead=True)
    found = {row[0]: row for row in partitions.rows([dead, skipped, waiting, 10**9])}
    assert sorted(found) == sorted([dead, skipped, waiting])
    assert (found[skipped][NEXT_RETRY], found[dead][NEXT_RETRY], found[waiting][NEXT_RETRY]) == (-1, 0, later_ms)
    assert 0 < found[waiting][WAIT_MS] <= MINUTE_MS


def test_rows_are_read_however_many(table: Table, partitions: Partitions) -> None:
    """Lists of ids are cut into chunks."""
    many = table.insert_many(1100)
    assert sorted(ids(partitions.rows(list(reversed(many))))) == many
    assert list(partitions.rows([])) == []


# who owns them


def test_a_partition_has_one_owner(partitions: Partitions, open_another: Callable[[], Store]) -> None:
    """G2: whoever comes second gets what is left, until the lease is over."""
    other = open_another().partitions
    assert other is not None
    assert [one.number for one in partitions.owners()] == list(ALL)
    assert partitions.acquire([1, 2, 3], "n/one", 11, LEASE_MS, "") == {1, 2, 3}
    assert other.acquire([2, 3, 4], "n/two", 22, LEASE_MS, "") == {4}
    owners = {one.number: one for one in partitions.owners()}
    assert (owners[2].worker_id, owners[2].token, owners[4].token, owners[5].token) == ("n/one", 11, 22, 0)
    assert 0 < owners[2].lease_ms <= LEASE_MS
    assert owners[5].lease_ms <= 0
    assert partitions.keep([1, 2, 3], 11, LEASE_MS) == {1, 2, 3}
    assert partitions.keep([1, 4], 11, LEASE_MS) == {1}
    assert partitions.acquire([], "n/one", 11, LEASE_MS, "") == {1, 2, 3}
    assert partitions.keep([], 11, LEASE_MS) == set()


def test_a_lease_that_is_over_lasts_until_somebody_takes_it(partitions: Partitions, table: Table) -> None:
    """G3: its owner may keep it till then, and learns of it afterwards."""
    partitions.acquire([1, 2], "n/one", 11, LEASE_MS, "")
    table.connection.execute("UPDATE outboxd_partition SET lock_until_ms = 5 WHERE number = 1 OR number = 2")
    assert partitions.keep([1], 11, LEASE_MS) == {1}
    assert partitions.acquire([1, 2], "n/two", 22, LEASE_MS, "") == {2}
    assert partitions.keep([1, 2], 11, LEASE_MS) == {1}


def test_a_worker_takes_what_stands_under_its_name_from_its_last_life(partitions: Partitions) -> None:
    """Its token is new, so that its last life is fenced off."""
    partitions.acquire([1, 2], "n/one", 11, LEASE_MS, "")
    assert partitions.acquire([1, 2], "n/two", 22, LEASE_MS, "n/two") == set()
    assert partitions.acquire([1, 2], "n/one", 12, LEASE_MS, "n/one") == {1, 2}
    assert partitions.keep([1, 2], 11, LEASE_MS) == set()


def test_who_asks_first_is_the_one_that_is_waited_for(partitions: Partitions, table: Table) -> None:
    """Until that wish is over; whoever gets the partition has no wish left."""
    partitions.acquire([1], "n/one", 11, LEASE_MS, "")
    partitions.ask([1], "n/two", LEASE_MS)
    partitions.ask([1], "n/three", LEASE_MS)
    one = partitions.owners()[1]
    assert one.wanted_by == "n/two"
    assert 0 < one.wanted_ms <= LEASE_MS
    table.connection.execute("UPDATE outboxd_partition SET wanted_until_ms = 5 WHERE number = 1")
    partitions.ask([1], "n/three", LEASE_MS)
    assert partitions.owners()[1].wanted_by == "n/three"
    partitions.release([1], 22)
    assert partitions.owners()[1].token == 11
    partitions.release([1], 11)
    released = partitions.owners()[1]
    assert (released.worker_id, released.token, released.lease_ms <= 0) == ("", 0, True)
    assert partitions.acquire([1], "n/three", 33, LEASE_MS, "") == {1}
    assert partitions.owners()[1].wanted_by == ""


def test_who_withdraws_asks_for_nothing_any_more(partitions: Partitions) -> None:
    """Nobody's wish but its own."""
    partitions.acquire([1, 2, 3], "n/one", 11, LEASE_MS, "")
    partitions.ask([1, 2], "n/two", LEASE_MS)
    partitions.ask([3], "n/three", LEASE_MS)
    partitions.withdraw([0, 1, 2, 3], "n/two")
    assert [one.wanted_by for one in partitions.owners()[1:4]] == ["", "", "n/three"]
    assert all(one.wanted_ms <= 0 for one in partitions.owners()[1:3])


def test_every_statement_works_where_columns_have_other_names(database: Database) -> None:
    """`columns` of the lane; outboxd_partition keeps its own names."""
    names = {"id": "event_id", "event_id": "uuid", "room_id": "chat", "lock_until_ms": "until", "due_at_ms": "due"}
    lane = replace(Lane(name="messages", ordering="room", direct=("console",)), columns={**names, "status": "state"})
    with closing(make_table(database, lane)) as store:
        found = store.partitions
        assert found is not None
        store._db.execute(  # type: ignore[attr-defined]  # as its producer writes it
            "INSERT INTO messages (uuid, event_type, chat, envelope) VALUES ('u', 'T', 'r', '{}')"
        )
        (row,) = found.scan(dict.fromkeys(ALL, ZERO), 5, 100, fresh=True, due=True)
        assert (row[1], row[3], row[PAYLOAD], row[STATUS]) == ("u", "r", b"{}", "pending")
        number = row[NUMBER]
        assert found.peek([number], ZERO).fresh
        assert list(found.open_ids({number: row[0] + 1}, 0, 5)) == [row[0]]
        assert ids(found.scan_room(number, ("", "r"), 0, 5)) == [row[0]]
        assert ids(found.rows([row[0]])) == [row[0]]
        assert not found.blockers([number], dead=True)
        assert found.acquire([number], "n/one", 11, LEASE_MS, "") == {number}
        found.ask([number], "n/two", LEASE_MS)
        assert found.keep([number], 11, LEASE_MS) == {number}


def make_table(database: Database, lane: Lane) -> Store:
    """A store over a lane's new table."""
    with closing(connect(patient(database))) as connection:
        init_db(connection, [lane])
    return open_store(database, lane)


def test_a_window_ends_where_a_partition_has_so_many_fresh_rows(table: Table, partitions: Partitions) -> None:
    """A scan of what is new reads its rows of it, and none behind it."""
    ids = [table.insert(room_id="one" if number % 3 else f"room-{number}") for number in range(10)]
    table.change(ids[1], status="delivered")
    table.change(ids[2], next_retry_at_ms=table.now_ms() + 60_000)
    (one,) = {row[NUMBER] for row in partitions.rows([ids[4]])}
    assert partitions.window(range(PARTITIONS), 0, 2) == ids[5]
    assert partitions.window([one], ids[4], 3) == ids[8]
    assert partitions.window(range(PARTITIONS), ids[4], 4) == FRESH
    found = sorted(row[0] for row in partitions.scan_new(range(PARTITIONS), ids[0], ids[5], 100, 10))
    assert found == ids[3:6]
