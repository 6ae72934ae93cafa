"""An older room worker's table, migrated in place: what becomes of its rows. MySQL and MariaDB only."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from outboxd.config.schema import Database
from outboxd.config.urls import parse_database
from outboxd.errors import StoreRefused
from outboxd.store import connect, open_store
from outboxd.store.api import ZERO, Want
from outboxd.store.migrate import init_db, patient, print_sql, verify
from tests.integration.older import INSERT, LANE, Older, assert_kept, content, fill
from tests.services import mariadb


@pytest.fixture
def older(mysql_url: str) -> Iterator[Older]:
    """An empty database to make an older table in."""
    with closing(mariadb.connect(mysql_url)) as link:
        yield Older(mysql_url, link, Database(url=mysql_url, **parse_database(mysql_url)))


@pytest.mark.parametrize(
    ("kind", "charset", "stored"),
    [
        ("TEXT", "utf8mb3", "Grüße"), ("LONGTEXT", "utf8mb4", "Grüße 🚀"), ("TEXT", "latin1", "Grüße"),
        ("JSON", "utf8mb4", '{"a": "ü🚀"}'), ("BLOB", "utf8mb4", b"\x00\xff\xfe'"), ("VARBINARY(9)", "latin1", b"\xff"),
    ],
)  # fmt: skip
def test_an_envelope_keeps_its_bytes(older: Older, kind: str, charset: str, stored: str | bytes) -> None:
    """Receivers verify signatures over these bytes; a text's are those of UTF-8, whatever it was stored in."""
    older.create(kind, charset)
    older.insert("e", stored)
    older.migrate()
    raw = stored.encode() if isinstance(stored, str) else stored
    assert older.run("SELECT envelope FROM room_outbox") == [(raw,)]
    assert ("`envelope` longblob" in str(older.make())) == (kind in {"LONGTEXT", "JSON"}), "what fitted still does"
    older.insert("e2", stored)
    assert older.run("SELECT envelope FROM room_outbox WHERE event_id = 'e2'") == [(raw,)]


def test_unknown_statuses_are_listed_and_nothing_is_changed(older: Older) -> None:
    """Whether `parked` may be published is nothing that a program can know."""
    older.create()
    for number, status in enumerate(("pending", "parked", "parked", "", "published")):
        older.insert(f"e{number}", status=status)
    before = older.make(), content(older)
    with pytest.raises(StoreRefused) as refused:
        older.migrate()
    assert "status holds 'parked' (2 rows), '' (1 rows): set these rows to pending, retryable" in str(refused.value)
    assert "nothing was changed" in str(refused.value)
    assert (older.make(), content(older)) == before
    older.run("UPDATE room_outbox SET status = 'failed' WHERE status IN ('parked', '')")
    older.migrate()


def test_duplicates_are_listed_and_nothing_is_changed(older: Older) -> None:
    """Two rows with one event_id: receivers would take one of them for the other. Nothing is ever deleted here."""
    older.create()
    older.run("ALTER TABLE room_outbox DROP KEY uk_event")
    for event_id in ("a", "b", "b", "B"):
        older.insert(event_id)
    older.insert("b", app_code="other")
    before = older.make(), content(older)
    with pytest.raises(StoreRefused, match=r"is not unique within its app_code: 'b' \(app_code '', 2 rows\): "):
        older.migrate()
    assert (older.make(), content(older)) == before
    older.run("DELETE FROM room_outbox WHERE id = 2")
    older.migrate()


def test_everything_in_the_way_is_told_at_once(older: Older) -> None:
    """Nobody wants to find the second obstacle after an hour spent on the first."""
    older.create()
    older.run("ALTER TABLE room_outbox MODIFY room_id TEXT NOT NULL, MODIFY event_id VARCHAR(64) NULL")
    older.insert("a", room_id="x" * 65)
    older.run(
        "INSERT INTO room_outbox (event_type, room_id, envelope, status, created_at_ms) VALUES ('t','r','','odd',1)"
    )
    with pytest.raises(StoreRefused) as refused:
        older.migrate()
    for part in ("'odd' (1 rows)", "event_id is NULL in 1 rows", "room_id is longer than its column will be in 1 rows"):
        assert part in str(refused.value)


def test_an_older_producer_may_go_on_writing_null(older: Older) -> None:
    """A producer that is not changed must not fail: its transaction is a customer's order. NULL becomes the default."""
    older.create()
    older.migrate()
    older.run(INSERT, ("e", "{}", 7))
    older.run(
        "INSERT INTO room_outbox (event_id, event_type, room_id, envelope, lock_until_ms, next_retry_at_ms, "
        "created_at_ms, updated_at_ms, last_error) VALUES ('f', 't', 'r', '{}', NULL, NULL, 7, NULL, NULL)"
    )
    sql = "SELECT worker_id, lock_until_ms, next_retry_at_ms, updated_at_ms, due_at_ms FROM room_outbox"
    assert older.run(sql) == [("", 0, 0, 0, 9007199254740991)] * 2
    assert any("the trigger room_outbox_nulls turns NULLs" in line for line in older.said)
    older.run("DROP TRIGGER room_outbox_nulls")
    older.run(INSERT.replace("worker_id, ", "").replace("NULL, ", ""), ("g", "{}", 7))
    older.migrate()
    assert older.said == ["room_outbox: nothing to do, it has version 1"], "dropping it is nothing to be mended"


