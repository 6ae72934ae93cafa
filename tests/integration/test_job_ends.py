"""Runs that their process does not outlive: by a crash, by SIGKILL, by an end that could not wait for them."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from outboxd.schedule.runs import CUT_OFF
from tests.integration.job_nodes import end, enough, make_tables, mounted, running
from tests.services.daemon import Daemon
from tests.services.jobs import Table, open_table
from tests.services.nodes import now_ms
from tests.services.redis_server import RedisServer, client
from tests.services.wait import wait_for

LONG_S = 120.0
ONCE_A_DAY = "0 0 0 29 2 *"


@pytest.fixture
def table(database_url: str, tmp_path: Path) -> Iterator[Table]:
    make_tables(database_url)
    yield from open_table(database_url, tmp_path / "marks")


@pytest.fixture
def shared(mysql_url: str, tmp_path: Path) -> Iterator[Table]:
    make_tables(mysql_url)
    yield from open_table(mysql_url, tmp_path / "marks")


def begun(table: Table, daemon: Daemon, job_id: int) -> None:
    """A run goes on, and its line says so."""
    daemon.wait_until(lambda: table.lives() and table.runs(job_id, "running"), "a run to begin")


def role_pid(daemon: Daemon) -> int:
    """Of the latest process of the jobs role."""
    return int([line["pid"] for line in daemon.lines("worker_started") if line["worker"] == "jobs"][-1])


@pytest.mark.parametrize("policy", [1, 2])
def test_a_run_that_a_crash_cut_off_is_closed_as_interrupted(
    table: Table, database_url: str, tmp_path: Path, policy: int
) -> None:
    """By the next process of the node, as soon as it is up. The relay does not notice."""
    job_id = table.add("job", execute_policy=policy, nap_s=LONG_S)
    with running(tmp_path, database_url) as (daemon,):
        begun(table, daemon, job_id)
        os.kill(role_pid(daemon), signal.SIGKILL)
        (line,) = daemon.wait_for("job_interrupted")
        assert (line["count"], line["jobs"]) == (1, ["job"])
        (run,) = table.runs(job_id, "interrupted")
        assert run.message == CUT_OFF
        enough(lambda: len(table.lives()), 2, "runs: in memory a lock ends with its process")
        assert len([line for line in daemon.lines("worker_started") if line["worker"] != "jobs"]) == 1


def test_a_node_that_is_killed_keeps_the_lock_until_its_time_is_over(
    shared: Table, mysql_url: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    """The other node's ticks are skipped until then, and go on afterwards; the run's line is closed by it, too."""
    job_id = shared.add("job", execute_policy=2, nap_s=LONG_S)
    with running(tmp_path, mysql_url, 2, own_redis.url) as daemons, closing(client(own_redis.url)) as redis:
        mounted(daemons)
        begun(shared, daemons[0], job_id)
        (owner,) = {life.node_id for life in shared.lives()}
        killed, other = daemons if owner == "node" else reversed(daemons)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.stop()
        key = f"job:lock:{job_id}"
        held_ms = redis.pttl(key)
        assert isinstance(held_ms, int)
        assert 200_000 < held_ms <= 300_000
        before = len(shared.runs(job_id, "skipped"))
        enough(lambda: len(shared.runs(job_id, "skipped")), before + 3, "skipped ticks")
        assert len(shared.lives()) == 1
        assert {run.message for run in shared.runs(job_id, "skipped")[before:]} == {"another run has the job's lock"}
        (row,) = shared.runs(job_id, "running")
        assert 0 < row.alive_until_ms - now_ms() <= 60_000, "nobody knows yet that it is dead"
        shared.connection.execute("UPDATE outboxd_job_log SET alive_until_ms = 1 WHERE status = 'running'")
        redis.pexpire(key, 1)  # the time is over
        enough(lambda: len(shared.lives()), 2, "runs")
        other.wait_until(lambda: shared.run(row.id).status == "interrupted", "the line to be closed")


def test_a_running_line_is_said_to_be_alive(table: Table, database_url: str, tmp_path: Path) -> None:
    """Else another node would close it."""
    job_id = table.add("job", cron_expression=ONCE_A_DAY, nap_s=LONG_S)
    with running(tmp_path, database_url) as (daemon,):
        run_id = table.request(job_id, "job")
        begun(table, daemon, job_id)
        until_ms = table.run(run_id).alive_until_ms
        assert until_ms - now_ms() > 30_000
        wait_for(lambda: table.run(run_id).alive_until_ms > until_ms, 40, "the line to be alive for longer")


def test_a_run_has_its_time_when_the_daemon_ends(table: Table, database_url: str, tmp_path: Path) -> None:
    """SIGTERM: it ends by itself within jobs.drain_timeout, and no other begins."""
    job_id = table.add("job", nap_s=3.0)
    with running(tmp_path, database_url) as (daemon,):
        begun(table, daemon, job_id)
        end([daemon])
        assert daemon.left_behind() == []
    assert {run.status for run in table.runs(job_id)} <= {"succeeded", "skipped"}
    (life,) = table.lives()
    assert life.end_s is not None


def test_a_run_that_takes_longer_is_said_to_be_interrupted(
    shared: Table, mysql_url: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    """And the daemon ends, with 0, within drain_timeout + 2 s. What asks whether it should stop, is told at once. The
    lock is free soon: its run has ended with its process.
    """
    stubborn = shared.add("stubborn", execute_policy=3, nap_s=LONG_S)
    watchful = shared.add("watchful", url="Watchful", nap_s=LONG_S)
    with running(tmp_path, mysql_url, 1, own_redis.url, drain_timeout="1500ms") as (daemon,):
        daemon.wait_until(lambda: len(shared.lives()) == 2 and len(shared.runs(None, "running")) == 2, "both to begin")
        daemon.signal()
        status, took_s = daemon.end()
        assert status == 0
        assert 1.5 <= took_s <= 3.5 + 1.0
        assert daemon.left_behind() == []
        with closing(client(own_redis.url)) as redis:
            wait_for(lambda: not redis.exists(f"job:lock:{stubborn}"), 4, "the lock to free itself")
    (cut,) = shared.runs(stubborn, "interrupted")
    assert cut.message.startswith("cut off after 1.5 s: the daemon was told to end")
    assert cut.duration_ms > 1400
    (asked,) = shared.runs(watchful, "succeeded")
    assert asked.message == "stopped early"
    assert shared.runs(None, "running") == []


def test_a_second_signal_waits_for_nobody(table: Table, database_url: str, tmp_path: Path) -> None:
    """The line is closed by the next process of the node, if there was no time for it."""
    job_id = table.add("job", nap_s=LONG_S)
    with running(tmp_path, database_url) as (daemon,):
        begun(table, daemon, job_id)
        daemon.signal()
        daemon.wait_for("drain_started", 2)
        since_s = time.monotonic()
        daemon.signal(signal.SIGQUIT)
        daemon.end()
        assert time.monotonic() - since_s < 3
    with running(tmp_path, database_url) as (daemon,):
        daemon.wait_until(lambda: len(table.lives()) == 2, "the next run")
        assert len(table.runs(job_id, "interrupted")) == 1
