"""Signals to the real daemon at any moment, many of them, and several at once."""

import random
import signal
import sys
import time
from pathlib import Path

import pytest

from outboxd.config.schema import Config
from tests.services.chaos import SEED, scaled
from tests.services.daemon import DRAIN_MARGIN_S, Daemon, write_config
from tests.services.lanes import Table, published_more_than_once, table_of
from tests.services.processes import session_of
from tests.services.receiver import Receiver
from tests.services.slow_receiver import SlowReceiver
from tests.services.wait import let_pass

BOOTS = scaled(100, 4)
ROUNDS = scaled(30, 2)
ENDS = scaled(30, 2)
PUBLISH_TIMEOUT_S = 1.0
MOST_WORKERS = 4


def configure(tmp_path: Path, url: str, receiver: Receiver, workers: int) -> Config:
    """A lane over HTTP. The file is replaced as a whole, so that nobody reads half of it."""
    config = write_config(
        tmp_path / "new.yaml",
        url,
        {"web": {"type": "http", "url": receiver.url, "connections": 8}},
        concurrency=workers,
        publish_timeout=f"{int(PUBLISH_TIMEOUT_S * 1000)}ms",
        lease="30s",
        batch_size=20,
    )
    (tmp_path / "new.yaml").replace(tmp_path / "outbox.yaml")
    return config


def spoil(tmp_path: Path) -> None:
    """A file that is refused, with one line."""
    (tmp_path / "new.yaml").write_text("lanes: [", encoding="utf-8")
    (tmp_path / "new.yaml").replace(tmp_path / "outbox.yaml")


def start(tmp_path: Path) -> Daemon:
    """A run of the daemon that is configured there."""
    return Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log")


def check(table: Table, receiver: Receiver, *statuses: str) -> None:
    """G1, G5: what the receiver has accepted is delivered and nothing else, once, and no attempt is counted."""
    accepted = receiver.event_ids()
    rows = table.rows()
    assert published_more_than_once(accepted) == {}
    assert {row["event_id"] for row in rows if row["status"] == "delivered"} == set(accepted)
    assert {row["status"] for row in rows} <= {"delivered", *statuses}
    assert {(row["retry_count"], row["last_error"]) for row in rows} == {(0, None)}


def test_sigterm_during_the_boot_leaves_nothing_behind(sqlite_url: str, tmp_path: Path) -> None:
    """G5: at any moment from the first line of Python on; until there is something to drain it may simply end."""
    chance = random.Random(SEED)
    with Receiver() as receiver:
        configure(tmp_path, sqlite_url, receiver, workers=3)
        for _ in range(BOOTS):
            with start(tmp_path) as daemon:
                let_pass(chance.random() * 0.8)
                daemon.signal()
                status, took_s = daemon.end()
                assert status in (0, -signal.SIGTERM), daemon.text()
                assert session_of(daemon.pid) == set()
                assert took_s < 2.0


SIGNALLED_AT_THE_END = """
import atexit, os, runpy, sys
atexit.register(os.kill, os.getpid(), {signum})
sys.argv = ["outboxd", *sys.argv[sys.argv.index("--config"):]]
runpy.run_module("outboxd", run_name="__main__")
"""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_that_comes_when_all_is_over_changes_no_exit_status(
    sqlite_url: str, tmp_path: Path, signum: int
) -> None:
    """G5: Python takes a while to end. Whoever is impatient, or reloads just then, must not turn 0 into a failure."""
    with Receiver() as receiver:
        configure(tmp_path, sqlite_url, receiver, workers=1)
    program = [sys.executable, "-c", SIGNALLED_AT_THE_END.format(signum=int(signum))]
    with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log", within=program) as daemon:
        daemon.workers(1)
        daemon.drain(PUBLISH_TIMEOUT_S)


