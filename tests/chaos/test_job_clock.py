"""Jobs on clocks that jump and in processes that stand still: no tick is run twice, what was missed is skipped and
counted."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.integration.job_nodes import end, enough, make_tables
from tests.services.daemon import Daemon
from tests.services.faketime import Clock
from tests.services.jobs import Table, jobs_config, open_table
from tests.services.scrape import scrape, total
from tests.services.wait import let_pass, wait_for

HOUR_S = 3600
SLACK = 8
"""Ticks that a busy machine may take or miss at the edges, of an hour's 3600."""


@pytest.fixture
def table(sqlite_url: str, tmp_path: Path) -> Iterator[Table]:
    make_tables(sqlite_url)
    yield from open_table(sqlite_url, tmp_path / "marks")


@contextmanager
def on_a_clock(tmp_path: Path, url: str) -> Iterator[tuple[Daemon, Clock]]:
    """A node whose clock the test steps; SQLite's is the same."""
    clock = Clock(tmp_path)
    config = jobs_config(tmp_path / "node.yaml", url)
    with Daemon(config, tmp_path / "node.log", **clock.python_environ) as daemon:
        daemon.admin_pid()
        yield daemon, clock


def ticks(table: Table, job: str) -> list[int]:
    """Nominal times of its runs, in the order in which they began, in seconds."""
    return [life.fire_ms // 1000 for life in table.lives(job)]


def count(table: Table, job: str) -> int:
    """How many runs have begun."""
    return len(table.lives(job))


def is_told(tmp_path: Path, job: str, result: str, at_least: int) -> bool:
    """The same as `told`, for a wait."""
    return told(tmp_path, job, result) >= at_least


def told(tmp_path: Path, job: str, result: str) -> float:
    """By the metrics."""
    return total(scrape(tmp_path / "node.sock"), "outboxd_job_runs_total", job=job, result=result)


JOBS = {"one": 1, "two": 2}
"""Policies by the jobs' names."""


def test_a_clock_that_jumps_forwards_misses_what_it_jumps_over(table: Table, sqlite_url: str, tmp_path: Path) -> None:
    """Ticks go on at once; those of the hour are counted as missed, none is run twice."""
    for name, policy in JOBS.items():
        table.add(name, execute_policy=policy)
    with on_a_clock(tmp_path, sqlite_url) as (daemon, clock):
        enough(lambda: min(len(ticks(table, job)) for job in JOBS), 3, "ticks")
        clock.step(HOUR_S)
        (line,) = daemon.wait_for("job_ticks_missed")
        assert line["jobs"] == 2
        for job in JOBS:
            enough(partial(count, table, job), count(table, job) + 3, "ticks after the step")
            wait_for(partial(told, tmp_path, job, "missed"), 10, "the metrics to tell")
            assert told(tmp_path, job, "missed") == pytest.approx(HOUR_S, abs=SLACK)
        end([daemon])
    for job in JOBS:
        assert max(Counter(ticks(table, job)).values()) == 1
        assert max(ticks(table, job)) - min(ticks(table, job)) > HOUR_S


def test_a_clock_that_was_ahead_runs_no_tick_twice(table: Table, sqlite_url: str, tmp_path: Path) -> None:
    """An hour forwards for a moment, and back: what it jumped over runs in its time, what has run does not again."""
    for name, policy in JOBS.items():
        table.add(name, execute_policy=policy)
    with on_a_clock(tmp_path, sqlite_url) as (daemon, clock):
        enough(lambda: min(len(ticks(table, job)) for job in JOBS), 2, "ticks")
        clock.step(HOUR_S)
        daemon.wait_for("job_ticks_missed")
        ahead = {job: len(ticks(table, job)) for job in JOBS}
        enough(lambda: min(len(ticks(table, job)) - ahead[job] for job in JOBS), 2, "ticks an hour ahead")
        clock.step(0.0)
        back = {job: len(ticks(table, job)) for job in JOBS}
        enough(lambda: min(len(ticks(table, job)) - back[job] for job in JOBS), 3, "ticks at the right time")
        end([daemon])
    for job in JOBS:
        assert max(Counter(ticks(table, job)).values()) == 1


def test_a_clock_that_is_set_back_holds_what_has_run(table: Table, sqlite_url: str, tmp_path: Path) -> None:
    """By five seconds: those ticks are counted as held, and the job goes on when their time is over. By an hour, of
    which this process has lived through nothing: it goes on at once.
    """
    for name, policy in JOBS.items():
        table.add(name, execute_policy=policy)
    with on_a_clock(tmp_path, sqlite_url) as (daemon, clock):
        enough(lambda: min(len(ticks(table, job)) for job in JOBS), 6, "ticks")
        clock.step(-5)
        for job in JOBS:
            wait_for(partial(is_told, tmp_path, job, "held", 3), 20, "the metrics to tell")
        before = {job: len(ticks(table, job)) for job in JOBS}
        enough(lambda: min(len(ticks(table, job)) - before[job] for job in JOBS), 2, "ticks after what was held")
        clock.step(-HOUR_S)
        before = {job: len(ticks(table, job)) for job in JOBS}
        enough(lambda: min(len(ticks(table, job)) - before[job] for job in JOBS), 3, "ticks an hour before")
        end([daemon])
    for job in JOBS:
        assert max(Counter(ticks(table, job)).values()) == 1


def test_a_process_that_stood_still_skips_what_it_missed(table: Table, sqlite_url: str, tmp_path: Path) -> None:
    """SIGSTOP for less than the supervisor's limit: each second's tick has run once, or was counted."""
    job_id = table.add("one", is_sync=0)
    config = jobs_config(tmp_path / "node.yaml", sqlite_url)
    with Daemon(config, tmp_path / "node.log") as daemon:
        daemon.admin_pid()
        enough(lambda: len(ticks(table, "one")), 2, "ticks")
        pid = next(line["pid"] for line in daemon.lines("worker_started") if line["worker"] == "jobs")
        os.kill(pid, signal.SIGSTOP)
        let_pass(7.0)
        os.kill(pid, signal.SIGCONT)
        daemon.wait_for("job_ticks_missed")
        before = len(ticks(table, "one"))
        enough(lambda: len(ticks(table, "one")), before + 3, "ticks afterwards")
        table.change(job_id, status=2)
        daemon.wait_for("job_unmounted")
        let_pass(1.5)  # the metrics are written once a second
        missed = told(tmp_path, "one", "missed")
        end([daemon])
    seen = ticks(table, "one")
    assert max(Counter(seen).values()) == 1
    assert 2 <= missed <= 7
    assert max(seen) - min(seen) + 1 == len(seen) + missed
