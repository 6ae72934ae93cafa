"""The log: one line for one fact, on standard error, as JSON or for the eye. Event names are fixed and listed here.

Invariants:
- A line is one write of at most PIPE_BUF bytes, so that lines of several processes on one pipe never mix.
- A standard error that is closed, full or read by nobody costs lines, never the daemon (output.py); how many is said in
  the next line that gets through.
- Every text passes `redact` on its way out.
"""

import logging
from collections.abc import Mapping

from outboxd.log_lines import Handler, console_line, json_line
from outboxd.output import plug_standard_descriptors

SUPERVISOR_STARTED = "supervisor_started"
SUPERVISOR_STOPPED = "supervisor_stopped"
WORKER_STARTED = "worker_started"
WORKER_EXITED = "worker_exited"
WORKER_RESTARTING = "worker_restarting"
WORKER_CRASHED = "worker_crashed"
WORKER_KILLED = "worker_killed"
WORKER_HUNG = "worker_hung"
WORKER_REFUSED = "worker_refused"
WORKER_ABANDONED = "worker_abandoned"
WORKER_START_FAILED = "worker_start_failed"
WORKER_BATCH_FAILED = "worker_batch_failed"
WORKER_STATUS = "worker_status"
STRANGER_REAPED = "stranger_reaped"
RELOAD_STARTED = "reload_started"
RELOAD_REFUSED = "reload_refused"
RELOAD_STOPPED = "reload_stopped"
RELOAD_FINISHED = "reload_finished"
DRAIN_STARTED = "drain_started"
DRAIN_HURRIED = "drain_hurried"
DRAIN_FINISHED = "drain_finished"
OUTBOX_DELIVERED = "outbox_delivered"
OUTBOX_PUBLISH_RETRYABLE = "outbox_publish_retryable"
OUTBOX_DEAD_LETTER = "outbox_dead_letter"
ROBOT_OUTBOX_STALE_DISCARDED = "robot_outbox_stale_discarded"
ROBOT_OUTBOX_CLEANUP_DELETED = "robot_outbox_cleanup_deleted"
LEASE_LOST = "lease_lost"
EVENT_GONE = "event_gone"
BREAKER_OPENED = "breaker_opened"
BREAKER_CLOSED = "breaker_closed"
DATABASE_UNAVAILABLE = "database_unavailable"
DATABASE_AVAILABLE = "database_available"
DATABASE_REFUSED = "database_refused"
PUBLISHER_REFUSED = "publisher_refused"
ADMIN_LISTENS = "admin_listens"
ADMIN_CLOSED = "admin_closed"
ADMIN_CHANGED = "admin_changed"
ADMIN_FAILED = "admin_failed"
METRICS_UNAVAILABLE = "metrics_unavailable"
METRICS_AVAILABLE = "metrics_available"
BRIDGE_RETRYABLE = "bridge_retryable"
BRIDGE_DEAD_LETTER = "bridge_dead_letter"
BRIDGE_HELD = "bridge_held"
BRIDGE_STOPPED = "bridge_stopped"
BRIDGE_RESUMED = "bridge_resumed"
SUBSCRIPTION_UNAVAILABLE = "subscription_unavailable"
SUBSCRIPTION_AVAILABLE = "subscription_available"
JOB_MOUNTED = "job_mounted"
JOB_CHANGED = "job_changed"
JOB_UNMOUNTED = "job_unmounted"
JOB_REFUSED = "job_refused"
JOB_FAILED = "job_failed"
JOB_RECOVERED = "job_recovered"
JOB_TICKS_MISSED = "job_ticks_missed"
JOB_RUNS_FULL = "job_runs_full"
JOB_INTERRUPTED = "job_interrupted"
JOB_LOCK_LOCAL = "job_lock_local"
JOB_LOCK_LOST = "job_lock_lost"
JOB_LOCK_FOREIGN = "job_lock_foreign"
JOB_LOCKS_UNAVAILABLE = "job_locks_unavailable"
JOB_LOCKS_AVAILABLE = "job_locks_available"
JOB_LINES_LOST = "job_lines_lost"
HANDLERS_REFUSED = "handlers_refused"
JOBS_REFUSED = "jobs_refused"
NODE_ID_SHARED = "node_id_shared"
DOORBELL_UNAVAILABLE = "doorbell_unavailable"
DOORBELL_AVAILABLE = "doorbell_available"
LANE_PAUSED = "lane_paused"
LANE_RESUMED = "lane_resumed"
CONFIG_WARNING = "config_warning"
LIBRARY_MESSAGE = "library_message"
LOG_LINES_LOST = "log_lines_lost"

