"""What operators do with scheduled jobs, over a Connection: add, change, start, stop, delete. Runs are in book_runs.py.

A change is one transaction that holds the job's row, so that two of them never undo each other; the nodes see it by
status and updated_at_ms, which grows with every change.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from outboxd.schedule.records import Job, JobStatus, Policy
from outboxd.schedule.rules import (
    GREATEST_ID,
    MOST_JOBS,
    MOST_WAITING,
    NewJob,
    NoSuchJob,
    TooMany,
    as_written,
    check_cron,
    check_new,
    named,
    status_named,
    why_bad_cron,
)
from outboxd.store import statements
from outboxd.store.connection import NO_PARAMS, Connection, Params, Row
from outboxd.store.desk_find import repeated, text
from outboxd.store.lists import listed

Answer = TypeVar("Answer")

_PARTS = {
    "mysql": {
        "{for_update}": "FOR UPDATE",
        "{last_id}": "LAST_INSERT_ID()",
        "{by_key}": "FORCE INDEX (PRIMARY)",
        "{runs_index}": "FORCE INDEX (runs)",
        "{open_index}": "FORCE INDEX (open)",
    },
    "sqlite": {
        "{for_update}": "",
        "{last_id}": "last_insert_rowid()",
        "{by_key}": "",
        "{runs_index}": "",
        "{open_index}": "",
    },
}
"""What the two dialects write differently. SQLite finds the indexes by itself: they have no names of ours there."""


@dataclass(frozen=True, slots=True)
class Updated:
    """job: as it stands now. changed: names of NewJob's fields that were. bad_cron: why it runs no longer, "" where
    nothing is wrong.
    """

    job: Job
    changed: tuple[str, ...]
    bad_cron: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """jobs: in the order of their ids. next_after_id: of what follows, None at the end. count: of all that match."""

    jobs: Sequence[Job]
    next_after_id: int | None
    count: int


class Book:
    """The statements on one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def sql(self, name: str, ids: Sequence[int] = ()) -> str:
        """One statement, ready to run."""
        texts, dialect = statements.load("jobs"), self.connection.dialect
        sql = texts[name].replace("{later}", texts["later"]).replace("{ids}", listed(ids))
        for part, replacement in _PARTS[dialect].items():
            sql = sql.replace(part, replacement)
        return sql.replace("{now}", statements.NOW[dialect])

    def query(self, name: str, params: Params = NO_PARAMS, ids: Sequence[int] = ()) -> Sequence[Row]:
        return self.connection.query(self.sql(name, ids), params)

    def execute(self, name: str, params: Params = NO_PARAMS, ids: Sequence[int] = ()) -> int:
        return self.connection.execute(self.sql(name, ids), params)

    def last_id(self) -> int:
        """Of the row that was added last."""
        return int(self.query("last_id")[0][0])

    def job(self, job_id: int) -> Job:
        """Raises NoSuchJob."""
        rows = self.query("job", {"id": job_id}) if 0 < job_id <= GREATEST_ID else ()
        if not rows:
            raise NoSuchJob(f"there is no job {job_id}", LIST_THEM)
        job = job_of(rows[0])
        if job.deleted_at_ms:
            raise NoSuchJob(f"{named(job)} was deleted", LIST_THEM)
        return job


LIST_THEM = "`outboxd jobs list` shows those that are there"


def changing(connection: Connection, act: Callable[[Book], Answer]) -> Answer:
    """Act in one transaction; once more where a deadlock or lock wait undid it."""
    return repeated(lambda: _in_transaction(connection, act))


def _in_transaction(connection: Connection, act: Callable[[Book], Answer]) -> Answer:
    connection.begin()
    try:
        answer = act(Book(connection))
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
    return answer


def add(connection: Connection, job: NewJob) -> int:
    """Add a job, unpublished; its id. Raises BadJob, TooMany."""
    check_new(job)
    check_cron(job.cron_expression)

    def act(book: Book) -> int:
        if int(book.query("count_all")[0][0]) >= MOST_JOBS:
            raise TooMany(f"there are {MOST_JOBS:,} jobs, as many as there may be", "delete one that is not needed")
        book.execute("add", {**_params(job), "status": int(JobStatus.UNPUBLISHED)})
        return book.last_id()

    return changing(connection, act)


