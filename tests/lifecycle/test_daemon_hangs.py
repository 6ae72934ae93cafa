"""Workers of the real daemon that hang, and a drain that finds something hanging."""

import os
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from outboxd.config.schema import Config
from outboxd.supervisor.loop import ONE_ASKING_S
from tests.services.daemon import DRAIN_MARGIN_S, Daemon, write_config
from tests.services.find import require
from tests.services.hanging import VARIABLE, has_hung
from tests.services.lanes import table_of
from tests.services.mariadb import Server
from tests.services.sessions import sessions
from tests.services.wait import let_pass

AT_ONCE_S = 1.0
PUBLISH_TIMEOUT_S = 0.5


@pytest.fixture
def hang(tmp_path: Path) -> Path:
    """Where the publishers of `tests.services.hanging` note that they hang."""
    directory = tmp_path / "hang"
    directory.mkdir()
    return directory


def configure(tmp_path: Path, url: str, publisher: str, workers: int, database_s: int = 1) -> Config:
    """A lane over one of those publishers. database_s: how long one may wait for the database; 1 is the least, and lets
    a silent worker be missed after eleven seconds.
    """
    return write_config(
        tmp_path / "outbox.yaml",
        url,
        {"mine": {"type": "python", "target": f"tests.services.hanging:{publisher}"}},
        concurrency=workers,
        publish_timeout=f"{int(PUBLISH_TIMEOUT_S * 1000)}ms",
        lease="3500ms",
        batch_size=1,
        database={"statement_timeout": f"{database_s}s", "connect_timeout": f"{database_s}s"},
        supervisor={"startup_timeout": "5s"},
    )


def start(tmp_path: Path, hang: Path) -> Daemon:
    """A run of the daemon that is configured there."""
    return Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log", **{VARIABLE: str(hang)})


def test_workers_that_hang_anywhere_are_shown_and_replaced(mysql_url: str, tmp_path: Path, hang: Path) -> None:
    """G8, G9: before a worker's first beat, in its loop, in C code that lets no thread run. The others go on."""
    config = configure(tmp_path, mysql_url, "HangingAtBoot", workers=4)
    with table_of(config) as table, start(tmp_path, hang) as daemon:
        for event_type, what in (("Loop", "loop"), ("C", "c")):
            table.fill(1, event_type=event_type)
            daemon.wait_until(lambda what=what: has_hung(hang, what), "one to hang")  # type: ignore[misc]
            let_pass(1.5)  # so that the dumps do not mix
        table.fill(100)
        daemon.wait_until(table.is_done, "the fourth, and who came up again, to relay everything")
        loops = daemon.wait_for("worker_hung", 3)
        assert len({line["worker"] for line in loops}) == 3
        daemon.wait_for("worker_started", 4 + 3)
        exited = daemon.lines("worker_exited")
        assert sorted(line["worker"] for line in exited) == sorted(line["worker"] for line in loops)
        assert {line["how"] for line in exited} == {"SIGABRT"}
        dumps = daemon.text().split("Fatal Python error: Aborted")[1:]
        assert len(dumps) == 3
        assert sum(" in __init__\n" in dump and "hanging.py" in dump for dump in dumps) == 1
        assert sum(" in submit\n" in dump and "hanging.py" in dump for dump in dumps) == 2
        daemon.drain(PUBLISH_TIMEOUT_S)
        assert daemon.lines("worker_killed") == []


def second_signal(daemon: Daemon) -> None:
    """G5: it ends everything at once."""
    daemon.signal()
    daemon.wait_for("drain_started")
    let_pass(ONE_ASKING_S)  # sooner, it would count as the same asking
    daemon.signal()
    status, took_s = daemon.end()
    assert status in (0, 1), "1 where a worker had to be killed"
    assert daemon.left_behind() == []
    assert took_s < AT_ONCE_S


def test_a_second_signal_does_not_wait_for_a_database_that_hangs(
    mysql_server: Server, mysql_url: str, tmp_path: Path, hang: Path
) -> None:
    """G5: every worker is in a statement that gets no answer."""
    pid = require("private-mysql", getattr(mysql_server, "pid", None), "the database server is not a process of ours")
    config = configure(tmp_path, mysql_url, "Hanging", workers=2, database_s=20)
    with table_of(config), start(tmp_path, hang) as daemon:
        daemon.wait_until(lambda: sessions(mysql_url) == 2 + 1, "the workers to be connected")
        os.kill(pid, signal.SIGSTOP)
        try:
            let_pass(0.5)  # they ask for work several times a second
            second_signal(daemon)
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_second_signal_does_not_wait_for_a_connection(tmp_path: Path, hang: Path) -> None:
    """G5: to a database that takes it and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as links:
        url = f"mysql://app@127.0.0.1:{silent.getsockname()[1]}/app"
        configure(tmp_path, url, "Hanging", workers=2, database_s=20)
        silent.settimeout(20)
        with start(tmp_path, hang) as daemon:
            silent.accept()[0].close()  # the daemon's look before it forks
            for _ in range(2):
                links.enter_context(silent.accept()[0])
            second_signal(daemon)


@pytest.mark.parametrize("signals", [1, 2])
def test_a_publisher_that_does_not_close_does_not_hold_up_the_end(
    sqlite_url: str, tmp_path: Path, hang: Path, signals: int
) -> None:
    """G5: everything is settled by then, so what hangs ends with its process, in time and with 0."""
    config = configure(tmp_path, sqlite_url, "HangingInClose", workers=2)
    with table_of(config) as table, start(tmp_path, hang) as daemon:
        table.fill(5)
        daemon.wait_until(table.is_done, "the events to be delivered")
        if signals == 1:
            daemon.drain(PUBLISH_TIMEOUT_S)
        else:
            second_signal(daemon)
        assert has_hung(hang, "close")


def test_a_publisher_that_is_not_set_up_yet_does_not_hold_up_the_end(
    sqlite_url: str, tmp_path: Path, hang: Path
) -> None:
    """G5: its worker has nothing in flight. Nobody needs to be killed, so the status is 0."""
    config = configure(tmp_path, sqlite_url, "HangingAtBoot", workers=2)
    with table_of(config), start(tmp_path, hang) as daemon:
        daemon.wait_until(lambda: has_hung(hang, "boot"), "a worker to hang")
        daemon.drain(PUBLISH_TIMEOUT_S)
        assert daemon.lines("worker_killed") == []


def test_a_worker_that_ignores_everything_is_killed_at_the_end_of_the_budget(
    mysql_url: str, tmp_path: Path, hang: Path
) -> None:
    """G5: with 1, since a child had to be killed; what it held comes back by its lease, and the others have drained."""
    config = configure(tmp_path, mysql_url, "Hanging", workers=2)
    with table_of(config) as table, start(tmp_path, hang) as daemon:
        table.fill(1, event_type="C")
        daemon.wait_until(lambda: has_hung(hang, "c"), "a worker to hang")
        since_s = time.monotonic()
        daemon.signal()
        status, _ = daemon.end()
        took_s = time.monotonic() - since_s
        assert (status, daemon.left_behind()) == (1, [])
        assert PUBLISH_TIMEOUT_S + DRAIN_MARGIN_S <= took_s < PUBLISH_TIMEOUT_S + DRAIN_MARGIN_S + 1.0
        (killed,) = daemon.lines("worker_killed")
        how = {line["worker"]: line["how"] for line in daemon.lines("worker_exited")}
        assert how.pop(killed["worker"]) == "SIGKILL"
        assert set(how.values()) == {"exit status 0"}
        assert table.by_status() == {"delivering": 1}
