"""What a scheduled job is, and one run of it: rows of outboxd_job and outboxd_job_log. Frozen data, no I/O."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class JobStatus(IntEnum):
    """Of a job: only a running one has ticks."""

    UNPUBLISHED = 0
    RUNNING = 1
    PAUSED = 2


class Policy(IntEnum):
    """What becomes of a tick while the last run goes on. 2 and 3 mean the same: they are kept apart for tables and
    programs that know both.

    IMMEDIATE: it runs beside it, and on every node (`jobs.once_per_tick`: on one). SINGLE, SKIP: it is skipped; a tick
    belongs to one node, and its run needs the job's lock.
    """

    IMMEDIATE = 1
    SINGLE = 2
    SKIP = 3


class RunStatus(StrEnum):
    """Of a run. A `requested` one (run once) waits for a node; `skipped` ones never began; `interrupted` ones were cut
    off by the end of their process, or by a shutdown that could not wait."""

    REQUESTED = "requested"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    INTERRUPTED = "interrupted"


CRON = "cron"
"""`Run.triggered_by` of a tick; else it tells who asked."""
SHOWN_CHARACTERS = 1000
"""Of an answer, a handler's result or an exception, kept in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A row of outboxd_job. url: http(s)://…, or the name of a handler. is_sync: its next tick is skipped while it runs
    on this node; else each run has a thread. Times are UTC epoch milliseconds; deleted_at_ms 0: it is there.
    """

    id: int
    name: str
    cron_expression: str
    url: str
    params: str = ""
    execute_policy: Policy = Policy.IMMEDIATE
    is_sync: bool = True
    status: JobStatus = JobStatus.UNPUBLISHED
    remark: str = ""
    created_at_ms: int = 0
    updated_at_ms: int = 0
    deleted_at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row of outboxd_job_log. tick_ms: the nominal time of a tick that belongs to one node over all (unique with the
    job), None for what need not be unique. fire_at_ms: the nominal time, or when it was asked for. alive_until_ms: a
    running one whose node has not said until then that it goes on is given up as interrupted.
    """

    id: int
    job_id: int
    name: str
    fire_at_ms: int
    status: RunStatus
    tick_ms: int | None = None
    triggered_by: str = CRON
    node_id: str = ""
    started_at_ms: int = 0
    duration_ms: int = 0
    alive_until_ms: int = 0
    message: str = ""
    exception: str = ""