def test_what_is_the_users_own_stays(older: Older) -> None:
    """Further columns, their values, further indexes, wider keys, dates that a strict server would not take."""
    older.create()
    older.run("ALTER TABLE room_outbox MODIFY room_id VARCHAR(200) NOT NULL, ADD KEY own (shard)")
    older.run("SET SESSION sql_mode = ''")
    older.insert("é-1", room_id="r" * 200, shard=3, seen="0000-00-00 00:00:00")
    older.migrate()
    sql = "SELECT event_id, room_id, shard, CAST(seen AS CHAR) FROM room_outbox"
    assert older.run(sql) == [("é-1", "r" * 200, 3, "0000-00-00 00:00:00")]
    assert "KEY `own`" in str(older.make())
    assert "KEY `uk_event`" in str(older.make())


def test_a_refused_trigger_names_the_right_that_is_missing(older: Older) -> None:
    """Schema users often may not make triggers; nothing has been changed by then."""
    older.create()
    older.insert("a")
    name = older.database.name
    older.run(f"CREATE USER '{name}'@'%' IDENTIFIED BY 'secret'")
    try:
        older.run(f"GRANT SELECT, INSERT, UPDATE, CREATE, ALTER, INDEX ON {name}.* TO '{name}'@'%'")
        address = older.url.rsplit("@", 1)[-1]
        url = f"mysql://{name}:secret@{address}"
        before = older.make()
        with closing(connect(patient(Database(url=url, **parse_database(url))))) as connection:
            with pytest.raises(StoreRefused, match=r"grant TRIGGER .* make these columns NOT NULL yourself"):
                init_db(connection, [LANE])
            assert older.make() == before
            nullable = "worker_id VARCHAR(128), lock_until_ms BIGINT, next_retry_at_ms BIGINT, updated_at_ms BIGINT"
            changes = ", ".join(f"MODIFY {column} NOT NULL" for column in nullable.split(", "))
            older.run(
                "UPDATE room_outbox SET worker_id = '', lock_until_ms = 0, next_retry_at_ms = 0, updated_at_ms = 0"
            )
            older.run(f"ALTER TABLE room_outbox {changes}")
            init_db(connection, [LANE])
            verify(connection, LANE)
    finally:
        older.run(f"DROP USER '{name}'@'%'")


def test_the_printed_sql_migrates_as_well(older: Older) -> None:
    """--print against a database shows what that one needs; a person may run it."""
    older.create()
    fill(older, 100)
    before = content(older)
    with closing(connect(patient(older.database))) as connection:
        script = print_sql("mysql", [LANE], connection)
    older.run("SET SESSION sql_mode = 'STRICT_ALL_TABLES'")
    for sql in script.split(";\n"):
        if sql.strip():
            older.run(sql)
    assert_kept(older, before)
    older.migrate()
    assert older.said == ["room_outbox: nothing to do, it has version 1"]


@pytest.mark.parametrize(
    ("columns", "claimed"),
    [
        ({"status": "pending"}, "usual"), ({"status": "retryable", "next_retry_at_ms": 5, "retry_count": 3}, "usual"),
        ({"status": "retryable", "next_retry_at_ms": 9_999_999_999_999}, ""), ({"status": "published"}, ""),
        ({"status": "delivering", "worker_id": "old", "lock_until_ms": 9_999_999_999_999}, ""),
        ({"status": "delivering", "worker_id": "old", "lock_until_ms": 5}, "suspect"),
        ({"status": "delivering", "worker_id": "old", "lock_until_ms": None}, "suspect"), ({"status": "failed"}, ""),
    ],
)  # fmt: skip
def test_a_migrated_row_is_relayed_as_its_status_says(older: Older, columns: dict[str, object], claimed: str) -> None:
    """G1 and G2: nothing is stuck, and what an older worker holds is waited for."""
    older.create()
    older.insert("e", '{"a":1}', **columns)
    older.migrate()
    with closing(open_store(older.database, LANE)) as store:
        want = Want(
            token=5,
            worker_id="node/room_outbox-01",
            lease_ms=30_000,
            limit=10,
            budget_bytes=1000,
            max_event_bytes=1000,
            idle=True,
        )
        _, claim = store.exchange((), want, ZERO)
    assert [event.envelope for event in claim.events] == ([b'{"a":1}'] if claimed else [])
    assert claim.suspect == (claimed == "suspect")
    said = any("under a running lease: an older worker may be alive" in line for line in older.said)
    assert said == (columns["status"] == "delivering" and columns["lock_until_ms"] == 9_999_999_999_999)
