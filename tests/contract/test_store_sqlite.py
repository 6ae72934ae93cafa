"""What only the store on SQLite promises: its file, its columns, and what each of the library's errors means."""

import contextlib
import os
import pickle
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from outboxd.config.schema import Database, Lane
from outboxd.errors import CommitInDoubt, StoreConflict, StoreRefused, StoreUnavailable
from outboxd.store import connect, open_store
from outboxd.store.api import DELIVERED, FAILED, FRESH, RETRYABLE, ZERO, Settled, Settlement, Store, Want
from outboxd.store.sqlite import SqliteStore
from outboxd.store.sqlite_connection import SqliteConnection
from tests.contract.conftest import LANE, Table

Wants = Callable[..., Want]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """This file is about one kind of database."""
    return sqlite_url


def test_a_commit_is_on_disk(database: Database) -> None:
    """G1: in WAL mode only FULL writes the log through before a commit ends."""
    connection = SqliteConnection(database)
    assert connection.query("PRAGMA journal_mode")[0][0] == "wal"
    assert connection.query("PRAGMA synchronous")[0][0] == 2
    connection.close()


def test_the_daemon_creates_a_lane_that_is_missing(database: Database, want: Wants) -> None:
    """The embedded default works without a step before."""
    store = open_store(database, Lane(name="another_outbox"))
    assert store.exchange((), want(), ZERO)[1].events == ()
    assert store.peek(ZERO).paused is False
    store.close()


