"""What the role says of jobs and their runs: one line per change of state, whatever the jobs do (G9)."""

import threading

from outboxd import log
from outboxd.schedule.records import Job


class Report:
    """Calls may come from any thread."""

    def __init__(self, is_local: bool) -> None:
        """is_local: jobs' locks hold for this node only."""
        self._mutex = threading.Lock()
        self._is_local = is_local
        self._failing: set[int] = set()
        self._refused: dict[int, str] = {}
        self._is_lockless = False
        self._strangers: set[str] = set()
        self._was_full = False

    def mounted(self, job: Job, is_new: bool) -> None:
        """Its ticks are heeded from now on, or it was changed."""
        what = {"job_id": job.id, "job": job.name}
        log.info(log.JOB_MOUNTED if is_new else log.JOB_CHANGED, **what, cron=job.cron_expression, url=job.url)

    def unmounted(self, job: Job) -> None:
        """It was paused or deleted."""
        log.info(log.JOB_UNMOUNTED, job_id=job.id, job=job.name)
        with self._mutex:
            self._failing.discard(job.id)

    def locks_are_local(self) -> None:
        """A job needs a lock, and it holds for this node only: said once."""
        if self._is_local:
            self._is_local = False
            log.warning(log.JOB_LOCK_LOCAL)

    def refused(self, job_id: int, name: str, why: str) -> None:
        """It cannot be mounted: said once for each reason."""
        if self._refused.get(job_id) != why:
            self._refused[job_id] = why
            log.warning(log.JOB_REFUSED, job_id=job_id, job=name, error=why)

    def forget_refusal(self, job_id: int) -> None:
        """It can be mounted."""
        self._refused.pop(job_id, None)

    def missed(self, ticks: int, jobs: int) -> None:
        """The clock jumped, or the process stood still."""
        log.warning(log.JOB_TICKS_MISSED, ticks=ticks, jobs=jobs)

    def too_many(self, most: int) -> None:
        """More runs at once than there may be: said once for each time."""
        with self._mutex:
            was_full, self._was_full = self._was_full, True
        if not was_full:
            log.warning(log.JOB_RUNS_FULL, most=most)

    def has_room(self) -> None:
        """A run has begun."""
        self._was_full = False

    def ended(self, job: Job, error: str | None) -> None:
        """A run has failed, or not: said when it is another than the last time."""
        with self._mutex:
            was_failing = job.id in self._failing
            (self._failing.discard if error is None else self._failing.add)(job.id)
        if error is not None and not was_failing:
            log.warning(log.JOB_FAILED, job_id=job.id, job=job.name, error=error)
        elif error is None and was_failing:
            log.info(log.JOB_RECOVERED, job_id=job.id, job=job.name)

    def lock_lost(self, job: Job, why: str) -> None:
        """While a run held it."""
        log.warning(log.JOB_LOCK_LOST, job_id=job.id, job=job.name, error=why)

    def lock_foreign(self, job: Job, why: str) -> None:
        """No run of this database has it: said once for each reason."""
        with self._mutex:
            is_new = why not in self._strangers
            self._strangers.add(why)
        if is_new:
            log.warning(log.JOB_LOCK_FOREIGN, job_id=job.id, job=job.name, error=why)

    def locks_away(self, error: str) -> None:
        """Redis cannot be asked: said once."""
        with self._mutex:
            was_away, self._is_lockless = self._is_lockless, True
        if not was_away:
            log.warning(log.JOB_LOCKS_UNAVAILABLE, error=error)

    def locks_there(self) -> None:
        """Redis has answered."""
        with self._mutex:
            was_away, self._is_lockless = self._is_lockless, False
        if was_away:
            log.info(log.JOB_LOCKS_AVAILABLE)

    def interrupted(self, names: list[str]) -> None:
        """Runs were cut off by a crash, and their rows are closed."""
        log.warning(log.JOB_INTERRUPTED, count=len(names), jobs=sorted(set(names)))
