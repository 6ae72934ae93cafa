"""The role's way to the log: what waits for a database, what is bounded, what is said; on every kind of database."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from outboxd import log
from outboxd.config.schema import Database
from outboxd.errors import StoreError, StoreRefused, StoreUnavailable
from outboxd.jobs import journal as module
from outboxd.jobs.holds import Holds
from outboxd.jobs.journal import Journal
from outboxd.jobs.line import Line
from outboxd.jobs.lock import MemoryLock
from outboxd.jobs.meter import Meter
from outboxd.jobs.registry import Context
from outboxd.jobs.report import Report
from outboxd.jobs.runner import Crew, Runner, Threads
from outboxd.jobs.running import FULL, MOST_OF_A_JOB, Runs
from outboxd.schedule.records import Job, Policy, RunStatus
from outboxd.store import connect
from outboxd.store.connection import Connection
from tests.contract.conftest import Table as Lanes
from tests.services.jobs import Table
from tests.services.python_targets import gate, inside, job_waits_for_gate
from tests.services.wait import wait_for

JOB = Job(id=7, name="report", cron_expression="* * * * * *", url="Nap")


@dataclass
class Door:
    """The way to the database; the test shuts it."""

    database: Database
    shut_by: StoreError | None = None
    opened: list[Connection] = field(default_factory=list)

    def open(self) -> Connection:
        if self.shut_by is not None:
            raise self.shut_by
        self.opened.append(connect(self.database))
        return self.opened[-1]

    def shut(self, error: StoreError) -> None:
        """What is open breaks, too."""
        self.shut_by = error
        for connection in self.opened:
            connection.close()


@pytest.fixture
def jobs(table: Lanes, tmp_path: Path) -> Table:
    return Table(table.connection, tmp_path / "marks")


@pytest.fixture
def door(jobs: Table, database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """Tried again soon."""
    monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.2)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.2)
    made = Door(database)
    yield made
    for connection in made.opened:
        connection.close()


def flushed(journal: Journal) -> bool:
    """As the keeper does it, again and again."""
    try:
        journal.flush()
    except StoreError:
        return False
    return journal.is_written


def test_what_began_and_ended_without_a_database_becomes_one_line(jobs: Table, door: Door) -> None:
    """It began when it began, not when it was written."""
    door.shut_by = StoreUnavailable("away")
    journal, line = Journal(door.open, "node"), Line(JOB, 1000)
    journal.note(line)
    assert not flushed(journal)
    line.began_s -= 5.0
    line.end(RunStatus.SUCCEEDED, "done")
    journal.note(line)
    door.shut_by = None
    wait_for(lambda: flushed(journal), 5, "the line to be written")
    (run,) = jobs.runs()
    assert (run.status, run.message, run.alive_until_ms) == (RunStatus.SUCCEEDED, "done", 0)
    assert run.duration_ms == pytest.approx(5000, abs=500)


def test_a_line_is_written_when_its_run_begins_and_again_when_it_ends(jobs: Table, door: Door) -> None:
    journal, line = Journal(door.open, "node"), Line(JOB, 1000)
    journal.note(line)
    assert journal.flush() == [line]
    assert jobs.run(line.row_id).status == "running"
    line.end(RunStatus.FAILED, exception="x" * 5000 + "\udcff")
    journal.note(line)
    assert journal.flush() == []
    assert (jobs.run(line.row_id).status, jobs.run(line.row_id).exception) == ("failed", "x" * 1000)


def test_a_state_is_said_once_whatever_is_asked_meanwhile(
    jobs: Table, door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """G9: away; refused, as an error with the remedy; there again."""
    journal = Journal(door.open, "node")
    with caplog.at_level(logging.INFO, logger="outboxd"):
        for count, error in enumerate((StoreUnavailable("away"), StoreRefused("run `outboxd init-db`")), 1):
            door.shut(error)
            until_s = time.monotonic() + 1.0
            while time.monotonic() < until_s:
                assert refuses(journal)
            assert len(caplog.records) == count
        door.shut_by = None
        wait_for(lambda: not refuses(journal), 5, "it to be there again")
    assert [(record.msg, record.levelname) for record in caplog.records] == [
        (log.DATABASE_UNAVAILABLE, "WARNING"), (log.JOBS_REFUSED, "ERROR"), (log.DATABASE_AVAILABLE, "INFO"),
    ]  # fmt: skip


def refuses(journal: Journal) -> bool:
    """Does a claim fail?"""
    try:
        journal.claim(Line(JOB, 1000, tick_ms=1000))
    except StoreError:
        return True
    return False


def test_tables_that_are_made_later_are_found(jobs: Table, door: Door) -> None:
    """`init-db` was run: within the minute."""
    create = door.database.scheme
    jobs.connection.execute("ALTER TABLE outboxd_job_log RENAME TO hidden")
    journal = Journal(door.open, "node")
    assert refuses(journal)
    jobs.connection.execute("ALTER TABLE hidden RENAME TO outboxd_job_log")
    wait_for(lambda: not refuses(journal), 5, f"the tables of {create} to be found")


def test_what_waits_is_bounded_and_what_is_lost_is_said(
    jobs: Table, door: Door, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G9. A run whose line stands in the table has its last word all the same."""
    monkeypatch.setattr(module, "MOST_LINES", 250)
    journal, begun = Journal(door.open, "node"), Line(JOB, 1)
    journal.note(begun)
    journal.flush()
    door.shut(StoreUnavailable("away"))
    for number in range(253):
        line = Line(JOB, number)
        line.end(RunStatus.SKIPPED, "why")
        journal.note(line)
    begun.end(RunStatus.SUCCEEDED)
    journal.note(begun)
    door.shut_by = None
    with caplog.at_level(logging.WARNING, logger="outboxd"):
        wait_for(lambda: flushed(journal), 60, "the lines to be written")
    (lost,) = (record for record in caplog.records if record.msg == log.JOB_LINES_LOST)
    assert lost.__dict__["fields"] == {"count": 3}
    assert jobs.run(begun.row_id).status == "succeeded"
    assert len(jobs.runs()) == 251


