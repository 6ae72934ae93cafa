"""Jobs while the database or Redis is away, and on a database that knows no jobs: the relay goes on in any case."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from outboxd.jobs.running import STILL_WAITS
from tests.integration.job_nodes import end, enough, make_tables, running
from tests.services.daemon import Daemon
from tests.services.jobs import Table, open_table
from tests.services.lanes import Table as Lane
from tests.services.lanes import event
from tests.services.mariadb import Server, execute
from tests.services.redis_server import RedisServer
from tests.services.scrape import scrape, total

at = contextmanager(open_table)


@pytest.fixture
def shared(mysql_url: str, tmp_path: Path) -> Iterator[Table]:
    make_tables(mysql_url)
    yield from open_table(mysql_url, tmp_path / "marks")


def said(daemon: Daemon, event: str) -> list[dict[str, Any]]:
    """By the role that runs jobs."""
    return [line for line in daemon.lines(event) if line["worker"] == "jobs"]


def test_without_the_database_what_needs_no_claim_goes_on(
    mysql_server: Server, mysql_url: str, tmp_path: Path
) -> None:
    """Policy 1: every tick runs, and the log has them all afterwards. Policy 2: nobody can say whose a tick is, so it
    is skipped, and counted.
    """
    if not hasattr(mysql_server, "stop"):
        pytest.skip("the server at an address cannot be stopped")
    make_tables(mysql_url)
    with at(mysql_url, tmp_path / "marks") as jobs:
        one, two = jobs.add("one"), jobs.add("two", execute_policy=2)
    with running(tmp_path, mysql_url) as (daemon,):
        daemon.admin_pid()
        enough(lambda: min(len(jobs.lives(name)) for name in ("one", "two")), 1, "runs of both")
        mysql_server.stop()
        daemon.wait_until(lambda: said(daemon, "database_unavailable"), "the role to say so")
        before = {name: len(jobs.lives(name)) for name in ("one", "two")}
        enough(lambda: len(jobs.lives("one")), before["one"] + 4, "runs meanwhile")
        assert len(jobs.lives("two")) <= before["two"] + 1

        def skipped_ticks() -> int:
            return int(total(scrape(tmp_path / "node.sock"), "outboxd_job_runs_total", job="two", result="skipped"))

        enough(skipped_ticks, 3, "ticks that are counted as skipped")
        mysql_server.start()
        daemon.wait_until(lambda: said(daemon, "database_available"), "the role to say so")
        after = len(jobs.lives("two"))
        enough(lambda: len(jobs.lives("two")), after + 1, "runs afterwards")
        end([daemon])
        for name in ("database_unavailable", "database_available"):
            assert len(said(daemon, name)) == 1, "said once"
    with at(mysql_url, tmp_path / "marks") as jobs:
        ran = jobs.runs(one, "succeeded")
        assert sorted(run.fire_at_ms for run in ran) == sorted(life.fire_ms for life in jobs.lives("one"))
        assert jobs.runs(None, "running") == []
        skipped = jobs.runs(two, "skipped")
        reasons = ("the database gave no answer", STILL_WAITS)
        assert len([run for run in skipped if run.message.startswith(reasons)]) >= 3, skipped
        assert len({run.tick_ms for run in jobs.runs(two)}) == len(jobs.runs(two))


def test_without_redis_ticks_that_need_a_lock_are_skipped(
    shared: Table, mysql_url: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    """With the reason; policy 1 needs none."""
    one, two = shared.add("one"), shared.add("two", execute_policy=3)
    with running(tmp_path, mysql_url, 1, own_redis.url) as (daemon,):
        enough(lambda: min(len(shared.runs(job_id, "succeeded")) for job_id in (one, two)), 1, "runs of both")
        own_redis.stop()
        daemon.wait_for("job_locks_unavailable")
        enough(lambda: len(shared.runs(two, "skipped")), 2, "skipped ticks")
        before = len(shared.lives("one"))
        enough(lambda: len(shared.lives("one")), before + 2, "runs that need none")
        own_redis.start()
        daemon.wait_for("job_locks_available")
        after = len(shared.lives("two"))
        enough(lambda: len(shared.lives("two")), after + 1, "runs afterwards")
        end([daemon])
        assert len(daemon.lines("job_locks_unavailable")) == 1
    assert {run.status for run in shared.runs(one)} == {"succeeded"}
    assert any("Redis gave no answer" in run.message for run in shared.runs(two, "skipped"))


def test_while_redis_hangs_a_tick_waits_and_nothing_is_said_to_run(
    shared: Table, mysql_url: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    """The one before still waits for its lock: that is another reason than a run that goes on."""
    job_id = shared.add("job", execute_policy=2)
    with running(tmp_path, mysql_url, 1, own_redis.url) as (daemon,):
        enough(lambda: len(shared.runs(job_id, "succeeded")), 1, "runs")
        os.kill(own_redis.pid, signal.SIGSTOP)
        try:
            before = len(shared.runs(job_id, "skipped"))
            waiting = "the last tick still waits for the database or for the job's lock"
            daemon.wait_until(
                lambda: [run for run in shared.runs(job_id, "skipped")[before:] if run.message == waiting],
                "a tick to be skipped since the one before waits",
            )
        finally:
            os.kill(own_redis.pid, signal.SIGCONT)
        end([daemon])
    assert "the last run goes on" not in {run.message for run in shared.runs(job_id, "skipped")[before:]}


@pytest.mark.parametrize("table", ["outboxd_job", "outboxd_job_log"])
def test_a_database_without_the_tables_is_told_of_once(
    shared: Table, mysql_url: str, tmp_path: Path, table: str
) -> None:
    """As after an upgrade without `init-db`: what to do stands in one line, and events are relayed."""
    execute(mysql_url, f"DROP TABLE {table}")
    with running(tmp_path, mysql_url) as (daemon,):
        (line,) = daemon.wait_for("jobs_refused")
        assert (line["level"], line["again_s"]) == ("error", 60)
        assert table in line["error"]
        assert "run `outboxd init-db`" in line["error"]
        lane = Lane(shared.connection)
        lane.insert([event(event_id="e-1")])
        daemon.wait_until(lambda: lane.row("e-1")["status"] == "delivered", "the event to be relayed")
        end([daemon])
        assert len(daemon.lines("jobs_refused")) == 1
        assert [line for line in daemon.lines() if line["level"] == "error"] == daemon.lines("jobs_refused")

