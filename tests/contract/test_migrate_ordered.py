"""What init-db adds to the table of an ordered lane, on every kind of database."""

import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from outboxd.config.load import parse
from outboxd.config.schema import COLUMNS, ROOM_PARTITION, Database, Lane
from outboxd.errors import StoreRefused
from outboxd.store import connect
from outboxd.store.api import PARTITIONS
from outboxd.store.connection import Connection
from outboxd.store.migrate import create_missing, init_db, print_sql, verify

PLAIN = Lane(name="room_outbox")
ORDERED = replace(PLAIN, ordering="room")
RENAMED = Lane(
    name="messages",
    ordering="room",
    columns={"room_id": "chat", "event_id": "uuid", "app_code": "tenant", "due_at_ms": "due", ROOM_PARTITION: "part"},
)


def columns(connection: Connection, table: str) -> list[str]:
    """The names of a table's columns in order."""
    if connection.dialect == "mysql":
        sql = (
            "SELECT COLUMN_NAME FROM information_schema.COLUMNS "
            "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :table ORDER BY ORDINAL_POSITION"
        )
    else:
        sql = "SELECT name FROM pragma_table_xinfo(:table)"
    return [str(row[0]) for row in connection.query(sql, {"table": table})]


def indexes(connection: Connection) -> set[str]:
    """The names of the table's indexes, on MySQL."""
    return {str(row[2]) for row in connection.query("SHOW INDEX FROM room_outbox")}


def partitions(connection: Connection, lane: str) -> list[tuple[object, ...]]:
    """The rows of a lane, in the order of their numbers."""
    sql = "SELECT number, worker_id, token, lock_until_ms, wanted_by, wanted_until_ms FROM outboxd_partition"
    return [tuple(row) for row in connection.query(f"{sql} WHERE lane = :lane ORDER BY number", {"lane": lane})]


def insert(connection: Connection, rooms: Sequence[tuple[str, str, str]]) -> None:
    """Events as a producer writes them: (app_code, event_id, room_id)."""
    connection.begin()
    for app, event, room in rooms:
        connection.execute(
            "INSERT INTO room_outbox (app_code, event_id, event_type, room_id, envelope) "
            "VALUES (:app, :event, 'T', :room, '')",
            {"app": app, "event": event, "room": room},
        )
    connection.commit()


def numbers(connection: Connection) -> list[int]:
    """The partition of every event, in the order of ids."""
    return [int(row[0]) for row in connection.query("SELECT room_partition FROM room_outbox ORDER BY id")]


def test_an_ordered_lane_gets_a_column_an_index_and_its_partitions(database: Database) -> None:
    """Workers of any version, and people who look, rely on these names."""
    with closing(connect(database)) as connection:
        init_db(connection, [ORDERED])
        assert columns(connection, "room_outbox") == [*COLUMNS, "room_partition"]
        assert partitions(connection, "room_outbox") == [(number, "", 0, 0, "", 0) for number in range(PARTITIONS)]
        verify(connection, ORDERED)


def test_on_mysql_an_ordered_lane_has_one_index_in_place_of_another(database: Database) -> None:
    """Each makes every INSERT and settle dearer. Whoever has both is told how to drop the one that nobody reads."""
    with closing(connect(database)) as connection:
        init_db(connection, [ORDERED])
        if connection.dialect == "sqlite":  # has both
            verify(connection, PLAIN)
            return
        assert indexes(connection) == {"PRIMARY", "event", "rooms"}
        with pytest.raises(StoreRefused, match="has no index due: run `outboxd init-db`"):
            verify(connection, PLAIN)
        said: list[str] = []
        init_db(connection, [PLAIN], said.append)
        assert indexes(connection) == {"PRIMARY", "event", "rooms", "due"}
        assert said[-1].endswith("ALTER TABLE `room_outbox` DROP KEY rooms")
        verify(connection, PLAIN)
        said.clear()
        init_db(connection, [ORDERED], said.append)
        assert said[-1].endswith("ALTER TABLE `room_outbox` DROP KEY due")
        connection.execute(said[-1].rpartition(": ")[2])
        verify(connection, ORDERED)
        said.clear()
        init_db(connection, [ORDERED], said.append)
        assert said == ["room_outbox: nothing to do, it has version 1"]


def test_an_unordered_lane_gets_none_of_it(database: Database) -> None:
    """Its writes would pay for an index that nobody reads."""
    with closing(connect(database)) as connection:
        init_db(connection, [PLAIN])
        assert columns(connection, "room_outbox") == list(COLUMNS)
        assert partitions(connection, "room_outbox") == []


def test_a_lane_becomes_ordered_with_its_rows_and_back_without_a_change(database: Database) -> None:
    """Every event that waits gets its partition; a lane that is no longer ordered keeps what it has."""
    with closing(connect(database)) as connection:
        init_db(connection, [PLAIN])
        insert(connection, [("", f"e{number}", f"room-{number % 3}") for number in range(9)])
        with pytest.raises(StoreRefused, match="has no column room_partition: run `outboxd init-db`"):
            verify(connection, ORDERED)
        said: list[str] = []
        init_db(connection, [ORDERED], said.append)
        assert "room_outbox: migrated, it has version 1" in said
        found = numbers(connection)
        assert found == found[:3] * 3, "a room is in one partition"
        said.clear()
        init_db(connection, [ORDERED], said.append)
        init_db(connection, [PLAIN], said.append)
        assert [line for line in said if "index" not in line] == ["room_outbox: nothing to do, it has version 1"] * 2
        verify(connection, ORDERED)


