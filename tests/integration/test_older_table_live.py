"""An older table migrated while its producers go on, killed in the middle, or kept from it. MySQL and MariaDB only."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest

from outboxd.config.schema import Database
from outboxd.config.urls import parse_database
from outboxd.errors import StoreRefused
from outboxd.store import connect
from outboxd.store.connection import Connection
from outboxd.store.migrate import init_db, patient, verify
from outboxd.store.migrate_mysql import Patience
from tests.integration.older import LANE, Older, Producer, assert_kept, content, fill
from tests.services import mariadb
from tests.services.wait import wait_for


@pytest.fixture
def older(mysql_url: str) -> Iterator[Older]:
    """An empty database to make an older table in."""
    with closing(mariadb.connect(mysql_url)) as link:
        yield Older(mysql_url, link, Database(url=mysql_url, **parse_database(mysql_url)))


def test_a_large_table_is_migrated_under_load_without_losing_a_row_or_an_insert(older: Older) -> None:
    """G1: producers cannot be stopped for it; what they commit before, meanwhile and after is all there."""
    older.create()
    fill(older, 100_000)
    before = content(older)
    begun_s = time.monotonic()
    with Producer(older.url, "a") as first, Producer(older.url, "b") as second:
        older.migrate()
        took_s = time.monotonic() - begun_s
        so_far = len(first.written)
        wait_for(lambda: len(first.written) > so_far + 50 or first.error, 10, "inserts after the migration")
    assert (first.error, second.error) == (None, None)
    longest_s = max(first.longest_s, second.longest_s)
    print(f"\n100,000 rows in {took_s:.1f} s, {so_far} inserts of one producer, the longest took {longest_s:.2f} s")
    for line in older.said:
        print("  ", line)
    assert_kept(older, before)
    written = {*first.written, *second.written}
    rows = older.run(
        "SELECT event_id, status, due_at_ms FROM room_outbox WHERE room_id = 'room-1' AND app_code = 'app'"
    )
    assert {row[0] for row in rows} == written
    assert {row[1:] for row in rows} == {("pending", 9007199254740991)}
    assert longest_s < took_s, "inserts went on beside most of the work"
    assert any("stop its older workers first" in line for line in older.said)
    assert any("INSERTs wait meanwhile, about" in line for line in older.said)
    assert any(
        "idx_due (status, next_retry_at_ms, created_at_ms) makes every claim slower" in line for line in older.said
    )
    older.migrate()
    assert older.said == ["room_outbox: nothing to do, it has version 1"]


SCRIPT = """import sys
from contextlib import closing
from outboxd.config.schema import Database, Lane
from outboxd.config.urls import parse_database
from outboxd.store import connect
from outboxd.store.migrate import init_db, patient
with closing(connect(patient(Database(url=sys.argv[1], **parse_database(sys.argv[1]))))) as connection:
    print("go", flush=True)
    init_db(connection, [Lane(name="room_outbox")], lambda line: print(line, flush=True))
"""


def test_an_init_db_that_is_killed_anywhere_is_run_again_and_ends_well(older: Older) -> None:
    """A deployment's time-out, an evicted pod: whatever step it was in, the rows are whole and the next run goes on."""
    older.create()
    fill(older, 30_000)
    before = content(older)
    choose = random.Random(5)
    killed = 0
    for _ in range(8):
        command = [sys.executable, "-c", SCRIPT, older.url]
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()}
        )
        with child:
            assert child.stdout is not None
            child.stdout.readline()
            try:
                child.wait(choose.uniform(0.02, 0.3))
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
                killed += 1
        assert set(content(older)) == set(before)
    assert killed >= 3, "it must have been killed in the middle"
    older.migrate(Patience(queue_s=60))
    assert_kept(older, before)


