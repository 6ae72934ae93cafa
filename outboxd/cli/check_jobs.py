"""What `outboxd check` finds of scheduled jobs: their tables, the right to write them, expressions without ticks; where
jobs run, what the role and the built-in handlers need beside that."""

import contextlib
import secrets
from collections.abc import Iterable

from outboxd.config.schema import Config, Lane
from outboxd.errors import PublisherError, StoreRefused, StoreUnavailable
from outboxd.explain.words import counted
from outboxd.redact import clip
from outboxd.schedule import book, log_clean, rules, runs
from outboxd.schedule.records import JobStatus
from outboxd.store import statements
from outboxd.store.connection import Connection

SHOWN = 3
LOCK_S = 10.0
NO_JOB = 0
"""Has a lock that no job's run wants."""
NO_DELETE = "DELETE FROM {table} WHERE id = 0"
"""Primary key. No row has it; where nothing may be deleted it is refused all the same."""


def look(connection: Connection) -> tuple[str, str]:
    """(how many there are, what is wrong with those that run, "" if nothing is). Raises StoreError."""
    page = book.page(connection, limit=rules.MOST_JOBS)
    connection.begin()
    try:
        book.Book(connection).execute("keep_all")
    except StoreUnavailable:  # a server that takes no writes is told of with the lanes' tables
        pass
    finally:
        connection.rollback()
    running = [job for job in page.jobs if job.status is JobStatus.RUNNING]
    bad = [(job, why) for job in running if (why := rules.why_bad_cron(job.cron_expression))]
    text = f"{counted(page.count, 'job')}, {len(running):,} running"
    if not bad:
        return text, ""
    listed = [f"{rules.named(job)}: {clip(why, 200)}" for job, why in bad[:SHOWN]]
    more = f"; and {len(bad) - SHOWN:,} more" if len(bad) > SHOWN else ""
    return text, f"no ticks, since the cron expression cannot be used: {'; '.join(listed)}{more}"


def try_to_run(connection: Connection, lanes: Iterable[Lane]) -> None:
    """What the role writes, and what LogClean and OutboxClean delete; nothing is changed. Raises StoreError."""
    connection.begin()
    try:
        runs.check(connection)
        _try_to_delete(connection, "LogClean", "outboxd_job_log", log_clean.NO_DELETE)
        for lane in lanes:
            if lane.retention_s > 0:
                sql = statements.render(NO_DELETE, connection.dialect, lane.name, lane.columns)
                _try_to_delete(connection, f"retention (OutboxClean), lane {lane.name}", lane.name, sql)
    except StoreUnavailable:  # as in `look`
        pass
    finally:
        connection.rollback()


def _try_to_delete(connection: Connection, what: str, table: str, sql: str) -> None:
    try:
        connection.execute(sql)
    except StoreRefused as error:
        raise StoreRefused(f"{what} needs DELETE on {table}: {error}") from error


def try_to_lock(config: Config) -> str:
    """May we take and free the locks of jobs in Redis? One that no job has. Raises LockUnavailable, PublisherError."""
    from outboxd.jobs.lock import RedisLock, mark_of

    if config.redis.url is None:
        raise PublisherError("redis.url: none is set")
    with contextlib.closing(RedisLock(config.redis.url, mark_of(config.database), LOCK_S)) as lock:
        token = lock.mark + secrets.token_hex(16)
        if lock.take(NO_JOB, token):  # else another check has it just now
            lock.renew(NO_JOB, token)
            lock.free(NO_JOB, token)
    return "redis lets us take and free them"