def test_a_second_run_leaves_leased_partitions_alone(database: Database) -> None:
    """Deployments run init-db while other nodes work."""
    with closing(connect(database)) as connection:
        init_db(connection, [ORDERED])
        connection.execute("UPDATE outboxd_partition SET worker_id = 'n/w', token = 7, lock_until_ms = 99")
        connection.execute("DELETE FROM outboxd_partition WHERE number = 5")
        init_db(connection, [ORDERED])
        found = partitions(connection, "room_outbox")
        assert found[5] == (5, "", 0, 0, "", 0)
        assert [row for row in found if row[0] != 5] == [(n, "n/w", 7, 99, "", 0) for n in range(64) if n != 5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("{drop_index}", "has no index.* (rooms|room_partition and due_at_ms): run `outboxd init-db`"),
        ("DELETE FROM outboxd_partition WHERE number = 63", "has not all of its rows in outboxd_partition: run `outb"),
        ("DROP TABLE outboxd_partition", "outboxd_partition.* run `outboxd init-db`"),
    ],
)
def test_what_order_needs_and_is_missing_is_refused(database: Database, change: str, message: str) -> None:
    """G10: a worker that claims without it would read every row, or leave rooms lying; an unordered lane needs none."""
    with closing(connect(database)) as connection:
        init_db(connection, [ORDERED])
        is_mysql = connection.dialect == "mysql"
        drop = "ALTER TABLE room_outbox DROP INDEX rooms" if is_mysql else "DROP INDEX room_outbox_rooms"
        connection.execute(change.format(drop_index=drop))
        with pytest.raises(StoreRefused, match=message):
            verify(connection, ORDERED)
        init_db(connection, [ORDERED])
        verify(connection, ORDERED)


def test_on_sqlite_the_daemon_creates_it(database: Database) -> None:
    """As it does with the tables; on MySQL init-db has to be run."""
    with closing(connect(database)) as connection:
        init_db(connection, [PLAIN])
        create_missing(connection, [ORDERED])
        assert (ROOM_PARTITION in columns(connection, "room_outbox")) is (connection.dialect == "sqlite")


def test_the_printed_sql_makes_the_same(database: Database) -> None:
    """Onto an empty database, and onto one whose lane was unordered."""
    with closing(connect(database)) as connection:
        lanes = [ORDERED, RENAMED]
        script = print_sql(connection.dialect, lanes)
        assert script == print_sql(connection.dialect, lanes, connection)
        init_db(connection, [PLAIN])
        for sql in print_sql(connection.dialect, lanes, connection).split(";\n"):
            if sql.strip():
                connection.execute(sql)
        for lane in lanes:
            verify(connection, lane)
        assert print_sql(connection.dialect, lanes, connection).startswith("-- nothing to create or change")


def test_columns_that_are_named_otherwise_are_read_by_it(database: Database) -> None:
    """`columns` renames what the partition is made of, and itself; also where the table was there before."""
    with closing(connect(database)) as connection:
        init_db(connection, [RENAMED])
        wanted = [RENAMED.columns.get(name, name) for name in COLUMNS]
        assert columns(connection, "messages") == [*wanted, "part"]
        before = replace(RENAMED, name="older", ordering="none")
        init_db(connection, [before])
        verify(connection, before)
        init_db(connection, [replace(before, ordering="room")])
        assert columns(connection, "older") == [*wanted, "part"]


def test_a_column_of_the_users_own_is_not_taken_for_ours(mysql_url: str) -> None:
    """Nothing would fill it."""
    text = f"{{database: {{url: '{mysql_url}'}}, lanes: {{room_outbox: {{enabled: false}}}}}}"
    with closing(connect(parse(text, {}, "the test").database)) as connection:
        init_db(connection, [PLAIN])
        connection.execute("ALTER TABLE room_outbox ADD COLUMN room_partition INT NULL, ADD KEY rooms (room_id)")
        with pytest.raises(StoreRefused, match=r"room_partition is not generated.*index rooms is on \(room_id\)"):
            init_db(connection, [ORDERED])


@pytest.mark.parametrize(
    "name",
    ["room-{}", "{}", "{:08d}", "live:{}:main", "房间{}", "uuid4", "uuid1"],
)
def test_rooms_spread_evenly_over_the_partitions(database: Database, name: str) -> None:
    """A partition is one worker's: one with a multiple of the rest would be the lane's speed."""
    random_names = {"uuid4": uuid.uuid4, "uuid1": uuid.uuid1}
    with closing(connect(database)) as connection:
        init_db(connection, [ORDERED])
        rooms = [str(random_names[name]()) if name in random_names else name.format(n) for n in range(1000)]
        insert(connection, [("", f"e{number}", room) for number, room in enumerate(rooms)])
        found = Counter(numbers(connection))
        assert set(found) == set(range(PARTITIONS))
        assert max(found.values()) < 3 * 1000 / PARTITIONS


def test_events_without_a_room_spread_by_their_ids_and_tenants_apart(database: Database) -> None:
    """They are not ordered, so they need not queue behind each other; rooms of two tenants are two rooms."""
    with closing(connect(database)) as connection:
        init_db(connection, [ORDERED])
        insert(connection, [("", f"e{number}", "") for number in range(500)])
        assert len(Counter(numbers(connection))) > PARTITIONS / 2
        connection.execute("DELETE FROM room_outbox")
        insert(connection, [(f"app-{number}", "e", "room-1") for number in range(500)])
        assert len(Counter(numbers(connection))) > PARTITIONS / 2


def test_a_room_of_blanks_is_a_room(database: Database) -> None:
    """MySQL holds '' and ' ' for equal; the relay does not, and a room's events belong together."""
    with closing(connect(database)) as connection:
        init_db(connection, [ORDERED])
        insert(connection, [("", f"e{number}", " ") for number in range(50)])
        assert len(set(numbers(connection))) == 1