def test_workers_that_start_together_create_it_once(database: Database) -> None:
    """Each finds no table, each creates it; none fails."""
    program = (
        "import pickle, sys; from outboxd.config.schema import Lane; from outboxd.store import open_store; "
        f"open_store(pickle.load(sys.stdin.buffer), Lane(name='{LANE}')).close()"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(pickle.dumps(database))
        worker.stdin.flush()
    assert [worker.communicate(timeout=30)[1] for worker in workers] == [b""] * 4
    assert [worker.returncode for worker in workers] == [0] * 4


def test_columns_of_the_users_own_are_used(database: Database, want: Wants) -> None:
    """A table that exists already, its columns named otherwise."""
    names = {"room_id": "room", "status": "state", "due_at_ms": "due"}
    table = connect(database)
    table.execute(
        "CREATE TABLE own_outbox (id INTEGER PRIMARY KEY, app_code TEXT DEFAULT '', event_id TEXT, event_type TEXT, "
        "room TEXT, envelope BLOB, content_type TEXT DEFAULT 'x/y', headers TEXT, state TEXT DEFAULT 'pending', "
        "worker_id TEXT, claim_token INTEGER DEFAULT 0, lock_until_ms INTEGER DEFAULT 0, "
        "retry_count INTEGER DEFAULT 0, next_retry_at_ms INTEGER DEFAULT 0, published_to TEXT, last_error TEXT, "
        "created_at_ms INTEGER DEFAULT 0, updated_at_ms INTEGER, delivered_at_ms INTEGER, due INTEGER AS (CASE state "
        "WHEN 'delivered' THEN -1 WHEN 'failed' THEN -2 "
        f"ELSE IIF(next_retry_at_ms = 0, {FRESH}, next_retry_at_ms) END))"
    )
    table.execute("CREATE INDEX by_due ON own_outbox (due)")
    table.execute("CREATE TABLE outboxd_lane (lane TEXT PRIMARY KEY, paused INTEGER)")
    table.execute("INSERT INTO own_outbox (event_id, event_type, room, envelope) VALUES ('e', 't', 'r', 'text')")
    store = open_store(database, Lane(name="own_outbox", columns=names))
    (event,) = store.exchange((), want(token=5), ZERO)[1].events
    assert (event.room_id, event.envelope, event.lane) == ("r", b"text", "own_outbox")
    assert store.exchange([Settlement(event.id, 5, DELIVERED)], None, ZERO)[0].done == 1
    assert table.query("SELECT state, due FROM own_outbox") == [("delivered", -1)]
    assert store.peek(ZERO).fresh is False
    assert store.unfinished() is False
    store.close()
    table.close()


def test_a_column_that_the_table_does_not_have_is_refused(database: Database, table: Table) -> None:
    """SQLite takes an unknown name in quotes for a text: it would claim nonsense."""
    with pytest.raises(StoreRefused, match=f"{LANE} has no column rom_id"):
        open_store(database, Lane(name=LANE, columns={"room_id": "rom_id"}))


def test_a_table_of_a_newer_outboxd_is_refused(database: Database, table: Table) -> None:
    """Its columns may mean something else."""
    table.connection.execute("UPDATE outboxd_schema SET version = version + 1")
    with pytest.raises(StoreRefused, match=LANE):
        open_store(database, Lane(name=LANE))


def test_an_index_that_was_dropped_is_made_again(database: Database, table: Table, want: Wants) -> None:
    """Claims would read the whole table, or fail."""
    table.connection.execute(f"DROP INDEX {LANE}_due")
    row_id = table.insert()
    store = open_store(database, Lane(name=LANE))
    assert [event.id for event in store.exchange((), want(), ZERO)[1].events] == [row_id]
    store.close()


def test_an_exchange_that_fails_changes_nothing(store: Store, table: Table, want: Wants) -> None:
    """G1: all of its settlements stand or none, and the next exchange is not caught in what was left of it."""
    good, bad = table.insert_many(2)
    token = store.exchange((), want(), ZERO)[1].token
    before = [table.row(good), table.row(bad)]
    outcomes = [Settlement(good, token, FAILED), Settlement(bad, token, "nonsense")]
    with pytest.raises(StoreRefused):
        store.exchange(outcomes, want(), ZERO)
    assert [table.row(good), table.row(bad)] == before
    table.insert()
    assert store.exchange([Settlement(good, token, DELIVERED)], None, ZERO)[0] == Settled(done=1)


def test_another_writer_is_a_conflict(store: Store, table: Table, want: Wants, database: Database) -> None:
    """Bounded: it ends before the statement's time does, changes nothing, and the same call works later."""
    row_id = table.insert()
    quick = SqliteStore(SqliteConnection(Database(path=database.path, statement_timeout_s=0.2)), Lane(name=LANE))
    table.connection.begin()
    for call in (
        lambda: quick.exchange((), want(), ZERO),
        lambda: quick.renew(1, [row_id], 1000),
        lambda: quick.hurry([(row_id, 1)]),
    ):
        with pytest.raises(StoreConflict, match="locked"):
            call()
    assert quick.peek(ZERO).fresh, "reading goes on meanwhile"
    table.connection.rollback()
    assert [event.id for event in quick.exchange((), want(), ZERO)[1].events] == [row_id]
    quick.close()


def test_a_statement_that_takes_too_long_is_ended(database: Database) -> None:
    """G9: every statement is bounded."""
    connection = SqliteConnection(Database(path=database.path, statement_timeout_s=0.1))
    with pytest.raises(StoreUnavailable, match="interrupted"):
        connection.query("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n")
    connection.close()


def test_a_full_disk_is_away(store: Store, table: Table, want: Wants, database: Database) -> None:
    """G1, G10: nothing is changed by what did not fit, and all is well once there is room."""
    row_id = table.insert()
    small = SqliteConnection(database)
    pages = small.query("PRAGMA page_count")[0][0]
    small.query(f"PRAGMA max_page_count = {pages}")
    small.begin()
    with pytest.raises(StoreUnavailable, match="full"):
        small.execute(f"UPDATE {LANE} SET envelope = zeroblob(10000000) WHERE id = {row_id}")
    small.rollback()
    small.close()
    assert [event.id for event in store.exchange((), want(), ZERO)[1].events] == [row_id]


def test_a_file_that_became_read_only_is_away(database: Database, table: Table) -> None:
    """G10: a volume that was mounted anew; it comes back."""
    connection = SqliteConnection(database)
    connection.query("PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailable, match="readonly"):
        connection.execute(f"DELETE FROM {LANE}")
    connection.close()


def test_a_commit_that_fails_leaves_the_claim_in_doubt(
    store: Store, table: Table, want: Wants, database: Database
) -> None:
    """G1: an I/O error may have come before or after the commit's mark reached the log; here it came before."""
    rows = [*table.insert_many(200, envelope=b"x" * 1000), table.insert(envelope=b"x" * 2000)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(f"{database.path}-wal"), hard))
    try:
        with pytest.raises(CommitInDoubt, match="I/O") as raised:
            store.exchange((), want(token=8, max_event_bytes=1000, limit=500), ZERO)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.close()
    assert (raised.value.token, raised.value.ids) == (8, tuple(rows))
    again = open_store(database, Lane(name=LANE))
    assert again.held(raised.value.token, raised.value.ids) == frozenset()
    assert len(again.exchange((), want(limit=500), ZERO)[1].events) == 201
    again.close()


def test_a_damaged_file_is_refused(database: Database, table: Table, want: Wants) -> None:
    """Waiting does not mend it; a person must act."""
    table.insert_many(200, envelope=b"x" * 500)
    table.connection.query("PRAGMA wal_checkpoint(TRUNCATE)")
    table.connection.close()
    path = Path(database.path)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xaa" * (len(content) - 4096))
    with pytest.raises(StoreRefused, match="the file is damaged"):
        open_store(database, Lane(name=LANE)).exchange((), want(), ZERO)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing/outbox.db", "missing is no directory"),
        ("folder", "folder is no file"),
        ("text.txt", "text.txt.*no SQLite database"),
        (":memory:", "share"),
        ("", "share"),
    ],
)
def test_a_path_that_cannot_be_a_database_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    """The remedy is the user's; SQLite itself says "unable to open database file" to all of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.txt").write_text("not a database\n" * 100)
    with pytest.raises(StoreRefused, match=message):
        connect(Database(path=path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    """SQLite would open it and fail at the first claim."""
    path = tmp_path / "outbox.db"
    path.touch()
    path.chmod(0o444)
    with pytest.raises(StoreRefused, match="not writable"):
        connect(Database(path=str(path)))


def test_a_library_that_is_too_old_is_refused(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the version that is needed."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(StoreRefused, match=r"too old.*3\.35"):
        connect(database)


def test_text_that_is_no_utf_8_does_not_stop_the_lane(store: Store, table: Table, want: Wants) -> None:
    """G7: one producer's broken bytes must not make every claim fail."""
    with contextlib.closing(sqlite3.connect(table.connection.query("PRAGMA database_list")[0][2])) as producer:
        producer.execute(
            f"INSERT INTO {LANE} (event_id, event_type, room_id, envelope) "
            "VALUES ('a', CAST(x'ff41' AS TEXT), x'C3A9', CAST(x'ff42' AS TEXT))"
        )
        producer.commit()
    table.insert()
    first, second = store.exchange((), want(), ZERO)[1].events
    assert (first.event_type, first.room_id, first.envelope) == ("\ufffdA", "é", b"\xffB")
    assert second.event_type == "RoomCreated"


def test_settling_does_not_read_payloads_back(store: Store, table: Table, want: Wants) -> None:
    """A retry of a large event keeps it byte for byte."""
    row_id = table.insert(envelope=bytes(range(256)) * 4000)
    before = table.row(row_id)["envelope"]
    asked = want()
    store.exchange((), asked, ZERO)
    store.exchange([Settlement(row_id, asked.token, RETRYABLE, delay_ms=1)], None, ZERO)
    assert table.row(row_id)["envelope"] == before
