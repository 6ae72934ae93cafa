"""Jobs are added, changed, started, stopped and deleted, on every kind of database."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from outboxd.config.schema import Database, Lane
from outboxd.errors import StoreConflict, StoreRefused
from outboxd.schedule import book, book_runs, rules
from outboxd.schedule.records import Job, JobStatus, Policy
from outboxd.schedule.rules import LIMITS, BadJob, NewJob, NoSuchJob, TooMany
from outboxd.store import connect
from outboxd.store.connection import Connection
from outboxd.store.migrate import create_missing, init_db, print_sql
from outboxd.store.migrations import FIRST_JOBS
from tests.services.wait import let_pass

CRON, BAD_CRON = "0 30 2 * * *", "30 2 * * *"


def new(**changes: object) -> NewJob:
    """A job that nothing is wrong with, but for what the test says."""
    usual: dict[str, object] = {"name": "nightly", "cron_expression": CRON, "url": "HelloWorld"}
    return NewJob(**{**usual, **changes})  # type: ignore[arg-type]  # each test's words are NewJob's own


@pytest.fixture
def connection(database: Database, lane: Lane) -> Iterator[Connection]:
    """To a database as `init-db` makes it, without the jobs that are there from the start."""
    made = connect(database)
    init_db(made, [lane])
    made.execute("DELETE FROM outboxd_job")
    yield made
    made.close()


def running(connection: Connection, **changes: object) -> Job:
    return book.resume(connection, book.add(connection, new(**changes)))


def runs(connection: Connection, **wanted: object) -> list[tuple[int, str]]:
    """(id of the job, status), newest first."""
    found, _ = book_runs.log_page(connection, book_runs.LogFilter(**wanted))  # type: ignore[arg-type]
    return [(run.job_id, run.status.value) for run in found]


def test_a_new_job_is_unpublished_and_as_it_was_written(connection: Connection) -> None:
    """Whatever characters it holds."""
    written = new(
        name="naïve 房间 🚀 ' \" % _ \\ ; -- <b>",
        url="https://shop.internal:8443/tick?a=1%202&b=:c",
        params='{\n\t"a": "%s :name {now} \U0001f600"}',
        execute_policy=3,
        is_sync=0,
        remark="why",
    )
    job = book.get(connection, book.add(connection, written))
    assert (job.status, job.deleted_at_ms) == (JobStatus.UNPUBLISHED, 0)
    assert rules.as_written(job) == written
    assert (job.execute_policy, job.is_sync) == (Policy.SKIP, False)
    assert 0 <= book.now_ms(connection) - job.created_at_ms < 60_000
    assert job.updated_at_ms == job.created_at_ms


@pytest.mark.parametrize("field", LIMITS)
def test_a_text_of_the_greatest_length_fits_and_a_longer_one_is_refused(connection: Connection, field: str) -> None:
    """In characters, as MySQL counts them."""
    longest = {"cron_expression": f"0{',0' * 122} 0 0 1 1 *", "url": "https://a/" + "x" * (LIMITS["url"] - 10)}
    text = longest.get(field, "🚀" * LIMITS[field])
    assert len(text) == LIMITS[field]
    job = book.get(connection, book.add(connection, new(**{field: text})))
    assert getattr(job, field) == text
    with pytest.raises(BadJob, match="is the most"):
        book.add(connection, new(**{field: text.ljust(LIMITS[field] + 1, "x")}))


def test_a_change_keeps_what_it_does_not_name_and_is_seen_by_its_time(connection: Connection) -> None:
    """Nodes compare updated_at_ms: two changes within a millisecond must differ, too."""
    job = running(connection, params="1", remark="r")
    seen = [job.updated_at_ms]
    for number in range(5):
        result = book.update(connection, job.id, {"params": str(number), "name": "other"})
        seen.append(result.job.updated_at_ms)
    assert seen == sorted(set(seen))
    assert (result.job.name, result.job.params, result.job.remark) == ("other", "4", "r")
    assert (result.changed, result.bad_cron, result.job.status) == (("params",), "", JobStatus.RUNNING)
    assert result.job.created_at_ms == job.created_at_ms
    ahead_ms = result.job.updated_at_ms + 3_600_000
    connection.execute("UPDATE outboxd_job SET updated_at_ms = :at WHERE id = :id", {"at": ahead_ms, "id": job.id})
    assert book.update(connection, job.id, {"params": "p"}).job.updated_at_ms > ahead_ms, "the clock was set back"
    seen_ms = book.get(connection, job.id).updated_at_ms
    assert seen_ms < book.pause(connection, job.id).updated_at_ms < book.delete(connection, job.id).updated_at_ms


def test_a_running_job_with_a_bad_cron_falls_to_paused_and_says_so(connection: Connection) -> None:
    """What was written is kept, for whoever mends it."""
    job = running(connection)
    result = book.update(connection, job.id, {"cron_expression": BAD_CRON})
    assert "six are needed" in result.bad_cron
    assert (result.job.status, result.job.cron_expression) == (JobStatus.PAUSED, BAD_CRON)
    assert book.mounted(connection) == []
    with pytest.raises(BadJob, match="six are needed"):
        book.resume(connection, job.id)
    assert book.get(connection, job.id).status is JobStatus.PAUSED
    mended = book.update(connection, job.id, {"cron_expression": CRON})
    assert (mended.job.status, mended.bad_cron) == (JobStatus.PAUSED, "")
    assert book.resume(connection, job.id).status is JobStatus.RUNNING


@pytest.mark.parametrize("status", [0, 2])
def test_a_bad_cron_is_refused_where_nothing_runs(connection: Connection, status: int) -> None:
    """There is nobody who would have to be stopped: the old one stays."""
    with pytest.raises(BadJob, match="six are needed"):
        book.add(connection, new(cron_expression=BAD_CRON))
    job = book.set_status(connection, book.add(connection, new()), status)
    with pytest.raises(BadJob, match="six are needed"):
        book.update(connection, job.id, {"cron_expression": BAD_CRON})
    assert book.get(connection, job.id) == job


def test_any_state_can_follow_any_other(connection: Connection) -> None:
    """0 unpublished, 1 running, 2 paused; the same one again changes nothing."""
    key = book.add(connection, new())
    for status in (1, 1, 2, 0, 2, 1, 0):
        assert book.set_status(connection, key, status).status == status
        assert book.mounted(connection) == ([key] if status == 1 else [])
    before = book.get(connection, key).updated_at_ms
    assert book.set_status(connection, key, 0).updated_at_ms == before
    assert [book.pause(connection, key).status, book.resume(connection, key).status] == [2, 1]
    with pytest.raises(BadJob, match="the status is 3"):
        book.set_status(connection, key, 3)


def test_a_deleted_job_is_unmounted_and_gone_but_its_log_stays(connection: Connection) -> None:
    """What was asked for and has not begun will not."""
    job, other = running(connection), running(connection, name="other")
    book_runs.request_run(connection, job.id, "me")
    book_runs.request_run(connection, other.id, "me")
    gone = book.delete(connection, job.id)
    assert (gone.status, bool(gone.deleted_at_ms)) == (JobStatus.UNPUBLISHED, True)
    assert book.mounted(connection) == [other.id]
    assert [found.id for found in book.page(connection).jobs] == [other.id]
    assert runs(connection) == [(other.id, "requested"), (job.id, "skipped")]
    acts = (
        lambda: book.get(connection, job.id),
        lambda: book.delete(connection, job.id),
        lambda: book.resume(connection, job.id),
        lambda: book.update(connection, job.id, {"name": "n"}),
        lambda: book_runs.request_run(connection, job.id, "me"),
    )
    for act in acts:
        with pytest.raises(NoSuchJob, match="was deleted"):
            act()


@pytest.mark.parametrize("key", [0, -1, 99, 2**63 - 1, 2**63, 2**200])
def test_a_job_that_never_was_is_not_found(connection: Connection, key: int) -> None:
    """However great a number somebody writes."""
    with pytest.raises(NoSuchJob, match="there is no job"):
        book.update(connection, key, {"name": "n"})


def test_jobs_are_listed_by_pages_and_by_what_they_are(connection: Connection) -> None:
    """A page begins behind an id, so that what comes or goes meanwhile shifts nothing."""
    keys = [book.add(connection, new(name=name)) for name in ("Alpha", "beta_1", "betax1", "100%")]
    book.resume(connection, keys[1])
    first = book.page(connection, limit=3)
    assert ([job.id for job in first.jobs], first.next_after_id, first.count) == (keys[:3], keys[2], 4)
    rest = book.page(connection, limit=3, after_id=keys[2])
    assert ([job.id for job in rest.jobs], rest.next_after_id) == ([keys[3]], None)
    assert [job.id for job in book.page(connection, status=1).jobs] == [keys[1]]
    parts = {"ALPH": keys[:1], "beta_": keys[1:2], "beta": keys[1:3], "%": keys[3:], "'": []}
    for part, expected in parts.items():
        assert [job.id for job in book.page(connection, part=part).jobs] == expected, part


def test_there_are_not_more_jobs_than_a_node_can_run(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """G9: each has a thread there; a deleted one makes room."""
    monkeypatch.setattr(book, "MOST_JOBS", 2)
    keys = [book.add(connection, new()) for _ in range(2)]
    with pytest.raises(TooMany, match="as many as there may be"):
        book.add(connection, new())
    book.delete(connection, keys[0])
    book.add(connection, new())


def test_a_change_waits_for_the_one_before_it(connection: Connection, database: Database) -> None:
    """What two people change at once is both there in the end."""
    key = book.add(connection, new())
    other = connect(database)
    other.begin()
    other.execute("UPDATE outboxd_job SET name = 'theirs' WHERE id = :id", {"id": key})
    with ThreadPoolExecutor() as pool:
        ours = pool.submit(book.update, connection, key, {"remark": "ours"})
        let_pass(0.5)
        assert not ours.done()
        other.commit()
        job = ours.result(timeout=20).job
    other.close()
    assert (job.name, job.remark) == ("theirs", "ours")


def test_a_lock_that_lasts_is_a_conflict_and_changes_nothing(connection: Connection, database: Database) -> None:
    """Whoever asked may ask again."""
    key = book.add(connection, new())
    other = connect(database)
    other.begin()
    other.execute("UPDATE outboxd_job SET name = 'theirs' WHERE id = :id", {"id": key})
    with pytest.raises(StoreConflict):
        book.pause(connection, key)
    other.rollback()
    other.close()
    assert book.get(connection, key).status is JobStatus.UNPUBLISHED
    assert book.pause(connection, key).status is JobStatus.PAUSED


# the jobs that are there from the start


def test_the_first_jobs_are_there_from_the_start_and_do_not_come_back(database: Database, lane: Lane) -> None:
    """They are ordinary jobs: whoever changed or deleted one is not overruled by the next `init-db`."""
    connection = connect(database)
    init_db(connection, [lane])
    found = book.page(connection).jobs
    assert [(job.name, job.url, job.cron_expression) for job in found] == [
        ("LogClean", "LogClean", "0 30 2 * * *"),
        ("OutboxClean", "OutboxClean", "0 0 3 * * *"),
    ]
    assert tuple(job.name for job in found) == FIRST_JOBS, "what init-db tells of"
    assert {(job.status, job.execute_policy) for job in found} == {(JobStatus.RUNNING, Policy.SINGLE)}
    assert all(job.created_at_ms > 1_700_000_000_000 for job in found)
    for job in found:
        rules.check_new(rules.as_written(job))
        book.delete(connection, job.id)
    init_db(connection, [lane])
    assert book.page(connection).jobs == []
    assert "outboxd_job" not in print_sql(connection.dialect, [lane], connection)
    connection.close()


def test_a_database_of_before_gets_tables_and_first_jobs(database: Database, lane: Lane) -> None:
    """Also where an `init-db` was killed between the two."""
    connection = connect(database)
    init_db(connection, [lane])
    connection.execute("DROP TABLE outboxd_job")
    with pytest.raises(StoreRefused, match="run `outboxd init-db`"):
        book.page(connection)
    assert "'LogClean'" in print_sql(connection.dialect, [lane], connection)
    if connection.dialect == "sqlite":
        create_missing(connection, [lane])
    init_db(connection, [lane])
    assert len(book.page(connection).jobs) == 2
    connection.execute("DELETE FROM outboxd_job")
    assert "'LogClean'" in print_sql(connection.dialect, [lane], connection)
    init_db(connection, [lane])
    assert [job.name for job in book.page(connection).jobs] == ["LogClean", "OutboxClean"]
    connection.close()
