"""The job log as the role that runs jobs writes it, over a Connection. Each call is one short transaction of its own,
unless the caller has begun one; times are the database's. Raises what a Connection raises.

Invariants:
- A tick with a `tick_ms` has one row over all nodes, written by whoever came first: that node has the tick.
- A row is `running` only while its node says so at least every ALIVE_MS; after that anybody closes it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from outboxd.schedule.book import job_of
from outboxd.schedule.records import Job, Run, RunStatus
from outboxd.store import statements
from outboxd.store.connection import NO_PARAMS, Connection, Params, Row
from outboxd.store.lists import chunks, listed

ALIVE_MS = 60_000
"""For how long a running row stands without a word of its node."""
REQUEST_MS = 600_000
"""How long a run that was asked for waits for a node."""
CLOSED_AT_ONCE = 100
NOBODY_TOOK_IT = f"no node took it within {REQUEST_MS // 60_000} minutes"
CUT_OFF = "its process ended without a word: it crashed, was killed, or lost its machine"


class Request(NamedTuple):
    """A run that somebody asked for. age_ms: by the database's clock."""

    run_id: int
    job_id: int
    name: str
    fire_at_ms: int
    triggered_by: str
    age_ms: int


def _sql(connection: Connection, name: str, **parts: str) -> str:
    sql = statements.load("job_runs")[name].replace("{now}", statements.NOW[connection.dialect])
    for part, text in parts.items():
        sql = sql.replace(f"{{{part}}}", text)
    return sql


def _query(connection: Connection, name: str, params: Params = NO_PARAMS) -> Sequence[Row]:
    return connection.query(_sql(connection, name), params)


def _execute(connection: Connection, name: str, params: Params = NO_PARAMS) -> int:
    return connection.execute(_sql(connection, name), params)


def check(connection: Connection) -> None:
    """Raises StoreRefused, with the remedy, where tables or rights are missing."""
    _query(connection, "check_jobs")
    _execute(connection, "check_update")
    _execute(connection, "check_insert")


def running_jobs(connection: Connection, most: int) -> list[Job]:
    """Jobs with status 1, the oldest first."""
    return [job_of(row) for row in _query(connection, "running_jobs", {"most": most})]


def find_job(connection: Connection, job_id: int) -> Job | None:
    """In any state but deleted."""
    rows = _query(connection, "job", {"id": job_id})
    return job_of(rows[0]) if rows else None


def add(connection: Connection, run: Run, age_ms: int = 0) -> int:
    """A row for a run of this node, whatever its status; its id, or 0 where the tick is another node's. run.id,
    started_at_ms and alive_until_ms are not read: it began age_ms ago.
    """
    matched = _execute(connection, f"add_{connection.dialect}", {
        "job": run.job_id, "name": run.name, "tick": run.tick_ms, "fire": run.fire_at_ms, "status": run.status.value,
        "who": run.triggered_by, "node": run.node_id, "began": int(run.status is not RunStatus.SKIPPED), "age": age_ms,
        "duration": run.duration_ms, "alive": int(run.status is RunStatus.RUNNING), "for": ALIVE_MS,
        "message": run.message, "exception": run.exception,
    })  # fmt: skip
    return int(_query(connection, f"last_id_{connection.dialect}")[0][0]) if matched else 0


def finish(connection: Connection, run: Run) -> bool:
    """How it ended, in the row run.id. False: the row is not there any more, or says already how."""
    return bool(_execute(connection, "finish", {
        "id": run.id, "status": run.status.value, "duration": run.duration_ms, "message": run.message,
        "exception": run.exception, "began": int(run.status is not RunStatus.SKIPPED),
    }))  # fmt: skip


def keep_alive(connection: Connection, run_ids: Sequence[int]) -> None:
    """They go on; one that was given up meanwhile runs again."""
    for some in chunks(sorted(run_ids)):
        connection.execute(_sql(connection, "keep_alive", ids=listed(some)), {"for": ALIVE_MS})


def requested(connection: Connection, most: int) -> list[Request]:
    """What waits for a node, the oldest first."""
    return [Request(*row) for row in _query(connection, "requested", {"most": most})]


def take(connection: Connection, run_id: int, node_id: str) -> bool:
    """Was it this node that took it?"""
    return bool(_execute(connection, "take", {"id": run_id, "node": node_id, "for": ALIVE_MS}))


def drop(connection: Connection, run_id: int, node_id: str, why: str) -> bool:
    """Was it this node that skipped it?"""
    return bool(_execute(connection, "drop", {"id": run_id, "node": node_id, "why": why}))


def close_own(connection: Connection, node_id: str) -> list[str]:
    """Close as interrupted what the last process of this node left running, some at a time; the names of their jobs,
    one for each run. To be called before this process runs anything.
    """
    return _close(connection, "own_running", "close_own", {"node": node_id})


def close_expired(connection: Connection) -> list[str]:
    """The same for what no node has said to be alive in time."""
    return _close(connection, "expired", "close_expired", {})


def _close(connection: Connection, find: str, close: str, params: Params) -> list[str]:
    closing = {**params, "why": CUT_OFF, "for": ALIVE_MS}
    rows = _query(connection, find, {**params, "most": CLOSED_AT_ONCE})
    return [str(name) for run_id, name in rows if _execute(connection, close, {**closing, "id": run_id})]
