"""Runs of jobs are asked for, and their log is read by pages, on every kind of database."""

import itertools
from collections.abc import Iterator

import pytest

from outboxd.config.schema import Database, Lane
from outboxd.schedule import book, book_runs
from outboxd.schedule.book import Book
from outboxd.schedule.book_runs import SLACK_MS, LogFilter, log_page, request_run
from outboxd.schedule.records import JobStatus, RunStatus
from outboxd.schedule.rules import MOST_WAITING, NewJob, TooMany
from outboxd.store import connect
from outboxd.store.connection import Connection
from outboxd.store.migrate import init_db

_ticks = itertools.count(1)


@pytest.fixture
def connection(database: Database, lane: Lane) -> Iterator[Connection]:
    made = connect(database)
    init_db(made, [lane])
    yield made
    made.close()


def job(connection: Connection, name: str = "nightly") -> int:
    return book.add(connection, NewJob(name=name, cron_expression="0 0 0 1 1 *", url="HelloWorld"))


def line(connection: Connection, job_id: int, status: str = "succeeded", fire_at_ms: int = 1000) -> int:
    """A line of the log that a node wrote; its id."""
    connection.execute(
        "INSERT INTO outboxd_job_log (job_id, name, tick_ms, fire_at_ms, status) VALUES (:job, 'n', :tick, :at, :is)",
        {"job": job_id, "tick": next(_ticks), "at": fire_at_ms, "is": status},
    )
    return Book(connection).last_id()


def ids(connection: Connection, limit: int = 50, **wanted: object) -> list[int]:
    found, _ = log_page(connection, LogFilter(**wanted), limit)  # type: ignore[arg-type]  # the test's words
    return [run.id for run in found]


@pytest.mark.parametrize("status", list(JobStatus))
def test_a_run_is_asked_for_in_any_state_and_changes_none(connection: Connection, status: JobStatus) -> None:
    """Run once: a line in the log for whichever node takes it up, with who asked."""
    before = book.set_status(connection, job(connection), status)
    run_id = request_run(connection, before.id, "ops@node" + "x" * 200)
    run = book_runs.run(connection, run_id)
    assert run is not None
    assert (run.status, run.tick_ms, run.node_id, run.name) == (RunStatus.REQUESTED, None, "", "nightly")
    assert run.triggered_by == ("ops@node" + "x" * 200)[:128]
    assert 0 <= book.now_ms(connection) - run.fire_at_ms < 60_000
    assert book.get(connection, before.id) == before


def test_only_so_many_runs_wait_for_a_node(connection: Connection) -> None:
    """G9: somebody's script in a loop, while no node takes up any; other jobs are not held up by it."""
    one, other = job(connection), job(connection)
    asked = [request_run(connection, one, "me") for _ in range(MOST_WAITING)]
    with pytest.raises(TooMany, match="wait for a node already"):
        request_run(connection, one, "me")
    request_run(connection, other, "me")
    connection.execute("UPDATE outboxd_job_log SET status = 'running' WHERE id = :id", {"id": asked[0]})
    request_run(connection, one, "me")


def test_the_log_is_read_newest_first_by_pages(connection: Connection) -> None:
    """A page ends at an id, so that lines which come meanwhile shift nothing."""
    one, other = job(connection), job(connection)
    mine = [line(connection, one, fire_at_ms=1000 + number) for number in range(5)]
    line(connection, other)
    first, before_id = log_page(connection, LogFilter(job_id=one), 2)
    assert ([run.id for run in first], before_id) == ([mine[4], mine[3]], mine[3])
    rest, end = log_page(connection, LogFilter(job_id=one), 9, before_id)
    assert ([run.id for run in rest], end) == ([mine[2], mine[1], mine[0]], None)
    assert ids(connection, since_ms=1001, until_ms=1003) == [mine[2], mine[1]]


def test_the_log_is_filtered_by_status(connection: Connection) -> None:
    """Of one job and of all."""
    one, other = job(connection), job(connection)
    expected = {status: [line(connection, key, status) for key in (one, other)] for status in RunStatus}
    for status, (mine, others) in expected.items():
        assert ids(connection, status=status) == [others, mine]
        assert ids(connection, status=status, job_id=one) == [mine]


def test_a_page_looks_at_a_bounded_number_and_says_where_to_go_on(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G9: a filter that hardly any line passes must not make one request last; who follows the pages finds all."""
    monkeypatch.setattr(book_runs, "WINDOW", 2)
    key = job(connection)
    lines = [line(connection, key, "failed" if number in (0, 1, 2, 8) else "succeeded") for number in range(9)]
    before_id: int | None = None
    pages: list[list[int]] = []
    while not pages or before_id is not None:
        wanted = LogFilter(job_id=key, status=RunStatus.FAILED)
        found, before_id = log_page(connection, wanted, 2, before_id, look_at=4)
        pages.append([lines.index(run.id) for run in found])
    assert pages == [[8], [2, 1], [0]]


def test_what_is_long_before_the_wanted_time_ends_the_search(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of years is not read to its end for the failures of today; a clock that was set back loses none."""
    monkeypatch.setattr(book_runs, "WINDOW", 1)
    key = job(connection)
    wanted_ms = 10 * SLACK_MS
    hidden = line(connection, key, fire_at_ms=wanted_ms)
    line(connection, key, fire_at_ms=wanted_ms - SLACK_MS - 1)
    seen = line(connection, key, fire_at_ms=wanted_ms + 5)
    line(connection, key, fire_at_ms=wanted_ms - SLACK_MS)
    last = line(connection, key, fire_at_ms=wanted_ms)
    assert ids(connection, since_ms=wanted_ms) == [last, seen]
    assert ids(connection, since_ms=wanted_ms - 1 - SLACK_MS)[-1] == hidden


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("log_all", "PRIMARY"), ("log_of_job", "runs"), ("log_of_status", "open"), ("log_rows", "PRIMARY"),
        ("waiting", "open"), ("run", "PRIMARY"), ("log_time", "PRIMARY"),
    ],
)  # fmt: skip
def test_the_log_is_read_along_its_indexes(connection: Connection, name: str, index: str) -> None:
    """It may have millions of lines; nothing is sorted and nothing read whole."""
    key = job(connection)
    connection.begin()
    for number in range(300):
        line(connection, key + number % 7, "failed" if number % 3 else "succeeded", fire_at_ms=number)
    connection.commit()
    if connection.dialect == "mysql":
        connection.query("ANALYZE TABLE outboxd_job_log")
    params = {"job": key, "status": "failed", "before": 250, "most": 5, "since": 1, "until": 99, "id": 5}
    sql = Book(connection).sql(name, [1, 2, 3])
    if connection.dialect == "mysql":
        (row,) = connection.query(f"EXPLAIN FORMAT=TRADITIONAL {sql}", params)
        assert (row[5], "filesort" in str(row[9])) == (index, False)
        assert row[3] in ("range", "ref", "const")
        return
    plan = " ".join(str(row[3]) for row in connection.query(f"EXPLAIN QUERY PLAN {sql}", params))
    keys = {"PRIMARY": "INTEGER PRIMARY KEY", "runs": "job_id=? AND id<?", "open": "status=?"}
    assert keys[index] in plan
    assert "SCAN" not in plan
    assert "TEMP B-TREE" not in plan
