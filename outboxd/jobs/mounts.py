"""The jobs whose ticks this node heeds, as the table has them: mounted, changed, unmounted. The loop's thread alone."""

from dataclasses import dataclass

from outboxd.errors import CronError
from outboxd.jobs.keeper import Seen
from outboxd.jobs.report import Report
from outboxd.jobs.runner import Crew, Runner, Threads
from outboxd.jobs.running import Runs
from outboxd.schedule import ticks
from outboxd.schedule.cron import Schedule, parse
from outboxd.schedule.records import Job, Policy
from outboxd.schedule.rules import MOST_JOBS

BEHIND_S = 3
"""So far back the last tick of each of the first jobs is looked for, if the process ran: reading them took a while."""


@dataclass(slots=True)
class Mount:
    """A job with its time."""

    job: Job
    schedule: Schedule
    watch: ticks.Watch


class Mounts:
    """began_s: when the process did, by the wall clock."""

    def __init__(self, runs: Runs, crew: Crew, threads: Threads, report: Report, began_s: float) -> None:
        self._runs, self._crew, self._threads, self._report = runs, crew, threads, report
        self._began_s: float | None = began_s
        self._seen: Seen | None = None
        self._mounts: dict[int, Mount] = {}
        self._runners: dict[int, Runner] = {}
        """Of unmounted jobs too, while a run of theirs goes on: it still keeps a tick of theirs from running."""

    def update(self, seen: Seen | None, wall_s: float, monotonic_s: float) -> None:
        """What the table said last."""
        if seen is not None and seen is not self._seen:
            wanted = {job.id: job for job in seen.jobs}
            for job_id in self._mounts.keys() - wanted.keys():
                self._unmount(job_id)
            for job in seen.jobs:
                if job.id not in self._mounts or self._mounts[job.id].job != job:
                    self._mount(job, wall_s, monotonic_s)
            if seen.is_cut:
                self._report.refused(0, "", f"more than {MOST_JOBS} jobs; those with the highest ids are left out")
            self._seen, self._began_s = seen, None
        for job_id in [job_id for job_id, runner in self._runners.items() if runner.is_idle]:
            if job_id not in self._mounts:
                self._runners.pop(job_id).close()

    def _mount(self, job: Job, wall_s: float, monotonic_s: float) -> None:
        before = self._mounts.get(job.id)
        try:
            schedule = parse(job.cron_expression, job.created_at_ms // 1000)
        except CronError as error:
            if before is not None:
                self._unmount(job.id)
            self._report.refused(job.id, job.name, f"{job.cron_expression}: {error}")
            return
        if before is not None and before.schedule == schedule:
            watch = before.watch  # its time goes on
        else:
            since_s = self._since_s(schedule, wall_s)
            watch = ticks.begin(since_s, monotonic_s - (wall_s - since_s))
        self._mounts[job.id] = Mount(job, schedule, watch)
        if job.id not in self._runners:
            self._runners[job.id] = Runner(job, self._runs, self._crew, self._threads)
        self._report.forget_refusal(job.id)
        self._report.mounted(job, before is None)
        self._runs.expect(job)
        if job.execute_policy is not Policy.IMMEDIATE:
            self._report.locks_are_local()

    def _since_s(self, schedule: Schedule, wall_s: float) -> float:
        """The job's time begins now, or with the last tick since the process began: a reload is not to lose it."""
        if self._began_s is not None:
            for at_s in range(int(wall_s), int(max(self._began_s, wall_s - BEHIND_S)), -1):
                if schedule.matches(at_s):
                    return at_s - 1.0
        return wall_s

    def _unmount(self, job_id: int) -> None:
        self._report.unmounted(self._mounts.pop(job_id).job)

    def look(self, wall_s: float, monotonic_s: float) -> None:
        """Fire what is due. Both clocks are read together."""
        missed = jobs = 0
        for mount in self._mounts.values():
            mount.watch, due = ticks.look(mount.watch, mount.schedule, wall_s, monotonic_s)
            for tick_s in due.fire:
                self._runners[mount.job.id].fire(mount.job, tick_s, mount.schedule.late_s)
            if due.held:
                self._runs.hold(mount.job, due.held)
            if due.missed:
                self._runs.miss(mount.job, due.missed)
                missed, jobs = missed + due.missed, jobs + 1
        if missed:
            self._report.missed(missed, jobs)
