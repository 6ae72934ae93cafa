"""The threads of a job: one takes its ticks in their order; where runs may overlap, each has one of its own."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial

from outboxd.jobs.report import Report
from outboxd.jobs.running import FULL, GOES_ON, MOST_AT_ONCE, MOST_OF_A_JOB, STILL_WAITS, Running, Runs
from outboxd.schedule.records import Job


class Threads:
    """Starts threads that end with the process. failure: what ended one of them, which none of them should."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None

    def start(self, name: str, work: Callable[[], None]) -> None:
        """In a thread of its own."""
        threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True).start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  the loop raises it where the process is ended by it
            self.failure = error


class Crew:
    """Runs with a thread of their own: a place for each, so many for each job and in all."""

    def __init__(self, runs: Runs, threads: Threads, report: Report) -> None:
        self._runs, self._threads, self._report = runs, threads, report
        self._mutex = threading.Lock()
        self._places: Counter[int] = Counter()

    def take_place(self, job_id: int) -> bool:
        """For another run of the job; then `run` or `leave` must follow. False: there is none."""
        with self._mutex:
            there_is = self._places[job_id] < MOST_OF_A_JOB and self._places.total() < MOST_AT_ONCE
            if there_is:
                self._places[job_id] += 1
        if there_is:
            self._report.has_room()
        else:
            self._report.too_many(MOST_AT_ONCE)
        return there_is

    def run(self, job: Job, begin: Callable[[], Running | None]) -> None:
        """Begin a run that has a place, and carry it out, in a thread of its own."""

        def work() -> None:
            try:
                running = begin()
                if running is not None:
                    self._runs.carry_out(running)
            finally:
                self.leave(job.id)

        self._threads.start(f"run of {job.name}", work)

    def leave(self, job_id: int) -> None:
        """The place is free again."""
        with self._mutex:
            self._places[job_id] -= 1
            if not self._places[job_id]:
                del self._places[job_id]


class Runner:
    """One job's. `fire` and `close` are the loop's; the rest happens in the runner's thread."""

    def __init__(self, job: Job, runs: Runs, crew: Crew, threads: Threads) -> None:
        self._runs, self._crew = runs, crew
        self._changed = threading.Condition()
        self._ticks: deque[tuple[Job, int, float]] = deque()
        self._is_busy = self._is_running = False
        self._is_closed = False
        threads.start(f"job {job.name}", self._work)

    @property
    def is_idle(self) -> bool:
        """Has it nothing to do, and does nothing?"""
        with self._changed:
            return not (self._ticks or self._is_busy)

    def fire(self, job: Job, tick_s: int, late_s: float) -> None:
        """A tick of the job as it is now. late_s: after that it is too late to begin."""
        if job.is_sync and not self.is_idle:
            self._runs.skip(job, tick_s, GOES_ON if self._is_running else STILL_WAITS)
        elif not job.is_sync and not self._crew.take_place(job.id):
            self._runs.skip(job, tick_s, FULL)
        else:
            with self._changed:
                self._ticks.append((job, tick_s, time.monotonic() + late_s))
                self._changed.notify()

    def close(self) -> None:
        """No more ticks: the thread ends when it is idle."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._is_busy = self._is_running = False
                while not self._ticks:
                    if self._is_closed:
                        return
                    self._changed.wait()
                job, tick_s, until_s = self._ticks.popleft()
                self._is_busy = True
            running = None
            if time.monotonic() > until_s:
                self._runs.miss(job, 1)
            else:
                running = self._runs.begin(job, tick_s)
            if job.is_sync and running is not None:
                self._is_running = True
                self._runs.carry_out(running)
            elif running is not None:
                self._crew.run(job, partial(_itself, running))
            elif not job.is_sync:
                self._crew.leave(job.id)


def _itself(running: Running) -> Running:
    return running
