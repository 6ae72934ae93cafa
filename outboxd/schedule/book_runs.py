"""Runs of jobs, over a Connection: one is asked for, and the log of all of them is read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outboxd.schedule.book import Book, changing
from outboxd.schedule.records import Run, RunStatus
from outboxd.schedule.rules import MOST_WAITING, BadJob, TooMany, named
from outboxd.store.connection import Connection, Row
from outboxd.store.desk_find import text

WINDOW = 500
"""Lines of the log that one statement looks at."""
LOOKED_AT = 20_000
"""Lines that are looked at for one page."""
SLACK_MS = 3_600_000
"""The order of ids is that of fire_at_ms, but for a clock that was set and for what waited for a lock."""
TRIGGERED_BY_CHARACTERS = 128

_ABOVE_ALL = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Which runs; None: any. since_ms (included) to until_ms (not): of fire_at_ms, UTC epoch milliseconds."""

    job_id: int | None = None
    status: RunStatus | None = None
    since_ms: int | None = None
    until_ms: int | None = None


def run_status_named(name: str) -> RunStatus:
    """Raises BadJob."""
    try:
        return RunStatus(name)
    except ValueError:
        raise BadJob("no run has that status", f"write one of {', '.join(RunStatus)}") from None


def request_run(connection: Connection, job_id: int, by: str) -> int:
    """Ask for one run, now, on whichever node takes it up; the run's id. Nothing about the job changes.

    by: who asks, for the log. Raises NoSuchJob; TooMany where MOST_WAITING wait already.
    """

    def act(book: Book) -> int:
        job = book.job(job_id)
        if len(book.query("waiting", {"job": job_id, "most": MOST_WAITING})) == MOST_WAITING:
            todo = "wait until some have begun; if none does, no daemon with jobs.enabled runs"
            raise TooMany(f"{MOST_WAITING} runs of {named(job)} wait for a node already", todo)
        book.execute("request", {"job": job_id, "name": job.name, "who": by[:TRIGGERED_BY_CHARACTERS]})
        return book.last_id()

    return changing(connection, act)


def run(connection: Connection, run_id: int) -> Run | None:
    """One run, None if its line is gone."""
    rows = Book(connection).query("run", {"id": run_id})
    return run_of(rows[0]) if rows else None


def log_page(
    connection: Connection, wanted: LogFilter, limit: int = 50, before_id: int | None = None, look_at: int = LOOKED_AT
) -> tuple[list[Run], int | None]:
    """Runs with ids below before_id, newest first, and the before_id of what follows, None at the end. A page may be
    short, or empty, before that: only about look_at lines are looked at.
    """
    book = Book(connection)
    params = {"job": wanted.job_id, "status": _value(wanted.status), "since": wanted.since_ms, "until": wanted.until_ms}
    found: list[Run] = []
    looked = 0
    for ids in _windows(book, wanted, _ABOVE_ALL if before_id is None else before_id):
        found += [run_of(row) for row in book.query("log_rows", params, ids)]
        looked += len(ids)
        if len(found) > limit:
            return found[:limit], found[limit - 1].id
        if wanted.since_ms is not None and int(book.query("log_time", {}, ids)[0][0]) < wanted.since_ms - SLACK_MS:
            break
        if looked >= look_at:
            return found, ids[-1]
    return found, None


def _windows(book: Book, wanted: LogFilter, before_id: int) -> Iterator[Sequence[int]]:
    """Ids of lines, window by window, along the index that leaves the fewest."""
    name = "log_all"
    if wanted.status in (RunStatus.REQUESTED, RunStatus.RUNNING) or (wanted.status and wanted.job_id is None):
        name = "log_of_status"  # few are open
    elif wanted.job_id is not None:
        name = "log_of_job"
    params = {"job": wanted.job_id, "status": _value(wanted.status), "most": WINDOW}
    while ids := [int(row[0]) for row in book.query(name, {**params, "before": before_id})]:
        yield ids
        before_id = ids[-1]


def _value(status: RunStatus | None) -> str | None:
    """A driver takes plain texts only."""
    return None if status is None else status.value


def run_of(row: Row) -> Run:
    """A row of the statements `run` and `log_rows`."""
    key, job_id, name, fire_ms, status, tick_ms, by, node, started_ms, duration_ms, alive_ms, message, exception = row
    return Run(
        id=int(key),
        job_id=int(job_id),
        name=text(name),
        fire_at_ms=int(fire_ms),
        status=RunStatus(text(status)),
        tick_ms=None if tick_ms is None else int(tick_ms),
        triggered_by=text(by),
        node_id=text(node),
        started_at_ms=int(started_ms),
        duration_ms=int(duration_ms),
        alive_until_ms=int(alive_ms),
        message=text(message),
        exception=text(exception),
    )