def update(connection: Connection, job_id: int, changes: Mapping[str, object]) -> Updated:
    """Change some fields, by NewJob's names; the nodes mount a running job anew.

    A running job with a cron expression that cannot be used is changed, too, and paused. Raises BadJob, NoSuchJob.
    """

    def act(book: Book) -> Updated:
        job = book.job(job_id)
        wanted = replace(as_written(job), **changes)  # type: ignore[arg-type]  # check_new looks at what it is
        check_new(wanted)
        bad_cron = why_bad_cron(wanted.cron_expression)
        if bad_cron and job.status is not JobStatus.RUNNING:
            check_cron(wanted.cron_expression)
        status = JobStatus.PAUSED if bad_cron else job.status
        book.execute("update", {**_params(wanted), "status": int(status), "id": job_id})
        changed = tuple(name for name in changes if getattr(wanted, name) != getattr(as_written(job), name))
        return Updated(book.job(job_id), changed, bad_cron)

    return changing(connection, act)


def set_status(connection: Connection, job_id: int, status: int) -> Job:
    """1 mounts it on every node, 0 and 2 unmount it; a run that goes on is not cut off. Raises BadJob, NoSuchJob."""
    wanted = status_named(status)

    def act(book: Book) -> Job:
        job = book.job(job_id)
        if wanted is JobStatus.RUNNING:
            check_cron(job.cron_expression)
        if wanted is not job.status:
            book.execute("set_status", {"status": int(wanted), "id": job_id})
        return book.job(job_id)

    return changing(connection, act)


def pause(connection: Connection, job_id: int) -> Job:
    """No ticks any more. Raises NoSuchJob."""
    return set_status(connection, job_id, JobStatus.PAUSED)


def resume(connection: Connection, job_id: int) -> Job:
    """Ticks from now on, whatever it was before. Raises BadJob, NoSuchJob."""
    return set_status(connection, job_id, JobStatus.RUNNING)


def delete(connection: Connection, job_id: int) -> Job:
    """Unmount it for good, and drop the runs that were asked for; its log stays. The job as it is then.

    Raises NoSuchJob.
    """

    def act(book: Book) -> Job:
        book.job(job_id)
        book.execute("delete", {"id": job_id})
        waiting = [int(row[0]) for row in book.query("waiting", {"job": job_id, "most": MOST_WAITING + 1})]
        if waiting:
            book.execute("drop_requests", {"why": "the job was deleted"}, waiting)
        return job_of(book.query("job", {"id": job_id})[0])

    return changing(connection, act)


def get(connection: Connection, job_id: int) -> Job:
    """Raises NoSuchJob."""
    return Book(connection).job(job_id)


def page(
    connection: Connection, *, part: str | None = None, status: int | None = None, limit: int = 50, after_id: int = 0
) -> Page:
    """Jobs behind an id. part: of the name, in any case. Raises BadJob."""
    pattern = None if part is None else f"%{part.replace('!', '!!').replace('%', '!%').replace('_', '!_')}%"
    wanted: Params = {"part": pattern, "status": None if status is None else int(status_named(status))}
    book = Book(connection)
    rows = book.query("page", {**wanted, "after": after_id, "most": limit + 1})
    jobs = [job_of(row) for row in rows[:limit]]
    count = int(book.query("count", wanted)[0][0])
    return Page(jobs, jobs[-1].id if len(rows) > limit else None, count)


def mounted(connection: Connection) -> list[int]:
    """Ids of the running jobs."""
    return [int(row[0]) for row in Book(connection).query("mounted")]


def now_ms(connection: Connection) -> int:
    """The database's time."""
    return int(Book(connection).query("now")[0][0])


def job_of(row: Row) -> Job:
    """A row of the statements `job` and `page`. What is in no range of ours is what comes nearest to it."""
    (key, name, cron, url, params, policy, sync, status, remark, created_ms, updated_ms, deleted_ms) = row
    return Job(
        id=int(key),
        name=text(name),
        cron_expression=text(cron),
        url=text(url),
        params=text(params),
        execute_policy=Policy(int(policy)) if int(policy) in tuple(Policy) else Policy.SKIP,
        is_sync=bool(sync),
        status=JobStatus(int(status)) if int(status) in tuple(JobStatus) else JobStatus.UNPUBLISHED,
        remark=text(remark),
        created_at_ms=int(created_ms),
        updated_at_ms=int(updated_ms),
        deleted_at_ms=int(deleted_ms),
    )


def _params(job: NewJob) -> dict[str, object]:
    return {
        "name": job.name,
        "cron": job.cron_expression,
        "url": job.url,
        "params": job.params,
        "policy": job.execute_policy,
        "sync": job.is_sync,
        "remark": job.remark,
    }


