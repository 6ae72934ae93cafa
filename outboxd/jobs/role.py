"""The jobs' process: its loop matches and beats, and nothing else; whatever may take long has a thread.

- *keeper*: reads the jobs, takes up what was asked for, writes the log (keeper.py);
- *locks*: renews those that runs hold (holds.py);
- one for each mounted job, and one for each run that may overlap with others (runner.py).

The relay's work never depends on it: without its tables, or without the database, it waits and looks again.
"""

import threading
import time
from collections.abc import Callable, Mapping

from outboxd import log, vitals
from outboxd.config.schema import Jobs, Lane
from outboxd.errors import HandlerError
from outboxd.guard import guard_drain
from outboxd.jobs.holds import LEAVE_S, Holds
from outboxd.jobs.journal import Journal
from outboxd.jobs.keeper import Keeper
from outboxd.jobs.line import Line
from outboxd.jobs.lock import JobLock, MemoryLock
from outboxd.jobs.meter import Meter
from outboxd.jobs.mounts import Mounts
from outboxd.jobs.registry import Context, load_handlers
from outboxd.jobs.report import Report
from outboxd.jobs.runner import Crew, Threads
from outboxd.jobs.running import Running, Runs
from outboxd.schedule.ticks import until_next_s
from outboxd.store.connection import Connection
from outboxd.waiting import Waiting

LAST_LINES_S = 1.0
"""Beyond jobs.drain_timeout: for the last lines of the log."""
DRAIN_LOOK_S = 0.05
NOTHING: frozenset[int] = frozenset()


def run_jobs(
    context: vitals.Context,
    settings: Jobs,
    lanes: Mapping[str, Lane],
    node_id: str,
    open_connection: Callable[[], Connection],
    open_lock: Callable[[], JobLock],
    metrics_dir: str | None = None,
) -> int:
    """Run jobs until asked to stop; the exit status. Made for a forked child: all it opens is its own.

    open_connection: for the role itself, and for handlers that ask for one. metrics_dir: the folder of the metrics'
    files; None: none are written.
    """
    guard_drain(context.stop.fileno(), settings.drain_timeout_s)
    try:
        load_handlers(settings.handlers)
    except HandlerError as error:
        log.error(log.HANDLERS_REFUSED, error=str(error))
        return vitals.EXIT_NEEDS_PERSON

    def make_context(line: Line) -> Context:
        return Context(
            job_id=line.job.id,
            job_name=line.job.name,
            fire_at_ms=line.fire_at_ms,
            triggered_by=line.triggered_by,
            node_id=node_id,
            lanes=lanes,
            settings=settings,
            open_connection=open_connection,
        )

    meter = Meter(metrics_dir, context.slot.index)
    return JobsRole(context, settings, Journal(open_connection, node_id), open_lock(), meter, make_context).run()


class JobsRole:
    """One process's life."""

    def __init__(
        self,
        context: vitals.Context,
        settings: Jobs,
        journal: Journal,
        lock: JobLock,
        meter: Meter,
        make_context: Callable[[Line], Context],
    ) -> None:
        self._context, self._slot = context, context.slot
        self._drain_timeout_s = settings.drain_timeout_s
        self._journal, self._meter = journal, meter
        self._threads = Threads()
        report = Report(is_local=isinstance(lock, MemoryLock))
        self._holds = Holds(lock)
        self._runs = Runs(journal, self._holds, meter, report, make_context, settings.once_per_tick)
        crew = Crew(self._runs, self._threads, report)
        self._keeper = Keeper(journal, self._runs, crew, meter, report)
        self._mounts = Mounts(self._runs, crew, self._threads, report, time.time())
        self._waiting = Waiting(context.stop.fileno())

    def run(self) -> int:
        """The loop."""
        self._threads.start("keeper", self._keeper.work_for_ever)
        self._threads.start("locks", self._holds.renew_for_ever)
        self._slot.set_state(vitals.State.RUNNING)
        while not (self._context.stop.requested or self._context.orphaned()):
            self._beat()
            wall_s, monotonic_s = time.time(), time.monotonic()
            self._mounts.update(self._keeper.seen, wall_s, monotonic_s)
            self._mounts.look(wall_s, monotonic_s)
            self._wait(until_next_s(time.time()))
        return self._end()

    def _beat(self) -> None:
        if self._threads.failure is not None:  # a fault of ours: a new process begins anew
            raise self._threads.failure
        self._slot.beat(time.monotonic())
        self._slot.set_in_flight(self._runs.count)
        self._meter.write(time.monotonic())

    def _wait(self, timeout_s: float) -> None:
        if self._waiting.wait(NOTHING, NOTHING, timeout_s):
            self._context.stop.clear()

    def _end(self) -> int:
        """Those that run have drain_timeout left; then the log says that they were cut off."""
        since_s = time.monotonic()
        self._slot.set_state(vitals.State.STOPPING)
        log.info(log.DRAIN_STARTED, limit_s=self._drain_timeout_s, in_flight=self._runs.count)
        self._keeper.end()
        self._runs.end()
        self._wait_for(lambda: not self._runs.count, since_s + self._drain_timeout_s)
        waited_s = time.monotonic() - since_s
        cut_off = self._runs.interrupt(f"cut off after {waited_s:.1f} s: the daemon was told to end")
        left = threading.Event()
        self._threads.start("leave", lambda: self._leave(cut_off, left))
        self._wait_for(lambda: self._journal.is_written and left.is_set(), time.monotonic() + LAST_LINES_S)
        self._meter.write(time.monotonic(), is_last=True)
        self._journal.close()
        log.info(log.DRAIN_FINISHED, unsettled=len(cut_off), took_s=round(time.monotonic() - since_s, 2))
        return vitals.EXIT_OK

    def _wait_for(self, condition: Callable[[], bool], until_s: float) -> None:
        while not condition() and time.monotonic() < until_s and self._context.stop.requested < 2:
            self._beat()
            self._wait(min(DRAIN_LOOK_S, max(0.0, until_s - time.monotonic())))

    def _leave(self, cut_off: list[Running], left: threading.Event) -> None:
        self._runs.leave(cut_off, LEAVE_S)
        left.set()
