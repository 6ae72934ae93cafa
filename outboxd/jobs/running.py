"""Runs of jobs, from the tick or the request to the last word in the log. Called by the threads of the jobs.

Invariants:
- Under policies 2 and 3 (and 1 with once_per_tick) a tick is run only by the node that wrote its row, and under 2 and 3
  only with the job's lock: so a tick runs once over all nodes, and no two runs overlap.
- Whatever happens, a run that has begun is told of in the log and in the metrics, once.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from outboxd.errors import JobFailed, LockUnavailable, StoreError
from outboxd.jobs import meter as results
from outboxd.jobs.holds import Hold, Holds
from outboxd.jobs.journal import Journal
from outboxd.jobs.line import Line
from outboxd.jobs.meter import Meter
from outboxd.jobs.registry import Context
from outboxd.jobs.report import Report
from outboxd.jobs.targets import run_target
from outboxd.schedule.records import Job, Policy, RunStatus

MOST_AT_ONCE = 256
"""Runs with a thread of their own, over all jobs."""
MOST_OF_A_JOB = 32

GOES_ON = "the last run goes on"
STILL_WAITS = "the last tick still waits for the database or for the job's lock"
LOCKED = "another run has the job's lock"
FULL = "as many runs go on as may"
ENDS = "the daemon is about to end"


@dataclass(slots=True, eq=False)
class Running:
    """A run that goes on. hold: its lock, if it needs one. is_over: its last word was said."""

    line: Line
    context: Context
    hold: Hold | None = None
    is_over: bool = False


class Runs:
    """make_context: of a run. once_per_tick: policy 1 too."""

    def __init__(
        self,
        journal: Journal,
        holds: Holds,
        meter: Meter,
        report: Report,
        make_context: Callable[[Line], Context],
        once_per_tick: bool,
    ) -> None:
        self._journal, self._holds, self._meter, self._report = journal, holds, meter, report
        self._make_context = make_context
        self._once_per_tick = once_per_tick
        self._mutex = threading.Lock()
        self._running: set[Running] = set()
        self._is_ending = False

    # ticks

    def begin(self, job: Job, tick_s: int) -> Running | None:
        """The tick's run, if this node is to run it; then `carry_out` must follow."""
        line = self._line(job, tick_s)
        if line.tick_ms is None:
            self._journal.note(line)
        else:
            try:
                if not self._journal.claim(line):
                    return None
            except StoreError as error:
                self._skip(line, f"the database gave no answer: {error}")
                return None
        return self.enter(line)

    def skip(self, job: Job, tick_s: int, why: str) -> None:
        """The tick does not run here."""
        line = self._line(job, tick_s)
        line.is_counted = line.tick_ms is None  # else it may be another node's
        self._skip(line, why)

    def expect(self, job: Job) -> None:
        """It is mounted: its counters are there from now on."""
        self._meter.expect(job.name)

    def miss(self, job: Job, ticks: int) -> None:
        """They came too late."""
        self._meter.count(job.name, results.MISSED, ticks)

    def hold(self, job: Job, ticks: int) -> None:
        """Their time came again."""
        self._meter.count(job.name, results.HELD, ticks)

    def _line(self, job: Job, tick_s: int) -> Line:
        is_single = job.execute_policy is not Policy.IMMEDIATE or self._once_per_tick
        return Line(job, tick_s * 1000, tick_ms=tick_s * 1000 if is_single else None)

    def _skip(self, line: Line, why: str) -> None:
        line.end(RunStatus.SKIPPED, message=why)
        if line.is_counted:
            self._meter.count(line.job.name, results.SKIPPED)
        self._journal.note(line)

    # runs

    def enter(self, line: Line) -> Running | None:
        """The run of a line that is this node's, with its lock; None: it gives up, and the log says why."""
        running = Running(line, self._make_context(line))
        if line.job.execute_policy is not Policy.IMMEDIATE and not self._lock(running):
            return None
        with self._mutex:
            is_ending = self._is_ending
            if not is_ending:
                self._running.add(running)
        if is_ending:
            self._let_go(running)
            self._skip(line, ENDS)
            return None
        return running

    def _lock(self, running: Running) -> bool:
        line = running.line

        def lost(why: str) -> None:
            running.context.stop.set()
            self._report.lock_lost(line.job, why)

        try:
            running.hold = self._holds.take(line.job.id, lost)
        except LockUnavailable as error:
            self._report.locks_away(str(error))
            self._skip(line, f"the lock cannot be had, {error}")
            return False
        self._report.locks_there()
        if running.hold is None:
            stranger = self._holds.stranger(line.job.id)
            if stranger:
                self._report.lock_foreign(line.job, stranger)
            self._skip(line, stranger or LOCKED)
        return running.hold is not None

    def carry_out(self, running: Running) -> None:
        """Run it to its end. Never raises."""
        line = running.line
        line.began_s = time.monotonic()
        try:
            message, error = run_target(line.job, running.context), None
        except JobFailed as failure:
            message, error = "", str(failure) or "it failed without a word"
        with self._mutex:
            if running.is_over:  # its time was over first
                return
            running.is_over = True
        note = f"the lock was lost: {running.hold.lost}" if running.hold and running.hold.lost else ""
        status = RunStatus.SUCCEEDED if error is None else RunStatus.FAILED
        line.end(status, message, error or "", note)
        self._meter.ended(line.job.name, status.value, line.duration_ms / 1000)
        self._report.ended(line.job, error)
        self._journal.note(line)  # before Redis is asked, which may take its time
        self._let_go(running)
        with self._mutex:
            self._running.discard(running)

    def _let_go(self, running: Running, after_s: float = 0.0) -> None:
        if running.hold is not None:
            self._holds.give_back(running.hold, after_s)

    # all of them

    @property
    def count(self) -> int:
        """Of those that go on."""
        with self._mutex:
            return len(self._running)

    def row_ids(self) -> list[int]:
        """Rows of those that go on."""
        with self._mutex:
            return [running.line.row_id for running in self._running if running.line.row_id and not running.is_over]

    def written(self, lines: list[Line]) -> None:
        """Skips that turned out to be this node's to tell."""
        for line in lines:
            if line.status is RunStatus.SKIPPED and not line.is_counted:
                self._meter.count(line.job.name, results.SKIPPED)

    def end(self) -> None:
        """No run begins any more; those that go on are asked to come to an end."""
        with self._mutex:
            self._is_ending = True
            for running in self._running:
                running.context.stop.set()

    def interrupt(self, why: str) -> list[Running]:
        """Say the last word of those that still go on: they end with the process."""
        with self._mutex:
            cut_off = [running for running in self._running if not running.is_over]
            for running in cut_off:
                running.is_over = True
        for running in cut_off:
            running.line.end(RunStatus.INTERRUPTED, message=why)
            self._meter.count(running.line.job.name, results.INTERRUPTED)
            self._journal.note(running.line)
        return cut_off

    def leave(self, cut_off: list[Running], after_s: float) -> None:
        """Let their locks become free when this process has surely ended."""
        for running in cut_off:
            self._let_go(running, after_s)
