"""The end of a daemon with work in flight (G5), against a receiver that takes its time."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from outboxd.config.schema import Config
from outboxd.supervisor.loop import ONE_ASKING_S
from tests.services.daemon import LANE, Daemon, write_config
from tests.services.find import require
from tests.services.lanes import Table, published_more_than_once, table_of
from tests.services.mariadb import Server
from tests.services.receiver import Receiver
from tests.services.slow_receiver import SlowReceiver

SEED = 20_240_601
FULL = os.environ.get("OUTBOXD_CHAOS") == "full"

LONG, SHORT = (3.0, 2.9), (0.9, 0.6)
"""publish_timeout, and the longest that the receiver takes."""
ROUNDS = [(*LONG, 15, seed) for seed in range(5)] + [(*SHORT, 25, 5)] if FULL else [(*LONG, 3, 0), (*SHORT, 9, 1)]
"""How often, with which chance: a hundred rounds over all, or a sample of them."""


def configure(tmp_path: Path, url: str, receiver: Receiver, timeout_s: float = 3.0, workers: int = 2) -> Config:
    """A lane over HTTP, eight connections for each worker."""
    web = {"type": "http", "url": receiver.url, "connections": 8}
    worker = {"publish_timeout": f"{int(timeout_s * 1000)}ms", "concurrency": workers, "batch_size": 20}
    return write_config(tmp_path / "outbox.yaml", url, {"web": web}, **worker)  # type: ignore[arg-type]


def start(tmp_path: Path) -> Daemon:
    """A run of the daemon that is configured there."""
    return Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log")


def check_drained(table: Table, receiver: Receiver) -> None:
    """G5: nothing in flight, what the receiver has accepted is delivered and nothing else, no attempt is counted."""
    accepted = receiver.event_ids()
    assert published_more_than_once(accepted) == {}
    rows = table.rows()
    assert {row["event_id"] for row in rows if row["status"] == "delivered"} == set(accepted)
    assert {row["status"] for row in rows} <= {"delivered", "pending"}
    assert {(row["retry_count"], row["last_error"]) for row in rows} == {(0, None)}


@pytest.mark.parametrize(("publish_timeout_s", "longest_s", "rounds", "seed"), ROUNDS)
def test_a_drain_at_any_moment_ends_in_time_and_leaves_nothing_half_done(
    database_url: str, tmp_path: Path, publish_timeout_s: float, longest_s: float, rounds: int, seed: int
) -> None:
    """G5: SIGTERM at random moments: 0 in time, nothing delivering, what was accepted is delivered, nothing twice."""
    chance = random.Random(SEED + seed)
    if "sqlite" in database_url and not FULL:
        rounds = max(2, rounds // 3)
    slow = SlowReceiver(SEED + seed, longest_s)
    with slow as receiver:
        config = configure(tmp_path, database_url, receiver, publish_timeout_s)
        with table_of(config) as table:
            for round_number in range(rounds):
                table.fill(150)
                # A first publish goes alone: a short one lets most rounds end with all connections in use.
                slow.take_at_most(longest_s if round_number % 3 == 0 else 0.05)
                seen = len(receiver.requests)
                with start(tmp_path) as daemon:
                    daemon.wait_for("supervisor_started")  # before that, it is Python that starts
                    wanted = seen + chance.choice((0, 1, 5, 25, 60))
                    daemon.wait_until(lambda n=wanted: len(receiver.requests) >= n, "requests")  # type: ignore[misc]
                    slow.take_at_most(longest_s)
                    until_s = time.monotonic() + chance.random() * longest_s / 2
                    daemon.wait_until(lambda at=until_s: time.monotonic() >= at, "the moment")  # type: ignore[misc]
                    daemon.drain(publish_timeout_s)
                check_drained(table, receiver)


def test_a_drain_with_nothing_in_flight_is_quick(database_url: str, tmp_path: Path) -> None:
    """G5: an idle worker waits for nobody."""
    with Receiver() as receiver:
        config = configure(tmp_path, database_url, receiver)
        with table_of(config) as table, start(tmp_path) as daemon:
            table.fill(5)
            daemon.wait_until(table.is_done, "the events to be delivered")
            assert daemon.drain(3.0) < 1.5


def test_a_receiver_that_hangs_does_not_hold_up_the_drain(mysql_url: str, tmp_path: Path) -> None:
    """G5: a publish ends within publish_timeout whatever the far side does; the rest is released."""
    with Receiver() as receiver:
        config = configure(tmp_path, mysql_url, receiver, timeout_s=1.0, workers=1)
        with table_of(config) as table, start(tmp_path) as daemon:
            table.fill(1)
            daemon.wait_until(table.is_done, "the first one to be delivered")
            receiver.answer(hang=True)
            table.fill(20)
            daemon.wait_until(lambda: len(receiver.requests) >= 9, "publishes to hang")
            daemon.drain(1.0)
            rows = table.rows()
    hanging = set(receiver.event_ids()[1:])
    assert {row["status"] for row in rows} == {"delivered", "retryable", "pending"}
    assert {row["event_id"] for row in rows if row["status"] == "retryable"} == hanging
    assert all("time" in str(row["last_error"]) for row in rows if row["status"] == "retryable")


def test_a_second_signal_ends_everything_at_once(database_url: str, tmp_path: Path) -> None:
    """G5: within a second, with publishes in flight; their events come back when their leases run out."""
    with Receiver() as receiver:
        config = configure(tmp_path, database_url, receiver)
        with table_of(config) as table, start(tmp_path) as daemon:
            table.fill(1)
            daemon.wait_until(table.is_done, "the first one to be delivered")
            receiver.answer(delay_s=2.9)
            table.fill(40)
            daemon.wait_until(lambda: len(receiver.requests) >= 9, "publishes in flight")
            daemon.signal()
            daemon.wait_for("drain_started", count=2)
            time.sleep(ONE_ASKING_S)  # sooner, it would count as the same asking
            daemon.signal()
            status, took_s = daemon.end()
            assert took_s < 1.0
            assert status in (0, 1), "1 where a child had to be killed"
            assert daemon.left_behind() == []
            assert table.by_status()["delivering"] >= 8


def test_sigint_drains_as_sigterm_does(sqlite_url: str, tmp_path: Path) -> None:
    """Ctrl-C in a terminal goes to the whole group: only the supervisor understands it, and everything drains."""
    with SlowReceiver(SEED, 0.5) as receiver:
        config = configure(tmp_path, sqlite_url, receiver)
        with table_of(config) as table, start(tmp_path) as daemon:
            table.fill(50)
            daemon.wait_until(lambda: len(receiver.requests) >= 10, "publishes in flight")
            for pid in (*daemon.workers(2).values(), daemon.pid):
                os.kill(pid, signal.SIGINT)
            status, took_s = daemon.end()
            assert (status, daemon.left_behind()) == (0, [])
            assert took_s <= 5.0
            check_drained(table, receiver)


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_drain_ends_in_time_when_the_database_is_away(
    mysql_server: Server, mysql_url: str, tmp_path: Path, how: str
) -> None:
    """G5: with 0, also where a statement hangs in the driver. What could not be settled comes back by its lease."""
    pid = require("private-mysql", getattr(mysql_server, "pid", None), "the database server is not a process of ours")
    with Receiver() as receiver:
        config = configure(tmp_path, mysql_url, receiver, timeout_s=1.0)
        with table_of(config) as table, start(tmp_path) as daemon:
            table.fill(1)
            daemon.wait_until(table.is_done, "the first one to be delivered")
            receiver.answer(delay_s=0.6)
            table.fill(40)
            daemon.wait_until(lambda: len(receiver.requests) >= 9, "publishes in flight")
            try:
                if how == "killed":
                    mysql_server.kill()
                else:
                    os.kill(pid, signal.SIGSTOP)
                daemon.drain(1.0)
            finally:
                if how == "frozen":
                    os.kill(pid, signal.SIGCONT)
                mysql_server.start()
        with table_of(config) as table:
            counts = table.by_status()
    assert counts["delivering"] >= 8, "what could not be settled stays leased: nothing is lost"
    assert sum(counts.values()) == 41
    assert config.lanes[LANE].lease_s > 1.0
