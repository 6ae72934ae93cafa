"""The job log as the role writes it, on every kind of database."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from outboxd.config.schema import Database
from outboxd.errors import StoreRefused
from outboxd.schedule import runs
from outboxd.schedule.records import Policy, Run, RunStatus
from outboxd.schedule.runs import ALIVE_MS
from outboxd.store import connect
from outboxd.store.connection import Connection
from tests.contract.conftest import Table as Lanes
from tests.services.jobs import Table

TICK_MS = 1_700_000_000_000


@pytest.fixture
def jobs(table: Lanes, tmp_path: Path) -> Table:
    """The tables, created and empty."""
    table.connection.execute("DELETE FROM outboxd_job")
    return Table(table.connection, tmp_path / "marks")


@pytest.fixture
def node(table: Lanes, database: Database) -> Iterator[Connection]:
    """Another session, as a node has one."""
    with closing(connect(database)) as connection:
        yield connection


def a_run(**fields: object) -> Run:
    """A tick's on node a."""
    usual: dict[str, object] = {"id": 0, "job_id": 7, "name": "report", "fire_at_ms": TICK_MS, "tick_ms": TICK_MS,
             "status": RunStatus.RUNNING, "node_id": "a"}  # fmt: skip
    return Run(**{**usual, **fields})  # type: ignore[arg-type]  # each test's words are Run's own


def test_a_tick_is_the_node_s_that_writes_it_first(jobs: Table, node: Connection) -> None:
    run_id = runs.add(jobs.connection, a_run())
    assert run_id > 0
    assert runs.add(node, a_run(node_id="b")) == 0
    assert runs.add(node, a_run(node_id="b", status=RunStatus.SKIPPED)) == 0
    assert [(run.id, run.node_id, run.status) for run in jobs.runs()] == [(run_id, "a", "running")]


def test_another_tick_and_another_job_are_free(jobs: Table, node: Connection) -> None:
    one, two, three = a_run(), a_run(job_id=8), a_run(tick_ms=TICK_MS + 1)
    ids = {runs.add(jobs.connection, one), runs.add(node, two), runs.add(node, three)}
    assert len(ids) == 3
    assert 0 not in ids


def test_what_need_not_be_single_is_written_by_every_node(jobs: Table, node: Connection) -> None:
    """Policy 1: the nominal time is the same, and no node's alone."""
    assert runs.add(jobs.connection, a_run(tick_ms=None))
    assert runs.add(node, a_run(tick_ms=None, node_id="b"))
    assert [run.node_id for run in jobs.runs()] == ["a", "b"]


def test_a_run_is_told_of_from_its_begin_to_its_end(jobs: Table, table: Lanes) -> None:
    now_ms = table.now_ms()
    run = a_run(id=runs.add(jobs.connection, a_run(), age_ms=5000))
    begun = jobs.run(run.id)
    assert begun.started_at_ms == pytest.approx(now_ms - 5000, abs=2000)
    assert begun.alive_until_ms == pytest.approx(now_ms + ALIVE_MS, abs=2000)
    text = "\N{SNOWMAN}" * 1000 + "[" + "x" * 90 + "]"
    assert runs.finish(
        jobs.connection, replace(run, status=RunStatus.SUCCEEDED, duration_ms=1234, message=text, exception="")
    )
    ended = jobs.run(run.id)
    assert (ended.status, ended.duration_ms, ended.message) == ("succeeded", 1234, text)
    assert ended.started_at_ms == begun.started_at_ms
    assert not runs.finish(jobs.connection, replace(run, status=RunStatus.FAILED)), "it was over"


def test_a_run_that_gave_up_has_no_begin(jobs: Table) -> None:
    """It had the tick, and not the lock."""
    run = a_run(id=runs.add(jobs.connection, a_run()))
    runs.finish(jobs.connection, replace(run, status=RunStatus.SKIPPED, message="locked"))
    assert (jobs.run(run.id).started_at_ms, jobs.run(run.id).message) == (0, "locked")


