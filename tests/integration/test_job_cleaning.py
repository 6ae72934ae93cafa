"""The jobs that keep tables small: what goes, what stays, in which portions."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from outboxd.config.schema import Jobs, Lane
from outboxd.errors import JobFailed
from outboxd.jobs.handlers import outbox_clean
from outboxd.jobs.handlers.outbox_clean import clean_lanes
from outboxd.jobs.registry import Context, load_handlers
from outboxd.jobs.targets import run_target
from outboxd.schedule.log_clean import BATCH_ROWS
from outboxd.schedule.records import Job
from outboxd.store import connect
from outboxd.store.connection import Connection
from outboxd.store.migrate import init_db
from outboxd.store.statements import NOW
from tests.contract.conftest import database_of
from tests.services.chaos import scaled
from tests.services.recording import Recording
from tests.services.wait import wait_for

DAY_MS = 86_400_000
MANY_LINES = scaled(1_000_000, 210_000)
MANY_EVENTS = scaled(1_000_000, 30_000)


class Unhurried(threading.Event):
    """Whoever waits for it waits for a while: a quick database gets through no more than a slow one."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(None if timeout is None else max(timeout, 0.15))


@dataclass
class Site:
    """A database with the tables of jobs and lanes, and runs of handlers over it."""

    url: str
    lanes: dict[str, Lane]
    connection: Connection
    settings: Jobs = field(default_factory=Jobs)
    stop: threading.Event = field(default_factory=threading.Event)
    opened: list[Recording] = field(default_factory=list)

    def open(self) -> Connection:
        self.opened.append(Recording(connect(database_of(self.url))))
        return self.opened[-1]

    def context(self) -> Context:
        return Context(
            job_id=1, job_name="clean", fire_at_ms=1, stop=self.stop, lanes=self.lanes, settings=self.settings,
            open_connection=self.open,
        )  # fmt: skip

    def run(self, handler: str, params: str = "") -> str:
        job = Job(id=1, name="clean", cron_expression="0 30 2 * * *", url=handler, params=params)
        return run_target(job, self.context())

    def failure(self, handler: str, params: str) -> str:
        with pytest.raises(JobFailed) as failed:
            self.run(handler, params)
        return str(failed.value)

    def now_ms(self) -> int:
        return int(self.connection.query(f"SELECT {NOW[self.connection.dialect]}")[0][0])

    def log(self, count: int, age_days: float, status: str = "succeeded") -> None:
        """So many lines of the job log that are so old, in one transaction."""
        at_ms = self.now_ms() - round(age_days * DAY_MS)
        insert = "INSERT INTO outboxd_job_log (job_id, name, tick_ms, fire_at_ms, status)"
        self._many(f"{insert} SELECT 1, 'a', NULL, {at_ms}, '{status}' FROM", count)

    def events(self, lane: str, count: int, age_days: float, status: str = "delivered") -> None:
        """So many events that were created and delivered so long ago."""
        at_ms = self.now_ms() - round(age_days * DAY_MS)
        times = "created_at_ms, updated_at_ms, delivered_at_ms"
        columns = f"app_code, event_id, event_type, room_id, envelope, status, {times}"
        top = int(self.connection.query(f"SELECT COALESCE(MAX(id), 0) FROM {lane}")[0][0])
        event_id = f"CONCAT('e', {top} + n)" if self.connection.dialect == "mysql" else f"'e' || ({top} + n)"
        values = f"'a', {event_id}, 'T', 'r', '{{}}', '{status}', {at_ms}, {at_ms}, {at_ms}"
        self._many(f"INSERT INTO {lane} ({columns}) SELECT {values} FROM", count)

    def _many(self, insert: str, count: int) -> None:
        """The database makes the numbers by itself; 50,000 in a statement, since a statement's time is limited."""
        rows = "(WITH RECURSIVE r(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM r WHERE n < :last) SELECT n FROM r)"
        for first in range(1, count + 1, 50_000):
            numbers = {"first": first, "last": min(first + 49_999, count)}
            self.connection.execute(f"{insert} {rows} AS numbers", numbers)

    def count(self, table: str, condition: str = "1 = 1") -> int:
        return int(self.connection.query(f"SELECT COUNT(*) FROM {table} WHERE {condition}")[0][0])

    def nth_id(self, table: str, number: int) -> int:
        """Counted from 0, in ascending order."""
        return int(self.connection.query(f"SELECT id FROM {table} ORDER BY id LIMIT 1 OFFSET {number}")[0][0])

    @property
    def portions(self) -> list[int]:
        """Rows of each transaction that deleted some."""
        return [rows for recording in self.opened for rows in recording.deleted if rows]


