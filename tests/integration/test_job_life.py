"""Jobs over their lives: changed in the table, run on request, through reloads; what the metrics say of them."""

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from outboxd.schedule.records import Run
from outboxd.schedule.runs import NOBODY_TOOK_IT
from tests.integration.job_nodes import end, enough, make_tables, mounted, running
from tests.services.daemon import Daemon
from tests.services.jobs import Table, open_table
from tests.services.redis_server import RedisServer, client
from tests.services.scrape import scrape, total

NEVER = "0 0 0 29 2 *"
SOON_S = 6.0
"""Within seconds: the table is looked at every other one."""


@pytest.fixture
def table(database_url: str, tmp_path: Path) -> Iterator[Table]:
    make_tables(database_url)
    yield from open_table(database_url, tmp_path / "marks")


@pytest.fixture
def shared(mysql_url: str, tmp_path: Path) -> Iterator[Table]:
    make_tables(mysql_url)
    yield from open_table(mysql_url, tmp_path / "marks")


def soon(daemons: list[Daemon], event: str, count: int = 1) -> None:
    """Each node says so."""
    for daemon in daemons:
        daemon.wait_until(partial(_said, daemon, event, count), f"{count} x {event}", SOON_S)


def _said(daemon: Daemon, event: str, count: int) -> bool:
    return len(daemon.lines(event)) >= count


def over(table: Table, run_id: int, daemon: Daemon) -> Run:
    """The line of a run, once it says how it ended."""
    daemon.wait_until(lambda: table.run(run_id).status not in ("requested", "running"), "the run to end")
    return table.run(run_id)


def test_a_change_in_the_table_is_picked_up_by_every_node(shared: Table, mysql_url: str, tmp_path: Path) -> None:
    """Whoever made it: added, changed, paused, resumed, deleted."""
    with running(tmp_path, mysql_url, 2) as daemons:
        job_id = shared.add("first")
        mounted(daemons)
        wrong = shared.add("wrong", cron_expression="0 0 0 30 2 *")
        soon(daemons, "job_refused")
        shared.change(wrong, cron_expression=NEVER)
        soon(daemons, "job_mounted", 2)
        enough(lambda: len({life.node_id for life in shared.lives("first")}), 2, "nodes that run it")
        shared.change(job_id, name="second", cron_expression="*/2 * * * * *")
        soon(daemons, "job_changed")
        enough(lambda: len({life.node_id for life in shared.lives("second")}), 2, "nodes that run it")
        assert {life.fire_ms % 2000 for life in shared.lives("second")} == {0}
        shared.change(job_id, status=2)
        soon(daemons, "job_unmounted")
        shared.change(job_id, status=1, url="Unknown")
        soon(daemons, "job_mounted", 3)
        soon(daemons, "job_failed")
        shared.change(job_id, deleted_at_ms=5)
        soon(daemons, "job_unmounted", 2)
        end(daemons)
        for daemon in daemons:
            assert [line["error"] for line in daemon.lines("job_refused")][1:] == []
            assert "no such date ever comes" in daemon.lines("job_refused")[0]["error"]
            assert "no local handler named 'Unknown'" in daemon.lines("job_failed")[0]["error"]
            assert daemon.lines("job_failed")[1:] == [], "said once"
    assert not [run for run in shared.runs() if run.status in ("running", "interrupted")]


def test_a_run_is_asked_for_in_any_state(table: Table, database_url: str, tmp_path: Path) -> None:
    """It changes none, and what cannot run says why."""
    paused, unpublished = table.add("paused", status=2), table.add("new", status=0)
    gone = table.add("gone", deleted_at_ms=5)
    failing = table.add("failing", status=2, fails=True)
    with running(tmp_path, database_url) as (daemon,):
        asked = {job_id: table.request(job_id, "job") for job_id in (paused, unpublished, gone, failing)}
        old = table.request(paused, "paused", age_ms=601_000)
        for job_id in (paused, unpublished):
            run = over(table, asked[job_id], daemon)
            assert (run.status, run.triggered_by, run.node_id, run.tick_ms) == ("succeeded", "somebody", "node", None)
        assert over(table, asked[gone], daemon).message == "the job is not there any more"
        assert (over(table, old, daemon).status, table.run(old).message) == ("skipped", NOBODY_TOOK_IT)
        failed = over(table, asked[failing], daemon)
        assert (failed.status, failed.exception) == ("failed", "RuntimeError: it was told to")
        end([daemon])
    assert [row[0] for row in table.connection.query("SELECT status FROM outboxd_job ORDER BY id")] == [2, 0, 1, 2]
    assert sorted(life.job for life in table.lives()) == ["failing", "new", "paused"]