def test_a_storm_of_reloads_good_and_bad_loses_nothing_and_repeats_nothing(mysql_url: str, tmp_path: Path) -> None:
    """G1, G5, G9: under load, workers come and go, and the last file holds in the end. No slot is taken twice."""
    chance = random.Random(SEED)
    with SlowReceiver(SEED, 0.1) as receiver:
        config = configure(tmp_path, mysql_url, receiver, MOST_WORKERS)
        with table_of(config) as table, start(tmp_path) as daemon:
            daemon.workers(MOST_WORKERS)
            for _ in range(ROUNDS):
                table.fill(60)
                for _ in range(chance.randrange(1, 6)):
                    if chance.random() < 0.4:
                        spoil(tmp_path)
                    else:
                        configure(tmp_path, mysql_url, receiver, chance.randrange(1, MOST_WORKERS + 1))
                    daemon.signal(signal.SIGHUP)
                    let_pass(chance.random() * 0.2)
                spoil(tmp_path)
                reload(daemon)
            configure(tmp_path, mysql_url, receiver, 3)
            reload(daemon)
            assert running(daemon) == {1, 2, 3}
            daemon.wait_until(table.is_done, "the events to be delivered")
            daemon.signal(signal.SIGUSR1)
            status = daemon.wait_for("worker_status", MOST_WORKERS)
            assert sum(line["delivered"] for line in status) == len(receiver.event_ids())
            daemon.drain(PUBLISH_TIMEOUT_S)
            assert len(daemon.lines("worker_status")) == MOST_WORKERS
            assert {line["how"] for line in daemon.lines("worker_exited")} == {"exit status 0"}
            assert len(daemon.lines("reload_refused")) >= ROUNDS
            assert daemon.lines("reload_stopped") == []
            check(table, receiver)


def running(daemon: Daemon) -> set[int]:
    """The numbers of the workers that run."""
    left = set(daemon.left_behind())
    return {int(line["worker"][-2:]) for line in daemon.lines("worker_started") if line["pid"] in left}


def reload(daemon: Daemon) -> None:
    """One more, when those before it have come to their end, until it has come to its own."""
    daemon.wait_until(lambda: is_settled(daemon), "the reloads so far to end")
    seen = len(daemon.lines("reload_started"))
    daemon.signal(signal.SIGHUP)
    daemon.wait_for("reload_started", seen + 1)
    daemon.wait_until(lambda: is_settled(daemon), "the reload to end")


def is_settled(daemon: Daemon) -> bool:
    """Has every reload that began come to its end?"""
    ends = ("reload_finished", "reload_refused", "reload_stopped")
    return len(daemon.lines("reload_started")) == sum(len(daemon.lines(end)) for end in ends)


def test_sighup_and_sigterm_together_drain(mysql_url: str, tmp_path: Path) -> None:
    """G5: in either order, at any distance, with a good file and with a bad one: in time, with 0, nothing is left."""
    chance = random.Random(SEED)
    with SlowReceiver(SEED, 0.3) as receiver:
        config = configure(tmp_path, mysql_url, receiver, 2)
        with table_of(config) as table:
            for _ in range(ENDS):
                table.fill(80)
                seen = len(receiver.requests)
                configure(tmp_path, mysql_url, receiver, 2)
                with start(tmp_path) as daemon:
                    daemon.wait_until(lambda n=seen: len(receiver.requests) > n + 10, "the flow")  # type: ignore[misc]
                    if chance.random() < 0.3:
                        spoil(tmp_path)
                    else:
                        configure(tmp_path, mysql_url, receiver, chance.randrange(1, 4))
                    if chance.random() < 0.5:
                        daemon.signal(signal.SIGHUP)
                        let_pass(chance.choice((0.0, 0.01, 0.3 * chance.random())))
                    since_s = time.monotonic()
                    daemon.signal(signal.SIGTERM)
                    try:
                        daemon.signal(signal.SIGHUP)
                    except ProcessLookupError:  # it was quick
                        pass
                    assert daemon.end()[0] == 0
                    assert time.monotonic() - since_s <= PUBLISH_TIMEOUT_S + DRAIN_MARGIN_S
                    assert session_of(daemon.pid) == set()
                check(table, receiver, "pending")