@pytest.fixture
def site(database_url: str) -> Iterator[Site]:
    load_handlers(())
    connection = connect(database_of(database_url))
    lanes = {name: Lane(name=name) for name in ("room_outbox", "room_robot_outbox")}
    init_db(connection, list(lanes.values()))
    if connection.dialect == "mysql":  # the test looks on for longer than a session of ours may be idle
        connection.execute("SET SESSION max_recursive_iterations = 100000, wait_timeout = 900")
    yield Site(database_url, lanes, connection)
    connection.close()


def with_retention(site: Site, days: float, *names: str) -> None:
    for name in names:
        site.lanes[name] = replace(site.lanes[name], retention_s=days * 86_400)


def test_log_clean_deletes_lines_that_are_older_than_the_configuration_says(site: Site) -> None:
    """By the database's clock, to the line; what has not ended stays, however old."""
    site.log(10, age_days=90.01)
    site.log(5, age_days=89.99)
    for status in ("failed", "skipped", "interrupted", "running", "requested"):
        site.log(2, age_days=400, status=status)
    assert site.run("LogClean") == "16 lines older than 90 days deleted"
    assert site.count("outboxd_job_log") == 9
    assert site.count("outboxd_job_log", "status IN ('running', 'requested')") == 4
    site.settings = Jobs(log_retention_days=30)
    assert site.run("LogClean") == "5 lines older than 30 days deleted"


def test_params_of_log_clean_stand_over_the_configuration(site: Site) -> None:
    """In both directions."""
    site.log(3, age_days=8)
    site.log(4, age_days=200)
    assert site.run("LogClean", '{"retentionDays": 365}') == "0 lines older than 365 days deleted"
    assert site.run("LogClean", ' {"retentionDays": 7} ') == "7 lines older than 7 days deleted"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ("7", "Expected `object`, got `int`; known here: retentionDays"),
        ("retentionDays=7", "JSON is malformed"),
        ('{"retentionDays": 0}', "Expected `int` >= 1"),
        ('{"retentionDays": -1}', "Expected `int` >= 1"),
        ('{"retentionDays": 36501}', "Expected `int` <= 36500"),
        ('{"retentionDays": "7"}', "Expected `int`, got `str`"),
        ('{"retentionDays": true}', "Expected `int`, got `bool`"),
        ('{"retentionDays": 7.5}', "Expected `int`, got `float`"),
        ('{"retentionDays": null}', "Expected `int`, got `null`"),
        ('{"retention_days": 7}', "contains unknown field `retention_days`; known here: retentionDays"),
    ],
)
def test_params_that_cannot_be_used_delete_nothing(site: Site, params: str, words: str) -> None:
    """They fail with what is wrong."""
    site.log(3, age_days=40_000)
    found = site.failure("LogClean", params)
    assert found.startswith("params cannot be used: ")
    assert words in found
    assert site.count("outboxd_job_log") == 3


def test_log_clean_keeps_its_limits_on_a_large_log(site: Site) -> None:
    """5,000 lines in a transaction, 200,000 in a run; the oldest go first, and the next run goes on. The lines of runs
    that have not ended lie in front and stop nothing."""
    site.log(BATCH_ROWS + 1, age_days=500, status="running")
    site.log(MANY_LINES, age_days=100)
    first_left = site.nth_id("outboxd_job_log", BATCH_ROWS + 1 + 200_000)
    assert site.run("LogClean") == "200000 lines older than 90 days deleted, more is left for the next run"
    assert site.count("outboxd_job_log") == BATCH_ROWS + 1 + MANY_LINES - 200_000
    assert sum(site.portions) == 200_000
    assert max(site.portions) == 5_000
    assert site.nth_id("outboxd_job_log", BATCH_ROWS + 1) == first_left, "those that are left are not the youngest"
    assert site.run("LogClean").startswith("200000" if MANY_LINES > 400_000 else str(MANY_LINES - 200_000))


