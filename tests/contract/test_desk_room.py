"""Rooms of an ordered lane, as operators see and free them, on every kind of database."""

from contextlib import closing
from dataclasses import replace

import pytest

from outboxd.config.schema import RENAMABLE, Database, Lane
from outboxd.store import connect, desk, desk_room
from outboxd.store.api import DELIVERED, FAILED, FRESH, RETRYABLE, SKIPPED
from outboxd.store.desk import overview
from outboxd.store.desk_dead import DeadFilter, replay, skip
from outboxd.store.desk_find import Desk, find
from outboxd.store.desk_room import Room, room_of
from outboxd.store.migrate import init_db
from tests.contract.conftest import LANE, Table

ANY = DeadFilter()
HOUR_MS = 3_600_000


@pytest.fixture
def lane() -> Lane:
    """Settings of the lane."""
    return Lane(name=LANE, direct=("console",), ordering="room", on_dead="block")


def seen(table: Table, lane: Lane, event_id: str = "last") -> Room:
    """The room of an event."""
    found = room_of(table.connection, lane, find(table.connection, lane, event_id, "app")[0])
    assert isinstance(found, Room), found
    return found


def front(table: Table, lane: Lane) -> tuple[str | None, int]:
    """(the event that `last` waits for, how many are before it)."""
    room = seen(table, lane)
    assert not room.is_more
    return (room.front.event_id if room.front else None), room.ahead


# skipping


def test_a_skipped_dead_letter_stays_one_and_says_so(table: Table, lane: Lane) -> None:
    """When it died and of what is still to be read; nothing but the mark changes, and counts once."""
    row_id = table.insert(status=FAILED, event_id="e", last_error="boom", updated_at_ms=5, next_retry_at_ms=77)
    before = table.row(row_id)
    for changed in (1, 0):
        assert sum(skip(table.connection, lane, DeadFilter(event_id="e"))) == changed
        assert table.row(row_id) == {**before, "next_retry_at_ms": SKIPPED}
        assert find(table.connection, lane, "e", "app")[0].is_skipped


def test_only_dead_letters_that_are_meant_are_skipped(table: Table, lane: Lane) -> None:
    """A mark on any other event would make it due at once."""
    others = [table.insert(status=status) for status in ("pending", "delivering", RETRYABLE, DELIVERED)]
    others += [table.insert(status=FAILED, room_id="another")]
    wanted = table.insert(status=FAILED, room_id="this")
    assert sum(skip(table.connection, lane, DeadFilter(room="this"))) == 1
    assert table.row(wanted)["next_retry_at_ms"] == SKIPPED
    assert [table.row(row_id)["next_retry_at_ms"] for row_id in others] == [0] * 5


def test_a_limit_is_of_those_that_nobody_has_skipped(table: Table, lane: Lane) -> None:
    """Else whoever skips many, part by part, would have the first part for ever."""
    ids = [table.insert(status=FAILED) for _ in range(3)]
    for changed in (1, 1, 1, 0):
        assert sum(skip(table.connection, lane, DeadFilter(limit=1))) == changed
    assert [table.row(row_id)["next_retry_at_ms"] for row_id in ids] == [SKIPPED] * 3


def test_a_replay_takes_the_mark_away(table: Table, lane: Lane) -> None:
    """Else it would block nobody if it died once more, though nobody has skipped that."""
    row_id = table.insert(status=FAILED)
    assert sum(skip(table.connection, lane, ANY)) == sum(replay(table.connection, lane, ANY)) == 1
    assert (table.status(row_id), table.row(row_id)["next_retry_at_ms"]) == ("pending", 0)


def test_an_event_that_is_killed_is_not_skipped_with_it(table: Table, lane: Lane) -> None:
    """A producer may have written -1 for a time; killed, the event blocks its room like any other."""
    row_id = table.insert(event_id="e", next_retry_at_ms=-1)
    assert desk.kill(table.connection, lane, find(table.connection, lane, "e", "app")[0], "ops").done
    assert not find(table.connection, lane, "e", "app")[0].is_skipped
    assert table.row(row_id)["due_at_ms"] == -2


# counting


