"""What `outboxd check` finds of scheduled jobs: their tables, the right to write them, expressions without ticks."""

from outboxd.errors import StoreUnavailable
from outboxd.explain.words import counted
from outboxd.redact import clip
from outboxd.schedule import book, rules
from outboxd.schedule.records import JobStatus
from outboxd.store.connection import Connection

SHOWN = 3


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