@pytest.mark.parametrize("close", [lambda c: runs.close_own(c, "a"), runs.close_expired])
def test_what_was_cut_off_is_closed_once(jobs: Table, close: Callable[[Connection], list[str]]) -> None:
    """Rows of others, and those that have ended, stay as they are."""
    cut = runs.add(jobs.connection, a_run())
    jobs.connection.execute("UPDATE outboxd_job_log SET started_at_ms = 1000, alive_until_ms = 63000")
    other = runs.add(jobs.connection, a_run(tick_ms=1, node_id="b"))
    done = runs.add(jobs.connection, a_run(tick_ms=2, status=RunStatus.SUCCEEDED))
    assert close(jobs.connection) == ["report"]
    assert close(jobs.connection) == []
    row = jobs.run(cut)
    assert (row.status, row.message, row.duration_ms) == ("interrupted", runs.CUT_OFF, 2000)
    assert (jobs.run(other).status, jobs.run(done).status) == ("running", "succeeded")


def test_a_run_that_was_given_up_too_soon_has_the_last_word(jobs: Table) -> None:
    """Its node was cut off from the database for a while."""
    first, second = (runs.add(jobs.connection, a_run(tick_ms=tick)) for tick in (1, 2))
    jobs.connection.execute("UPDATE outboxd_job_log SET alive_until_ms = 1")
    assert len(runs.close_expired(jobs.connection)) == 2
    runs.keep_alive(jobs.connection, [second, first])
    assert [(run.status, run.message) for run in jobs.runs()] == [("running", "")] * 2
    assert runs.close_expired(jobs.connection) == []
    runs.close_own(jobs.connection, "a")
    assert runs.finish(jobs.connection, a_run(id=first, status=RunStatus.SUCCEEDED))
    assert jobs.run(first).status == "succeeded"


def test_what_was_asked_for_is_taken_by_one_node(jobs: Table, node: Connection) -> None:
    run_id = jobs.request(7, "report")
    (request,) = runs.requested(node, 50)
    assert (request.run_id, request.job_id, request.name, request.triggered_by) == (run_id, 7, "report", "somebody")
    assert request.age_ms == pytest.approx(0, abs=2000)
    assert runs.take(node, run_id, "b")
    assert not runs.take(jobs.connection, run_id, "a")
    assert not runs.drop(jobs.connection, run_id, "a", "too old")
    assert runs.requested(node, 50) == []
    taken = jobs.run(run_id)
    assert (taken.status, taken.node_id, taken.started_at_ms > 0) == ("running", "b", True)


def test_what_nobody_takes_is_skipped_with_a_reason(jobs: Table, node: Connection) -> None:
    run_id = jobs.request(7, "report", age_ms=600_001)
    assert runs.requested(node, 50)[0].age_ms > 600_000
    assert runs.drop(node, run_id, "b", runs.NOBODY_TOOK_IT)
    assert not runs.take(node, run_id, "b")
    assert (jobs.run(run_id).status, jobs.run(run_id).message) == ("skipped", runs.NOBODY_TOOK_IT)


def test_the_jobs_that_run_are_read_and_no_others(jobs: Table, node: Connection) -> None:
    ids = [jobs.add(f"job {number}", execute_policy=3, is_sync=0) for number in range(3)]
    paused = jobs.add("paused", status=2)
    jobs.change(ids[1], deleted_at_ms=5)
    odd = jobs.add("odd", execute_policy=9)
    found = runs.running_jobs(node, 10)
    assert [job.id for job in found] == [ids[0], ids[2], odd]
    assert (found[0].execute_policy, found[0].is_sync, found[0].url) == (Policy.SKIP, False, "Nap")
    assert found[2].execute_policy is Policy.SKIP, "what nobody knows is held to be the strictest"
    assert [job.id for job in runs.running_jobs(node, 1)] == ids[:1]
    assert runs.find_job(node, paused) is not None, "a run can be asked for in any state"
    assert runs.find_job(node, ids[1]) is None


def test_a_table_that_is_missing_is_told_with_the_remedy(jobs: Table, node: Connection) -> None:
    runs.check(node)
    jobs.connection.execute("DROP TABLE outboxd_job_log")
    with pytest.raises(StoreRefused, match="outboxd init-db"):
        runs.check(node)