def test_blocked_rooms_are_counted_once_each(table: Table, lane: Lane) -> None:
    """Rooms of two tenants are two; what is skipped, of no room or not dead blocks none."""
    for room, app in (("a", "app"), ("a", "app"), ("a", "other"), ("b", "app"), ("", "app")):
        table.insert(status=FAILED, room_id=room, app_code=app)
    table.insert(status=FAILED, room_id="c", next_retry_at_ms=SKIPPED)
    table.insert(status=RETRYABLE, room_id="d")
    assert overview(table.connection, lane).blocked_rooms == 3
    assert sum(skip(table.connection, lane, DeadFilter(room="b"))) == 1
    assert overview(table.connection, lane).blocked_rooms == 2


def test_a_lane_that_waits_for_no_dead_letter_has_no_such_number(table: Table, lane: Lane) -> None:
    """0 would say that no room is blocked, which is not in question there."""
    table.insert(status=FAILED)
    for other in (replace(lane, on_dead="continue"), replace(lane, ordering="none")):
        assert overview(table.connection, other).blocked_rooms is None


def test_the_count_ends_at_its_limit_and_says_so(table: Table, lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    """G9: each one's row is read."""
    monkeypatch.setattr(desk, "COUNT_CAP", 2)
    table.insert_many(2, status=FAILED)
    assert overview(table.connection, lane).capped == frozenset()
    for room in ("x", "y"):
        table.insert(status=FAILED, room_id=room)
    shown = overview(table.connection, lane)
    assert (shown.blocked_rooms, shown.failed) == (1, 2)
    assert shown.capped == {"failed", "blocked_rooms"}


# who comes first


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, ("first", 1)),
        ({"status": "delivering", "lock_until_ms": 5}, ("first", 1)),
        ({"status": RETRYABLE}, ("first", 1)),
        ({"status": RETRYABLE, "next_retry_at_ms": 5}, ("first", 1)),
        ({"status": RETRYABLE, "next_retry_at_ms": FRESH - 1}, ("first", 1)),
        ({"status": "delivering", "next_retry_at_ms": FRESH - 1}, ("first", 1)),
        ({"next_retry_at_ms": 5}, ("first", 1)),
        ({"next_retry_at_ms": FRESH - 1}, (None, 0)),
        ({"status": FAILED}, ("first", 1)),
        ({"status": FAILED, "next_retry_at_ms": 5}, ("first", 1)),
        ({"status": FAILED, "next_retry_at_ms": SKIPPED}, (None, 0)),
        ({"status": DELIVERED}, (None, 0)),
        ({"room_id": "room-2"}, (None, 0)),
        ({"app_code": "other"}, (None, 0)),
    ],
)
def test_an_event_waits_for_what_is_open_before_it(
    table: Table, lane: Lane, columns: dict[str, object], expected: tuple[str | None, int]
) -> None:
    """What a producer delays holds nobody back until its time has come."""
    table.insert(event_id="first", **columns)
    table.insert(event_id="last")
    table.insert(event_id="later", **columns)
    assert front(table, lane) == expected


def test_dead_letters_hold_up_only_where_they_are_to(table: Table, lane: Lane) -> None:
    """on_dead: continue."""
    table.insert(event_id="first", status=FAILED)
    table.insert(event_id="last")
    assert front(table, replace(lane, on_dead="continue")) == (None, 0)


def test_the_first_of_all_kinds_is_told(table: Table, lane: Lane) -> None:
    """It is what all the others wait for, too."""
    fresh, retried, dead, _ = [table.insert(event_id=name) for name in ("fresh", "retried", "dead", "last")]
    table.change(retried, status=RETRYABLE, next_retry_at_ms=5)
    table.change(dead, status=FAILED)
    assert front(table, lane) == ("fresh", 3)
    table.delete(fresh)
    assert front(table, lane) == ("retried", 2)
    table.change(retried, status=DELIVERED)
    assert front(table, lane) == ("dead", 1)


def test_who_has_the_partition_is_told_while_its_lease_runs(table: Table, lane: Lane) -> None:
    """Nobody: no worker runs, or one is about to take over."""
    table.insert(event_id="last")
    room = seen(table, lane)
    assert room == Room(partition=room.partition)
    own = "UPDATE outboxd_partition SET worker_id = 'n1/room_outbox-01', lock_until_ms = :until WHERE number = :number"
    now = table.now_ms()
    table.connection.execute(own, {"until": now + HOUR_MS, "number": room.partition})
    assert seen(table, lane).owner == "n1/room_outbox-01"
    table.connection.execute(own, {"until": now - 1, "number": room.partition})
    assert seen(table, lane).owner == ""


