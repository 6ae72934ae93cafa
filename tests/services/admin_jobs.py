"""Jobs of a running daemon, written and read over its admin API."""

from typing import Any

from outboxd.store.connection import Connection
from tests.services.admin_running import Running, ok

YEARLY = "0 0 0 1 1 *"
NO_JOBS = {"jobs": {"enabled": False}}
"""A section of the configuration: nobody takes up what is asked for, so that it can be looked at."""
NEW = {"name": "nightly", "cronExpression": YEARLY, "url": "HelloWorld"}


def emptied(running: Running) -> Connection:
    """To its database, which has no job and no run any more."""
    for table in ("outboxd_job", "outboxd_job_log"):
        running.table.connection.execute(f"DELETE FROM {table}")
    return running.table.connection


def add(running: Running, **changes: object) -> int:
    """A new job's id."""
    return int(ok(running.token.post("/api/job/add", {**NEW, **changes}))["id"])


def info(running: Running, job_id: int) -> dict[str, Any]:
    found: dict[str, Any] = ok(running.owner.get(f"/api/job/info/{job_id}"))
    return found
