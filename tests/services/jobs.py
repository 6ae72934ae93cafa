"""Jobs in a table for the daemon under test, and what its log and its marks say of their runs."""

import json
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from outboxd.schedule.records import Run, RunStatus
from outboxd.store import connect
from outboxd.store.connection import Connection
from outboxd.store.statements import NOW
from tests.contract.conftest import database_of
from tests.services.daemon import write_config
from tests.services.job_handlers import BEGIN, MODULE, marks

PUBLISHERS = {"null": {"type": "null"}}
EVERY_SECOND = "* * * * * *"
COLUMNS = (
    "id", "job_id", "name", "fire_at_ms", "status", "tick_ms", "triggered_by", "node_id", "started_at_ms",
    "duration_ms", "alive_until_ms", "message", "exception",
)  # fmt: skip
"""Of outboxd_job_log; a Run has the same fields."""


def jobs_config(path: Path, url: str, redis_url: str | None = None, **jobs: object) -> Path:
    """A configuration of a node that runs jobs, with the handlers of the tests; the file."""
    sections: dict[str, Any] = {"jobs": {"handlers": [MODULE], **jobs}}
    if redis_url is not None:
        sections["redis"] = {"url": redis_url}
    write_config(path, url, PUBLISHERS, sections=sections, concurrency=1, publish_timeout="1s")
    return path


class Table:
    """The jobs' tables, past the daemon."""

    def __init__(self, connection: Connection, marks_path: Path) -> None:
        self.connection = connection
        self.marks_path = marks_path

    def add(self, name: str, url: str = "Nap", **columns: object) -> int:
        """A job that runs every second, unless the test says otherwise; its id. Options of handlers: nap_s, fails."""
        options = {key: columns.pop(key) for key in ("nap_s", "fails") if key in columns}
        params = json.dumps({"marks": str(self.marks_path), **options})
        usual = {"cron_expression": EVERY_SECOND, "status": 1, "params": params, "created_at_ms": 0}
        row: dict[str, object] = {"name": name, "url": url, **usual, **columns}
        places = ", ".join(f":{column}" for column in row)
        self.connection.execute(f"INSERT INTO outboxd_job ({', '.join(row)}) VALUES ({places})", row)
        return int(self.connection.query("SELECT MAX(id) FROM outboxd_job")[0][0])

    def change(self, job_id: int, **columns: object) -> None:
        """As the API of another node does."""
        values = ", ".join(f"{column} = :{column}" for column in columns)
        sql = f"UPDATE outboxd_job SET {values}, updated_at_ms = updated_at_ms + 1 WHERE id = :id"
        self.connection.execute(sql, {**columns, "id": job_id})

    def request(self, job_id: int, name: str, age_ms: int = 0) -> int:
        """Somebody asks for a run; its id in the log."""
        now = NOW[self.connection.dialect]
        self.connection.execute(
            "INSERT INTO outboxd_job_log (job_id, name, fire_at_ms, status, triggered_by) "
            f"VALUES (:job, :name, {now} - :age, 'requested', 'somebody')",
            {"job": job_id, "name": name, "age": age_ms},
        )
        return int(self.connection.query("SELECT MAX(id) FROM outboxd_job_log")[0][0])

    def runs(self, job_id: int | None = None, *statuses: str) -> list[Run]:
        """Of the job, in the order of the log."""
        rows = self.connection.query(f"SELECT {', '.join(COLUMNS)} FROM outboxd_job_log ORDER BY id")
        found = [Run(**{**dict(zip(COLUMNS, row, strict=True)), "status": RunStatus(row[4])}) for row in rows]
        return [
            run
            for run in found
            if (job_id is None or run.job_id == job_id) and (not statuses or run.status.value in statuses)
        ]

    def run(self, run_id: int) -> Run:
        """One line of the log."""
        (found,) = (run for run in self.runs() if run.id == run_id)
        return found

    def lives(self, job: str | None = None) -> list["Life"]:
        """Every run that has left its first mark."""
        made = marks(self.marks_path)
        ends = {mark[1:6]: mark.at_s for mark in made if mark.what != BEGIN}
        return [
            Life(mark.job, mark.node_id, mark.fire_ms, mark.at_s, ends.get(mark[1:6]))
            for mark in made
            if mark.what == BEGIN and job in (None, mark.job)
        ]


class Life(NamedTuple):
    """A run by its marks. end_s: None while it goes on, or if it was cut off."""

    job: str
    node_id: str
    fire_ms: int
    begin_s: float
    end_s: float | None


def overlaps(lives: list[Life]) -> int:
    """Pairs of runs, one after the other, of which the second began before the first had ended."""
    ordered = sorted(lives, key=lambda life: life.begin_s)
    return sum(a.end_s is None or b.begin_s < a.end_s for a, b in pairwise(ordered))


def open_table(url: str, marks_path: Path) -> Iterator[Table]:
    """For a fixture."""
    with closing(connect(database_of(url))) as connection:
        yield Table(connection, marks_path)