@pytest.mark.parametrize(("handler", "table"), [("LogClean", "outboxd_job_log"), ("OutboxClean", "room_outbox")])
def test_a_handler_that_cleans_stops_when_the_daemon_is_about_to_end(site: Site, handler: str, table: str) -> None:
    """Between two transactions; what is done is done, and told."""
    with_retention(site, 1, "room_outbox")
    site.log(20_000, age_days=100)
    site.events("room_outbox", 20_000, age_days=2)
    told: list[str] = []
    running = threading.Thread(target=lambda: told.append(site.run(handler)))
    running.start()
    wait_for(lambda: site.portions, 20, "the first transaction")
    site.stop.set()
    running.join(20)
    assert told[0].endswith("deleted, more is left for the next run")
    assert site.count(table) == 20_000 - sum(site.portions) > 0


def test_outbox_clean_deletes_what_is_older_than_its_lanes_retention(site: Site) -> None:
    """Delivered rows of every lane that has one, enabled here or not. Dead letters and what waits stay."""
    with_retention(site, 7, "room_outbox")
    site.lanes["room_robot_outbox"] = replace(site.lanes["room_robot_outbox"], enabled=False, retention_s=86_400.0)
    for lane in site.lanes:
        site.events(lane, 10, age_days=8)
        site.events(lane, 5, age_days=6.99)
        for status in ("pending", "retryable", "failed"):
            site.events(lane, 2, age_days=400, status=status)
    assert site.run("OutboxClean") == "room_outbox: 10 rows deleted; room_robot_outbox: 15 rows deleted"
    assert [site.count(lane) for lane in site.lanes] == [11, 6]


def test_without_a_retention_everything_is_kept(site: Site) -> None:
    """Which is what a lane has unless somebody says otherwise. A negative one is none."""
    with_retention(site, -1, "room_robot_outbox")
    for lane in site.lanes:
        site.events(lane, 10, age_days=1000)
    assert site.run("OutboxClean") == "no lane has a retention: everything is kept"
    assert [site.count(lane) for lane in site.lanes] == [10, 10]


def test_outbox_clean_takes_no_params(site: Site) -> None:
    """A wish that nobody reads must not look as if it were granted."""
    with_retention(site, 7, "room_outbox")
    site.events("room_outbox", 10, age_days=8)
    found = site.failure("OutboxClean", '{"retentionDays": 30}')
    assert "contains unknown field `retentionDays`; this handler takes none, leave them empty" in found
    assert site.count("room_outbox") == 10


def test_a_lane_that_fails_keeps_none_from_its_turn(site: Site) -> None:
    """The run has failed all the same, and says which lane it was."""
    with_retention(site, 7, "room_outbox", "room_robot_outbox")
    site.events("room_robot_outbox", 10, age_days=8)
    site.connection.execute("DROP TABLE room_outbox")
    found = site.failure("OutboxClean", "")
    assert found.startswith("room_outbox: StoreRefused: ")
    assert found.endswith("; room_robot_outbox: 10 rows deleted")


def test_outbox_clean_keeps_its_limits_on_a_large_table(site: Site) -> None:
    """5,000 rows in a transaction, so many in a run; the oldest go first, and the next run goes on."""
    with_retention(site, 7, "room_outbox")
    site.events("room_outbox", MANY_EVENTS, age_days=8)
    assert (outbox_clean.MOST_ROWS, outbox_clean.MOST_S) == (2_000_000, 1800.0)
    most = MANY_EVENTS // 10
    for run in (1, 2):
        first_left = site.nth_id("room_outbox", most)
        told = clean_lanes(site.context(), most, 600)
        assert told == f"room_outbox: {most} rows deleted, more is left for the next run"
        assert sum(site.portions) == run * most
        assert site.count("room_outbox") == MANY_EVENTS - run * most
        assert site.nth_id("room_outbox", 0) == first_left, "those that are left are not the youngest"
    assert max(site.portions) <= 5_000


def test_the_time_of_a_run_is_shared_among_the_lanes(site: Site) -> None:
    """A large table keeps no other from its turn; and the run ends in time, however fast the database is."""
    site.stop = Unhurried()
    with_retention(site, 7, "room_outbox", "room_robot_outbox")
    site.events("room_outbox", 60_000, age_days=8)
    site.events("room_robot_outbox", 50, age_days=8)
    began_s = time.monotonic()
    told = clean_lanes(site.context(), 100_000, 3.0)
    assert time.monotonic() - began_s < 6
    assert "room_robot_outbox: 50 rows deleted" in told
    assert told.startswith("room_outbox: ")
    assert "more is left" in told.partition(";")[0]