@pytest.mark.parametrize("policy", [1, 3])
def test_a_run_on_request_takes_the_lock_where_ticks_do(
    shared: Table, mysql_url: str, own_redis: RedisServer, tmp_path: Path, policy: int
) -> None:
    """Over all nodes; it does not wait for it. Under policy 1 it runs beside what goes on. Each runs on one node."""
    job_id = shared.add("job", execute_policy=policy, cron_expression=NEVER, nap_s=2.0)
    with running(tmp_path, mysql_url, 2, own_redis.url) as daemons:
        mounted(daemons)
        first = shared.request(job_id, "job")
        daemons[0].wait_until(lambda: shared.lives(), "the first to begin")
        second = shared.request(job_id, "job")
        ended = [over(shared, run_id, daemons[0]) for run_id in (first, second)]
        end(daemons)
    if policy == 1:
        assert [run.status for run in ended] == ["succeeded", "succeeded"]
    else:
        assert [run.status for run in ended] == ["succeeded", "skipped"]
        assert ended[1].message == "another run has the job's lock"
    assert len(shared.lives()) == sum(run.status == "succeeded" for run in ended)
    with client(own_redis.url) as looking:
        assert looking.keys("job:lock:*") == []


def test_jobs_go_on_after_a_reload(table: Table, database_url: str, tmp_path: Path) -> None:
    """A run that goes on ends before its process does, and is not cut off."""
    job_id = table.add("job", execute_policy=2, nap_s=1.2)
    with running(tmp_path, database_url) as (daemon,):
        enough(lambda: len(table.lives()), 1, "runs")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("reload_finished")
        before = len(table.lives())
        enough(lambda: len(table.lives()), before + 1, "runs")
        end([daemon])
        pids = {line["pid"] for line in daemon.lines("worker_started") if line["worker"] == "jobs"}
        assert len(pids) == 2
    assert {run.status for run in table.runs(job_id)} <= {"succeeded", "skipped"}
    assert len({run.tick_ms for run in table.runs(job_id)}) == len(table.runs(job_id)), "no tick twice"


def test_the_metrics_tell_of_every_tick(table: Table, database_url: str, tmp_path: Path) -> None:
    """By job and result; a restart of the role counts on."""
    good = table.add("good", execute_policy=2, nap_s=1.5)
    bad = table.add("bad", fails=True)
    with running(tmp_path, database_url) as (daemon,):
        daemon.admin_pid()
        enough(lambda: min(len(table.runs(good, "succeeded")), len(table.runs(bad, "failed"))), 2, "runs")
        for job_id in (good, bad):
            table.change(job_id, status=2)
        daemon.wait_for("job_unmounted", 2)
        daemon.wait_until(lambda: not table.runs(None, "running"), "the runs to end")

        def is_told() -> bool:
            samples = scrape(tmp_path / "node.sock")
            return all(
                total(samples, "outboxd_job_runs_total", job=job, result=result) == len(table.runs(job_id, result))
                for job, job_id in (("good", good), ("bad", bad))
                for result in ("succeeded", "failed", "skipped")
            )

        daemon.wait_until(is_told, "the metrics to say what the log says")
        samples = scrape(tmp_path / "node.sock")
        succeeded = len(table.runs(good, "succeeded"))
        assert total(samples, "outboxd_job_duration_seconds_count", job="good") == succeeded
        assert total(samples, "outboxd_job_duration_seconds_bucket", job="good", le="1.0") == 0
        latest_s = max(run.started_at_ms + run.duration_ms for run in table.runs(good, "succeeded")) / 1000
        name = "outboxd_job_last_success_timestamp_seconds"
        assert total(samples, name, job="good") == pytest.approx(latest_s, abs=1.0)
        assert total(samples, name, job="bad") == 0
        assert {dict(labels)["lane"] for found, labels in samples if found == "outboxd_workers"} == {"room_outbox"}
        end([daemon])
