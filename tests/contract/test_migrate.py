"""Creating and checking the tables, on every kind of database. Older ones: tests/integration/test_older_table.py."""

import threading
from collections.abc import Callable, Sequence
from contextlib import closing

import pytest

from outboxd.config.schema import COLUMNS, Database, Lane
from outboxd.errors import StoreError, StoreRefused
from outboxd.store import connect
from outboxd.store.connection import NO_PARAMS, Connection, Params, Row
from outboxd.store.migrate import create_missing, init_db, print_sql, verify
from outboxd.store.statements import NOW

LANE = Lane(name="room_outbox")
ROBOT = Lane(name="room_robot_outbox")
RENAMED = Lane(name="messages", columns={"event_id": "message_id", "updated_at_ms": "changed_ms", "status": "state"})


def test_the_tables_are_made_as_the_design_has_them(database: Database) -> None:
    """Producers, other languages and dashboards rely on these names; outboxd on nothing else."""
    with closing(connect(database)) as connection:
        init_db(connection, [LANE, ROBOT])
        for lane in (LANE, ROBOT):
            assert _columns(connection, lane.name) == list(COLUMNS)
            verify(connection, lane)
        assert _columns(connection, "outboxd_schema") == ["lane", "version"]
        assert _columns(connection, "outboxd_lane") == [
            "lane",
            "paused",
            "paused_by",
            "last_cleanup_ms",
            "updated_at_ms",
        ]
        rows = connection.query("SELECT lane, paused FROM outboxd_lane ORDER BY lane")
        assert [tuple(row) for row in rows] == [("room_outbox", 0), ("room_robot_outbox", 0)]


def test_a_producer_that_knows_five_columns_writes_a_fresh_event(database: Database) -> None:
    """G12: what it leaves out has a default, and the time is the server's in UTC, whatever zone the session is in."""
    with closing(connect(database)) as connection:
        init_db(connection, [LANE])
        if connection.dialect == "mysql":
            connection.execute("SET SESSION time_zone = '-08:00'")
        connection.execute(
            "INSERT INTO room_outbox (event_id, event_type, room_id, app_code, envelope) "
            "VALUES ('e', 't', 'r', '', :data)",
            {"data": b"\x00\xff"},
        )
        sql = f"SELECT status, due_at_ms, envelope, {NOW[connection.dialect]} - created_at_ms FROM room_outbox"
        status, due, envelope, age_ms = connection.query(sql)[0]
        assert (status, due, envelope) == ("pending", 9007199254740991, b"\x00\xff")
        assert 0 <= age_ms < 60_000


@pytest.mark.parametrize(
    ("status", "next_retry_at_ms", "due"),
    [
        ("pending", 0, 9007199254740991), ("pending", 5, 5), ("delivering", 0, 9007199254740991),
        ("retryable", 7, 7), ("delivered", 7, -1), ("failed", 7, -2),
    ],
)  # fmt: skip
def test_the_due_time_follows_from_status_and_retry_time(
    database: Database, status: str, next_retry_at_ms: int, due: int
) -> None:
    """The claim's whole query rests on it, in every dialect alike."""
    with closing(connect(database)) as connection:
        init_db(connection, [LANE])
        connection.execute(
            "INSERT INTO room_outbox (event_id, event_type, room_id, envelope, status, next_retry_at_ms) "
            "VALUES ('e', 't', 'r', '', :status, :next)",
            {"status": status, "next": next_retry_at_ms},
        )
        assert connection.query("SELECT due_at_ms FROM room_outbox")[0][0] == due


def test_a_second_run_changes_nothing_and_says_so(database: Database) -> None:
    """Deployments run init-db every time."""
    said: list[str] = []
    with closing(connect(database)) as connection:
        init_db(connection, [LANE, ROBOT], said.append)
        assert "room_outbox: created, it has version 1" in said
        before = _everything(connection)
        said.clear()
        init_db(connection, [LANE, ROBOT], said.append)
        assert said == [
            "room_outbox: nothing to do, it has version 1",
            "room_robot_outbox: nothing to do, it has version 1",
        ]
        assert _everything(connection) == before


def test_the_printed_sql_makes_the_same_tables(database: Database) -> None:
    """--print is for those who may not let a program change their schema."""
    with closing(connect(database)) as connection:
        lanes = [LANE, RENAMED]
        script = print_sql(connection.dialect, lanes)
        assert script == print_sql(connection.dialect, lanes, connection), "an empty database needs all of it"
        for sql in script.split(";\n"):
            if sql.strip():
                connection.execute(sql)
        for lane in lanes:
            verify(connection, lane)
        said: list[str] = []
        init_db(connection, lanes, said.append)
        assert said == ["room_outbox: nothing to do, it has version 1", "messages: nothing to do, it has version 1"]
        assert print_sql(connection.dialect, lanes, connection).startswith("-- nothing to create or change")