@pytest.mark.parametrize("columns", [{}, {"status": RETRYABLE, "next_retry_at_ms": 5}, {"status": FAILED}])
def test_a_look_ends_at_its_limit_and_says_so(
    table: Table, lane: Lane, columns: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """G9: a partition may hold a backlog of millions, of other rooms too."""
    monkeypatch.setattr(desk_room, "ROOM_CAP", 3)
    ids = table.insert_many(5, **columns)
    table.insert(event_id="last")
    room = seen(table, lane)
    assert (room.front.id if room.front else None, room.ahead, room.is_more) == (ids[0], 4, True)


def test_what_the_look_needs_and_is_missing_is_said(database: Database, lane: Lane) -> None:
    """A lane that was told to be ordered, before init-db was run: its events are explained all the same."""
    with closing(connect(database)) as connection:
        init_db(connection, [replace(lane, ordering="none")])
        table = Table(connection)
        table.insert(event_id="last")
        said = room_of(connection, lane, find(connection, lane, "last", "app")[0])
        assert isinstance(said, str)
        assert "room_" in said
        assert overview(connection, lane).blocked_rooms == 0


def test_a_table_that_names_its_columns_otherwise_is_read_too(database: Database, lane: Lane) -> None:
    """Those of the bookkeeping tables keep their own names."""
    renamed = replace(lane, columns={name: f"their_{name}" for name in RENAMABLE})
    with closing(connect(database)) as connection:
        init_db(connection, [renamed])
        for name, status in (("first", FAILED), ("last", "pending")):
            connection.execute(
                "INSERT INTO room_outbox (their_event_id, their_event_type, their_room_id, their_app_code, "
                "their_envelope, their_status) VALUES (:name, 'T', 'r', 'app', '', :status)",
                {"name": name, "status": status},
            )
        connection.execute("UPDATE outboxd_partition SET worker_id = 'n1/x', lock_until_ms = 9007199254740991")
        room = room_of(connection, renamed, find(connection, renamed, "last", "app")[0])
        assert isinstance(room, Room), room
        assert (room.front.event_id if room.front else "", room.ahead, room.owner) == ("first", 1, "n1/x")
        assert overview(connection, renamed).blocked_rooms == 1
        assert sum(skip(connection, renamed, ANY)) == 1
        assert overview(connection, renamed).blocked_rooms == 0
        desk.pause(connection, renamed, "me")
        assert overview(connection, renamed).paused_by == "me"


# cost


def test_no_look_at_a_room_reads_other_partitions_or_what_was_delivered(table: Table, lane: Lane) -> None:
    """With a hundred million delivered rows `outboxd explain` must answer."""
    table.insert_many(1500, status=DELIVERED)
    for number in range(300):
        table.insert(room_id=f"other-{number}", status=("pending", FAILED, RETRYABLE)[number % 3])
    table.insert(event_id="first", room_id="this")
    table.insert(event_id="last", room_id="this")
    event = find(table.connection, lane, "last", "app")[0]
    if table.connection.dialect == "sqlite":
        table.connection.execute("ANALYZE")
        room = room_of(table.connection, lane, event)
        assert isinstance(room, Room)
        params = {"id": event.id, "app": "app", "room": "this", "part": room.partition, "most": 9, "due": 1, "high": 2}
        for name in ("room_equal", "room_range"):
            plan = table.connection.query(f"EXPLAIN QUERY PLAN {Desk(table.connection, lane).sql(name)}", params)
            details = [row[-1] for row in plan]
            wanted = "SEARCH room_outbox USING INDEX room_outbox_rooms (room_partition=? AND due_at_ms"
            assert any(detail.startswith(wanted) for detail in details), details
        return
    table.connection.query("ANALYZE TABLE room_outbox")
    before = _rows_read(table)
    room_of(table.connection, lane, event)
    assert _rows_read(table) - before < 90


def _rows_read(table: Table) -> int:
    rows = table.connection.query("SHOW SESSION STATUS LIKE 'Handler_read_%'")
    return sum(int(row[1]) for row in rows)
