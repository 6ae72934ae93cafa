"""The thread that keeps the tables and the role in step: which jobs there are, what was asked for, which runs live."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from outboxd.errors import StoreError
from outboxd.jobs import meter as results
from outboxd.jobs.journal import Journal
from outboxd.jobs.line import Line
from outboxd.jobs.meter import Meter
from outboxd.jobs.report import Report
from outboxd.jobs.runner import Crew
from outboxd.jobs.running import Runs
from outboxd.schedule import runs as table
from outboxd.schedule.records import Job
from outboxd.schedule.rules import MOST_JOBS
from outboxd.schedule.runs import NOBODY_TOOK_IT, REQUEST_MS, Request

FIRST_LOOK_S = 2.0
"""After the start, the jobs are read."""
LOOK_S = 2.0
REQUESTS_S = 1.0
ALIVE_S = 15.0
"""So often the running rows are said to be alive, and those of dead nodes closed."""
MOST_REQUESTS = 50


@dataclass(frozen=True, slots=True)
class Seen:
    """What the table said last. is_cut: there are more than MOST_JOBS, and each that is mounted has a thread."""

    jobs: tuple[Job, ...]
    is_cut: bool


class Keeper:
    """`seen` may be read by any thread; None before the first look."""

    def __init__(self, journal: Journal, runs: Runs, crew: Crew, meter: Meter, report: Report) -> None:
        self._journal, self._runs, self._crew, self._meter, self._report = journal, runs, crew, meter, report
        self.seen: Seen | None = None
        self._has_begun = False
        start_s = time.monotonic()
        self._steps: dict[Callable[[], None], tuple[float, float]] = {  # when next, and how often
            self._look: (start_s + FIRST_LOOK_S, LOOK_S),
            self._take_requests: (start_s + FIRST_LOOK_S, REQUESTS_S),
            self._keep_alive: (start_s + ALIVE_S, ALIVE_S),
            self._close_expired: (start_s + FIRST_LOOK_S, ALIVE_S),
        }

    def end(self) -> None:
        """From now on lines are written, and said to be alive; nothing else."""
        self._steps = {self._keep_alive: self._steps[self._keep_alive]}

    def work_for_ever(self) -> None:
        """The thread's work. What the database refuses, or has no time for, is tried again."""
        while True:
            self._try(self._flush)
            now_s = time.monotonic()
            steps = self._steps
            for step, (at_s, every_s) in steps.items():
                if now_s >= at_s and steps is self._steps:
                    steps[step] = now_s + every_s, every_s
                    self._try(self._begin)
                    if self._has_begun:
                        self._try(step)
            at_s = min(at_s for at_s, _ in self._steps.values())
            if self._journal.is_written:
                self._journal.wait(at_s - time.monotonic())
            else:  # it could not be
                time.sleep(0.1)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except StoreError:  # the journal has said it
            pass

    def _flush(self) -> None:
        while not self._journal.is_written:
            self._runs.written(self._journal.flush())

    def _begin(self) -> None:
        """First of all: what the last process of this node has left running was cut off with it."""
        while not self._has_begun:
            closed = self._journal.call(lambda connection: table.close_own(connection, self._journal.node_id))
            self._note_interrupted(closed)
            self._has_begun = not closed

    def _look(self) -> None:
        jobs = self._journal.call(lambda connection: table.running_jobs(connection, MOST_JOBS + 1))
        self.seen = Seen(tuple(jobs[:MOST_JOBS]), len(jobs) > MOST_JOBS)

    def _keep_alive(self) -> None:
        row_ids = self._runs.row_ids()
        if row_ids:
            self._journal.call(lambda connection: table.keep_alive(connection, row_ids))

    def _close_expired(self) -> None:
        self._note_interrupted(self._journal.call(table.close_expired))

    def _note_interrupted(self, names: list[str]) -> None:
        for name in names:
            self._meter.count(name, results.INTERRUPTED)
        if names:
            self._report.interrupted(names)

    def _take_requests(self) -> None:
        for request in self._journal.call(lambda connection: table.requested(connection, MOST_REQUESTS)):
            if request.age_ms > REQUEST_MS:
                self._drop(request, NOBODY_TOOK_IT)
            else:
                self._take(request)

    def _take(self, request: Request) -> None:
        job = self._journal.call(lambda connection: table.find_job(connection, request.job_id))
        if job is None:
            self._drop(request, "the job is not there any more")
            return
        if not self._crew.take_place(job.id):
            return  # to another node, or later
        is_ours = False
        try:
            is_ours = self._journal.call(lambda connection: table.take(connection, request.run_id, self._node_id))
        finally:
            if not is_ours:
                self._crew.leave(job.id)
        if is_ours:
            line = Line(job, request.fire_at_ms, triggered_by=request.triggered_by, row_id=request.run_id)
            self._crew.run(job, lambda: self._runs.enter(line))

    def _drop(self, request: Request, why: str) -> None:
        if self._journal.call(lambda connection: table.drop(connection, request.run_id, self._node_id, why)):
            self._meter.count(request.name, results.SKIPPED)

    @property
    def _node_id(self) -> str:
        return self._journal.node_id