def test_a_lane_may_name_its_columns_otherwise(database: Database) -> None:
    """`columns` maps our names to the table's, in the generated column and the indexes, too; in this table alone."""
    with closing(connect(database)) as connection:
        init_db(connection, [RENAMED])
        verify(connection, RENAMED)
        wanted = [RENAMED.columns.get(name, name) for name in COLUMNS]
        assert _columns(connection, "messages") == wanted
        assert _columns(connection, "outboxd_lane")[-1] == "updated_at_ms"
        with pytest.raises(StoreRefused, match="has no column event_id, status, updated_at_ms: run `outboxd init-db`"):
            verify(connection, Lane(name="messages"))


def test_a_missing_table_is_refused_with_the_remedy(database: Database) -> None:
    """G10: a worker that finds no table ends with one line that says what to do."""
    with (
        closing(connect(database)) as connection,
        pytest.raises(StoreRefused, match="the table room_outbox does not exist: run `outboxd init-db`"),
    ):
        verify(connection, LANE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE outboxd_schema SET version = 0", "is of version 0 and version 1 is needed: run `outboxd init-db`"),
        ("DELETE FROM outboxd_schema", "is of an init-db that did not end .* run `outboxd init-db`"),
        (
            "UPDATE outboxd_schema SET version = 2",
            "has version 2 and this outboxd knows 1: use",
        ),
        ("{drop_due}", "has no index.* due.*: run `outboxd init-db`"),
        ("{drop_event}", "has no unique index of app_code and event_id: run `outboxd init-db`"),
        ("DROP TABLE outboxd_lane", "has no outboxd_lane beside it: run `outboxd init-db`"),
    ],
)
def test_what_is_not_as_needed_is_refused(database: Database, change: str, message: str) -> None:
    """G10: a worker must not claim without the index, nor from a table that an init-db has half migrated."""
    with closing(connect(database)) as connection:
        init_db(connection, [LANE])
        is_mysql = connection.dialect == "mysql"
        for name in ("due", "event"):
            drop = f"ALTER TABLE room_outbox DROP INDEX {name}" if is_mysql else f"DROP INDEX room_outbox_{name}"
            change = change.replace(f"{{drop_{name}}}", drop)
        connection.execute(change)
        with pytest.raises(StoreRefused, match=message):
            verify(connection, LANE)
        if "version 2" in message:
            return
        init_db(connection, [LANE])
        verify(connection, LANE)


def test_a_table_of_a_newer_outboxd_is_left_alone(database: Database) -> None:
    """After a roll-back of the program the table is newer than it."""
    with closing(connect(database)) as connection:
        init_db(connection, [LANE])
        connection.execute("UPDATE outboxd_schema SET version = 2")
        with pytest.raises(StoreRefused, match="has version 2 and this outboxd knows 1"):
            init_db(connection, [LANE])
        assert connection.query("SELECT version FROM outboxd_schema")[0][0] == 2


def test_only_sqlite_gets_its_tables_from_the_daemon(database: Database) -> None:
    """On MySQL the daemon's user needs no right to create anything."""
    with closing(connect(database)) as connection:
        create_missing(connection, [LANE])
        if connection.dialect == "sqlite":
            verify(connection, LANE)
        else:
            assert _columns(connection, "room_outbox") == []


def test_a_table_of_the_users_own_gets_what_it_lacks(database: Database) -> None:
    """An application with an outbox of its own keeps its columns and rows; outboxd's bookkeeping is added."""
    lane = Lane(name="outbox", columns={"event_id": "uuid", "envelope": "payload", "event_type": "kind"})
    text, blob = ("VARCHAR(64)", "LONGBLOB") if database.scheme == "mysql" else ("TEXT", "BLOB")
    with closing(connect(database)) as connection:
        key = "BIGINT AUTO_INCREMENT PRIMARY KEY" if database.scheme == "mysql" else "INTEGER PRIMARY KEY"
        connection.execute(
            f"CREATE TABLE outbox (id {key}, uuid {text} NOT NULL, kind {text} NOT NULL, room_id {text} NOT NULL, "
            f"payload {blob} NOT NULL, shard INTEGER NULL)"
        )
        connection.execute(
            "INSERT INTO outbox (uuid, kind, room_id, payload, shard) VALUES ('u', 'k', 'r', :data, 7)", {"data": b"{}"}
        )
        with pytest.raises(StoreRefused, match=r"has no column.* run `outboxd init-db`"):
            verify(connection, lane)
        init_db(connection, [lane])
        verify(connection, lane)
        row = connection.query("SELECT id, uuid, payload, shard, status, created_at_ms, due_at_ms FROM outbox")[0]
        assert tuple(row) == (1, "u", b"{}", 7, "pending", 0, 9007199254740991), "its creation is unknown: 0"