EVENTS: Mapping[str, str] = {
    SUPERVISOR_STARTED: "the supervisor runs and is about to fork its workers",
    SUPERVISOR_STOPPED: "the supervisor is about to end, with exit status `status`",
    WORKER_STARTED: "a worker process runs",
    WORKER_EXITED: "a worker process has ended, how is in `how`; an error where it ended badly",
    WORKER_RESTARTING: "the worker's slot gets a new process in `delay_s`; `failures` in a row so far",
    WORKER_CRASHED: "a worker ends because of an exception that nothing caught",
    WORKER_KILLED: "the supervisor killed a worker that had not ended in time",
    WORKER_HUNG: "a worker has been silent for `silent_s`: its threads are dumped, then it is killed and replaced",
    WORKER_REFUSED: "a worker ended because a person must change something; everything else is stopped too",
    WORKER_ABANDONED: "a killed worker does not end (uninterruptible sleep); the supervisor ends without it",
    WORKER_START_FAILED: "the system refused a new process; tried again after `delay_s`",
    WORKER_BATCH_FAILED: "a settle and claim was rolled back several times (deadlock, lock wait); it is made again, "
    "which is said once",
    WORKER_STATUS: "on SIGUSR1: what a worker is doing, since when, when it last beat, what it holds and has done",
    STRANGER_REAPED: "a process that is no worker was inherited and has ended (as PID 1 in a container)",
    RELOAD_STARTED: "SIGHUP: the configuration is read again",
    RELOAD_REFUSED: "the new configuration cannot be used, nothing has changed; one line for each problem",
    RELOAD_STOPPED: "`worker` did not come up with the new settings and goes back to the old ones; `renewed` workers "
    "have the new ones, `kept` the old ones",
    RELOAD_FINISHED: "every worker runs with the new settings",
    DRAIN_STARTED: "nothing new is claimed; what is in flight is finished, for at most `limit_s`",
    DRAIN_HURRIED: "a second signal: everything ends at once",
    DRAIN_FINISHED: "what was in flight is finished or released",
    OUTBOX_DELIVERED: "an event is delivered",
    OUTBOX_PUBLISH_RETRYABLE: "publishing an event failed; it will be tried again",
    OUTBOX_DEAD_LETTER: "an event became a dead letter: status `failed`, a person decides",
    ROBOT_OUTBOX_STALE_DISCARDED: "`count` events were older than `stale_discard_after` when their turn came, and are "
    "deleted; one of them is shown. At level debug each has a line of its own, without `count`",
    ROBOT_OUTBOX_CLEANUP_DELETED: "a round of cleanup deleted `active` unpublished and `terminal` finished rows; "
    "`is_complete`: nothing that old is left",
    LEASE_LOST: "a settle changed nothing, since the claim no longer held; another worker has the event",
    EVENT_GONE: "a settle found no row: the event was deleted while it was published",
    BREAKER_OPENED: "a publisher failed with several different events in a row: only probes are sent to it",
    BREAKER_CLOSED: "a publisher accepts events again",
    DATABASE_UNAVAILABLE: "the database is away or read-only; tried again with growing pauses",
    DATABASE_AVAILABLE: "the database is back",
    DATABASE_REFUSED: "the database answers but will not serve, and a retry will not mend it; the text says what to do",
    PUBLISHER_REFUSED: "a publisher cannot be set up as configured; the text says what to do",
    ADMIN_LISTENS: "the admin role answers at `address` and at `socket`",
    ADMIN_CLOSED: "`address` can be reached from other machines and no token is configured: metrics and health only",
    ADMIN_CHANGED: "the admin API changed something: `by` (a token's name, or `admin.socket`), `what`",
    ADMIN_FAILED: "a request to the admin API ended in an exception that nothing expected; please report it",
    METRICS_UNAVAILABLE: "the metrics' folder cannot be written: events are relayed all the same, numbers are missing",
    METRICS_AVAILABLE: "the metrics' folder can be written again",
    BRIDGE_RETRYABLE: "the bridge could not do a message; the queue delivers it again",
    BRIDGE_DEAD_LETTER: "the bridge gave a message up: it is among the dead letters of the queue, a person decides",
    BRIDGE_HELD: "a message failed by the fault of Tencent IM or of the configuration: it is kept and tried again, no "
    "attempt counted; said once for each reason",
    BRIDGE_STOPPED: "Tencent IM fails for everything: only probes are sent, and nothing more is taken from the queue",
    BRIDGE_RESUMED: "Tencent IM accepts messages of the bridge again",
    SUBSCRIPTION_UNAVAILABLE: "the queue that the bridge reads, or its memory of what is done, is away; tried again",
    SUBSCRIPTION_AVAILABLE: "the queue that the bridge reads is back",
    JOB_MOUNTED: "the job's ticks are heeded on this node from now on",
    JOB_CHANGED: "a job that is mounted was changed in its table",
    JOB_UNMOUNTED: "the job was paused, unpublished or deleted: no more ticks on this node; a run that is under way "
    "goes on to its end",
    JOB_REFUSED: "a job cannot be mounted, why is in `error`; said once for each reason",
    JOB_FAILED: "a run of the job failed, and the one before had not; every run is in the job log",
    JOB_RECOVERED: "a run of the job succeeded, after one or more that failed",
    JOB_TICKS_MISSED: "ticks came too late to run: the clock was set forwards, or the process or the machine stood "
    "still",
    JOB_RUNS_FULL: "as many runs go on at once as there may be: ticks are skipped until one ends",
    JOB_INTERRUPTED: "runs were cut off by the end of their process; the job log says interrupted",
    JOB_LOCK_LOCAL: "without `redis.url` the locks of jobs hold for this node only: jobs that may not overlap must run "
    "on one node",
    JOB_LOCK_LOST: "a run lost its lock while it went on, so that another one may begin beside it",
    JOB_LOCK_FOREIGN: "a job's lock is held by something that is no run of this database, what to do is in `error`; "
    "said once for each reason",
    JOB_LOCKS_UNAVAILABLE: "Redis is away, or refuses locks: ticks of jobs that need a lock are skipped",
    JOB_LOCKS_AVAILABLE: "Redis answers again, and jobs get their locks",
    JOB_LINES_LOST: "`count` lines of the job log were lost: the database was away for long, or refused them",
    HANDLERS_REFUSED: "a module of `jobs.handlers` cannot be used; the text says what to do",
    JOBS_REFUSED: "the tables of jobs cannot be used, the text says what to do; looked at again every minute, while "
    "events are relayed",
    NODE_ID_SHARED: "another process has `partitions` of the ordered lane under this worker's very name: two daemons "
    "have the same `node_id`, and order is not certain; give each node its own and restart it",
    DOORBELL_UNAVAILABLE: "a worker cannot listen to the lane's doorbell at Redis: events wait for its next look, at "
    "most `poll_interval`; tried again with growing pauses",
    DOORBELL_AVAILABLE: "a worker listens to the lane's doorbell again",
    LANE_PAUSED: "the lane is paused: nothing new is claimed",
    LANE_RESUMED: "the lane is no longer paused",
    CONFIG_WARNING: "something in the configuration was corrected or deserves a look",
    LIBRARY_MESSAGE: "a message of a library or of your own publisher's code: `logger`, `message`",
    LOG_LINES_LOST: "standard error took no lines for a while: `count` of this process are missing before this one",
}
"""Every event name and what it says."""

LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

_LOGGER = logging.getLogger("outboxd")


def configure(level: str, format: str, node_id: str) -> None:
    """Send the log to standard error, from now on and in the children forked later.

    level: debug, info, warning or error. format: json or console. Libraries' lines come along, from info up.
    """
    plug_standard_descriptors()
    for before in tuple(logging.root.handlers):
        logging.root.removeHandler(before)
    handler = Handler(node_id, (logging.WARNING, LOG_LINES_LOST), library_event=LIBRARY_MESSAGE)
    logging.root.addHandler(handler)
    change(level, format)


def change(level: str, format: str) -> None:
    """Another level and format of what `configure` has set up; from now on, and in the children forked later."""
    for handler in logging.root.handlers:
        if isinstance(handler, Handler):
            handler.line_of = console_line if format == "console" else json_line
    logging.root.setLevel(max(LEVELS[level], logging.INFO))
    _LOGGER.setLevel(LEVELS[level])


def bind(worker: str) -> None:
    """Put the name into every later line of this process: `worker`. Called first of all in a forked child."""
    for handler in logging.root.handlers:
        if isinstance(handler, Handler):
            handler.bind(worker)


def is_enabled(level: int) -> bool:
    """Would a line of that level (logging.DEBUG, ...) be written? Ask before collecting fields for every event."""
    return _LOGGER.isEnabledFor(level)


def debug(event: str, /, **fields: object) -> None:
    """For whoever looks for something: one line for each event relayed, for each turn."""
    log(logging.DEBUG, event, **fields)


def info(event: str, /, **fields: object) -> None:
    """A change of state that is as it should be."""
    log(logging.INFO, event, **fields)


def warning(event: str, /, **fields: object) -> None:
    """Something is wrong that outboxd deals with."""
    log(logging.WARNING, event, **fields)


def error(event: str, /, *, exception: BaseException | None = None, **fields: object) -> None:
    """A person must act. exception: its text becomes `error`, and its traceback goes along."""
    if exception is not None:
        fields = {"error": f"{type(exception).__name__}: {exception}", **fields, "traceback": exception}
    log(logging.ERROR, event, **fields)


def log(level: int, event: str, /, **fields: object) -> None:
    """Write one line: one of EVENTS, and its facts as fields. A field `worker` stands in place of the bound name.

    Never raises and never blocks for long, whatever the fields and standard error are.
    """
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, event, extra={"fields": fields})