@pytest.mark.parametrize("stop_after", range(17))
def test_an_init_db_that_ends_between_any_two_steps_goes_on(older: Older, stop_after: int) -> None:
    """The same without luck: before each statement that changes something."""
    older.create()
    fill(older, 50)
    before = content(older)

    class Ended(Exception):
        pass

    class Ending:
        """A connection whose process ends after so many changes."""

        def __init__(self, connection: Connection) -> None:
            self._connection, self._left = connection, stop_after

        def __getattr__(self, name: str) -> object:
            return getattr(self._connection, name)

        def execute(self, sql: str, params: Mapping[str, object] = {}) -> int:
            if not sql.startswith("SET SESSION"):
                if self._left == 0:
                    raise Ended
                self._left -= 1
            return self._connection.execute(sql, params)

    connection = connect(patient(older.database))
    try:
        init_db(Ending(connection), [LANE])  # type: ignore[arg-type]  # all else is the real one's
    except Ended:
        pass
    connection.close()
    older.migrate()
    assert_kept(older, before)


def test_what_producers_write_between_check_and_change_is_mended(older: Older) -> None:
    """A service that publishes by itself may write `published` just after the rows were mended."""
    older.create()
    older.insert("a")

    class Interfering:
        """A connection beside which somebody else writes."""

        def __init__(self, connection: Connection) -> None:
            self._connection, self._left = connection, 2

        def __getattr__(self, name: str) -> object:
            return getattr(self._connection, name)

        def execute(self, sql: str, params: Mapping[str, object] = {}) -> int:
            if sql.startswith("ALTER") and sql.endswith("LOCK=SHARED") and self._left:
                self._left -= 1
                older.insert(f"late-{self._left}", status="published", last_error="x" * 600)
            return self._connection.execute(sql, params)

    with closing(connect(patient(older.database))) as connection:
        init_db(Interfering(connection), [LANE])  # type: ignore[arg-type]  # all else is the real one's
        verify(connection, LANE)
    rows = older.run("SELECT event_id, status, CHAR_LENGTH(last_error) FROM room_outbox ORDER BY id")
    assert rows == [("a", "pending", None), ("late-1", "delivered", 512), ("late-0", "delivered", 512)]


def test_a_long_transaction_delays_init_db_and_not_the_producers(older: Older) -> None:
    """An ALTER that waits for a dump makes every INSERT wait behind it: so it gives up soon, and lets them pass."""
    older.create()
    older.insert("a")
    with closing(mariadb.connect(older.url)) as dump, Producer(older.url, "p") as producer:
        dump.autocommit(False)
        dump.cursor().execute("SELECT COUNT(*) FROM room_outbox")
        with pytest.raises(StoreRefused, match=r"by a transaction at each of 2 tries.*INNODB_TRX lists them"):
            older.migrate(Patience(lock_wait_s=1, pause_s=0.2, attempts=2))
        assert "room_outbox: a transaction holds the table, trying again every 0.2 s" in older.said
        assert producer.longest_s < 2.5
        threading.Timer(1.5, dump.rollback).start()
        older.migrate(Patience(lock_wait_s=1, pause_s=0.2))
    assert producer.error is None
    assert older.run("SELECT COUNT(*) FROM room_outbox") == [(1 + len(producer.written),)]


def test_a_second_init_db_waits_and_then_says_who_is_at_work(older: Older) -> None:
    """Two that alter one table would undo each other's checks."""
    older.create()
    begun, go_on = threading.Event(), threading.Event()

    def report(line: str) -> None:
        begun.set()
        go_on.wait(30)

    def run() -> None:
        with closing(connect(patient(older.database))) as connection:
            init_db(connection, [LANE], report)

    first = threading.Thread(target=run)
    first.start()
    assert begun.wait(30)
    with pytest.raises(StoreRefused, match=r"another init-db is at work in this database \(connection \d+"):
        older.migrate(Patience(queue_s=1))
    go_on.set()
    older.migrate(Patience(queue_s=30))
    first.join(30)
    assert older.said == ["room_outbox: nothing to do, it has version 1"]