def test_a_column_that_cannot_be_guessed_is_asked_for(database: Database) -> None:
    """Which column of a foreign table holds the payload is for a person to say."""
    key = "BIGINT AUTO_INCREMENT PRIMARY KEY" if database.scheme == "mysql" else "INTEGER PRIMARY KEY"
    with closing(connect(database)) as connection:
        connection.execute(f"CREATE TABLE outbox (id {key}, event_id VARCHAR(64), event_type VARCHAR(64), body BLOB)")
        with pytest.raises(StoreRefused, match=r"no column.* (envelope|room_id)") as refused:
            init_db(connection, [Lane(name="outbox")])
        assert "`columns`" in str(refused.value)
        with pytest.raises(StoreRefused, match=r"no column .*contents"):
            init_db(connection, [Lane(name="outbox", columns={"envelope": "contents", "room_id": "body"})])
        assert len(_columns(connection, "outbox")) == 4, "nothing was changed"


def test_two_at_once_make_the_tables_once(database: Database) -> None:
    """All pods of a deployment start init-db together."""
    errors: list[StoreError] = []

    def run() -> None:
        try:
            with closing(connect(database)) as connection:
                init_db(connection, [LANE, ROBOT])
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    with closing(connect(database)) as connection:
        verify(connection, LANE)
        verify(connection, ROBOT)


class OldServer:
    """A server that tells a version; nothing else is asked of one that is too old."""

    dialect = "mysql"

    def __init__(self, version: str) -> None:
        self._version = version

    def query(self, sql: str, params: Params = NO_PARAMS) -> Sequence[Row]:
        assert sql == "SELECT VERSION()", sql
        return [(self._version,)]

    def execute(self, sql: str, params: Params = NO_PARAMS) -> int:
        raise AssertionError(sql)

    begin = commit = rollback = ping = close = lambda self: None


@pytest.mark.parametrize("act", [lambda c: verify(c, LANE), lambda c: init_db(c, [LANE])], ids=["verify", "init_db"])
@pytest.mark.parametrize(
    "version", ["5.7.44-log", "8.0.0-dmr", "10.5.23-MariaDB-1:10.5.23+maria~deb11", "5.5.68-MariaDB"]
)
def test_a_server_that_cannot_skip_locked_rows_is_refused(version: str, act: Callable[[Connection], None]) -> None:
    """G10: without SKIP LOCKED every claim would fail, one error after the other."""
    with pytest.raises(StoreRefused, match=r"it must be at least MySQL 8\.0\.1 or MariaDB 10\.6\.0"):
        act(OldServer(version))


def test_a_server_without_expression_defaults_gets_the_constant() -> None:
    """MySQL 8.0.1 to 8.0.12: an event's creation is unknown there unless the producer writes it."""
    assert "created_at_ms BIGINT NOT NULL DEFAULT (TIMESTAMPDIFF" in print_sql("mysql", [LANE])
    older = print_sql("mysql", [LANE], Empty("8.0.12"))
    assert "created_at_ms BIGINT NOT NULL DEFAULT 0" in older
    assert "DEFAULT (TIMESTAMPDIFF" not in older


class Empty(OldServer):
    """A server with an empty database."""

    def query(self, sql: str, params: Params = NO_PARAMS) -> Sequence[Row]:
        return [] if "information_schema" in sql else super().query(sql, params)


def _columns(connection: Connection, table: str) -> list[str]:
    sql = (
        "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :name "
        "ORDER BY ORDINAL_POSITION"
        if connection.dialect == "mysql"
        else "SELECT name FROM pragma_table_xinfo(:name)"
    )
    return [row[0] for row in connection.query(sql, {"name": table})]


def _everything(connection: Connection) -> list[object]:
    """The database's make, to compare."""
    if connection.dialect == "sqlite":
        return [tuple(row) for row in connection.query("SELECT name, sql FROM sqlite_master ORDER BY name")]
    names = [row[0] for row in connection.query("SHOW TABLES")]
    return [tuple(connection.query(f"SHOW CREATE TABLE {name}")[0]) for name in names]
