"""The database goes away under load, and comes back (G10): nothing is lost, and nothing is charged to an event."""

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.services.daemon import Daemon, write_config
from tests.services.find import require
from tests.services.lanes import table_of
from tests.services.mariadb import Server
from tests.services.slow_receiver import SlowReceiver

EVENTS = 1500
WORKERS = 2


@pytest.mark.parametrize("how", ["killed", "restarted", "frozen"])
def test_a_database_that_goes_away_under_load_loses_nothing(
    mysql_server: Server, mysql_url: str, tmp_path: Path, how: str
) -> None:
    """G1, G8, G10: workers stay alive, settle by token when it is back, and go on; nothing arrives twice.

    The outage is shorter than a lease: outcomes that could not be written are written on the next connection.
    """
    pid = require("private-mysql", getattr(mysql_server, "pid", None), "the database server is not a process of ours")
    with SlowReceiver(7, 0.05) as receiver:
        config = write_config(
            tmp_path / "outbox.yaml",
            mysql_url,
            {"web": {"type": "http", "url": receiver.url, "connections": 8}},
            concurrency=WORKERS,
            batch_size=50,
            publish_timeout="1s",
            lease="30s",
            database={"statement_timeout": "2s", "connect_timeout": "1s"},
        )
        with table_of(config) as table:
            ids = table.fill(EVENTS)
        with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            daemon.wait_until(lambda: len(receiver.requests) >= 200, "some load")
            if how == "frozen":
                os.kill(pid, signal.SIGSTOP)
            elif how == "killed":
                mysql_server.kill()
            else:
                mysql_server.stop()
            daemon.wait_for("database_unavailable", WORKERS)
            os.kill(pid, signal.SIGCONT) if how == "frozen" else mysql_server.start()
            with table_of(config) as table:
                daemon.wait_until(table.is_done, "everything to be delivered", timeout_s=40)
                rows = table.rows()
            daemon.wait_for("database_available", len(daemon.lines("database_unavailable")))
            daemon.drain(1.0)
            assert len(daemon.lines("worker_started")) == WORKERS, "no worker died of it"
            assert len(daemon.lines("database_unavailable")) == len(daemon.lines("database_available"))
            assert len(daemon.lines("database_unavailable")) <= 3 * WORKERS, "one line for each change of state"
    assert {(row["status"], row["retry_count"]) for row in rows} == {("delivered", 0)}
    assert Counter(receiver.event_ids()) == Counter(ids)


def test_a_database_that_is_away_at_the_start_is_waited_for(
    mysql_server: Server, mysql_url: str, tmp_path: Path
) -> None:
    """G10: up, not refused, one line, and at work as soon as it is there."""
    require("private-mysql", getattr(mysql_server, "pid", None), "the database server is not a process of ours")
    config = write_config(tmp_path / "outbox.yaml", mysql_url, {"nothing": {"type": "null"}}, concurrency=WORKERS)
    with table_of(config) as table:
        table.fill(100)
    mysql_server.stop()
    with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
        daemon.wait_for("database_unavailable", WORKERS)
        until_s = time.monotonic() + 1.5
        daemon.wait_until(lambda: time.monotonic() > until_s, "a few attempts")
        mysql_server.start()
        with table_of(config) as table:
            daemon.wait_until(table.is_done, "everything to be delivered")
        assert len(daemon.lines("database_unavailable")) == WORKERS
        assert len(daemon.lines("worker_started")) == WORKERS
        daemon.drain(3.0)


@pytest.mark.parametrize("columns", [{}, {"next_retry_at_ms": 1}])
def test_a_session_that_an_administrator_kills_is_replaced(
    mysql_url: str, tmp_path: Path, columns: dict[str, object]
) -> None:
    """G10: again and again, under load, fresh rows and due ones: a claim in doubt is looked up, an outcome repeated."""
    with SlowReceiver(8, 0.02) as receiver:
        config = write_config(
            tmp_path / "outbox.yaml",
            mysql_url,
            {"web": {"type": "http", "url": receiver.url, "connections": 8}},
            concurrency=WORKERS,
            batch_size=20,
            lease="30s",
        )
        with table_of(config) as table:
            own = table.connection.query("SELECT CONNECTION_ID()")[0][0]
            database = config.database.name
            ids = table.fill(800, **columns)
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                for step in range(1, 8):
                    daemon.wait_until(lambda n=100 * step: len(receiver.requests) >= n, "requests")  # type: ignore[misc]
                    for (session,) in table.connection.query(
                        f"SELECT id FROM information_schema.processlist WHERE db = '{database}' AND id <> {own}"
                    ):
                        table.connection.execute(f"KILL {int(session)}")
                daemon.wait_until(table.is_done, "everything to be delivered")
                assert daemon.lines("database_unavailable"), "no session was killed"
                assert len(daemon.lines("worker_started")) == WORKERS
            rows = table.rows()
    assert {(row["status"], row["retry_count"]) for row in rows} == {("delivered", 0)}
    assert Counter(receiver.event_ids()) == Counter(ids)