def test_lines_that_the_database_will_not_have_do_not_block_those_behind(jobs: Table, door: Door) -> None:
    """SQLite takes no NULL for a name; MySQL takes anything, and a job that was read from its table has one."""
    nameless = Job(id=8, name=None, cron_expression="", url="")  # type: ignore[arg-type]
    journal = Journal(door.open, "node")
    journal.note(Line(nameless, 1))
    flushed(journal)
    journal.note(Line(JOB, 2))
    wait_for(lambda: flushed(journal), 5, "the next one to be written")
    assert [run.fire_at_ms for run in jobs.runs()][-1] == 2


@pytest.fixture
def make_runs(door: Door) -> Callable[[], tuple[Runs, Journal]]:
    """As the role puts them together."""

    def make() -> tuple[Runs, Journal]:
        journal = Journal(door.open, "node")

        def context(line: Line) -> Context:
            return Context(job_id=line.job.id, job_name=line.job.name, fire_at_ms=line.fire_at_ms)

        return Runs(journal, Holds(MemoryLock()), Meter(None, 0), Report(is_local=True), context, False), journal

    return make


def test_runs_that_may_overlap_are_bounded(jobs: Table, make_runs: Callable[[], tuple[Runs, Journal]]) -> None:
    """G9: ticks beyond it are skipped, and the log says why."""
    runs, journal = make_runs()
    threads = Threads()
    job = Job(id=7, name="report", cron_expression="", url=job_waits_for_gate(), is_sync=False)
    runner = Runner(job, runs, Crew(runs, threads, Report(is_local=True)), threads)
    gate.clear()
    while inside.acquire(blocking=False):
        pass
    for tick_s in range(1, MOST_OF_A_JOB + 9):
        runner.fire(job, tick_s, 60.0)
    for _ in range(MOST_OF_A_JOB):
        assert inside.acquire(timeout=20)
    assert runs.count == MOST_OF_A_JOB
    gate.set()
    wait_for(lambda: not runs.count and flushed(journal), 20, "all of them to end")
    skipped = jobs.runs(7, "skipped")
    assert [(run.message, run.fire_at_ms) for run in skipped] == [
        (FULL, tick_s * 1000) for tick_s in range(MOST_OF_A_JOB + 1, MOST_OF_A_JOB + 9)
    ]
    assert len(jobs.runs(7, "succeeded")) == MOST_OF_A_JOB
    runner.fire(job, 99, 60.0)
    wait_for(lambda: flushed(journal) and len(jobs.runs(7, "succeeded")) > MOST_OF_A_JOB, 20, "another one to run")
    runner.close()
    assert threads.failure is None


def test_a_tick_runs_once_however_many_nodes_want_it(make_runs: Callable[[], tuple[Runs, Journal]]) -> None:
    """All of them at the same moment."""
    nodes = [make_runs()[0] for _ in range(6)]
    job = Job(id=7, name="report", cron_expression="", url="", execute_policy=Policy.SKIP)
    for tick_s in range(1, 21):
        start = threading.Barrier(len(nodes))
        begun: list[object] = []

        def begin(node: Runs, start: threading.Barrier = start, begun: list[object] = begun, at: int = tick_s) -> None:
            start.wait()
            if node.begin(job, at) is not None:
                begun.append(node)

        racing = [threading.Thread(target=begin, args=(node,)) for node in nodes]
        for thread in racing:
            thread.start()
        for thread in racing:
            thread.join()
        assert len(begun) <= 1
        for node in nodes:
            for running in node.interrupt("the test goes on"):
                node.leave([running], 0.0)
