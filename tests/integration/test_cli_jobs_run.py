"""`outboxd jobs run` asks for one run and tells how it ended; `outboxd jobs log` tells of all of them."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from outboxd.config.schema import Config
from outboxd.store import connect
from outboxd.store.connection import Connection
from tests.services.cli import Cli
from tests.services.daemon import write_config
from tests.services.lanes import table_of
from tests.services.wait import wait_for

PUBLISHERS = {"bus": {"type": "null"}}
WAIT_S = 20.0
ASKED_FOR = "SELECT id FROM outboxd_job_log WHERE status = 'requested'"


@pytest.fixture
def config(tmp_path: Path, database_url: str) -> Config:
    return write_config(tmp_path / "outbox.yaml", database_url, PUBLISHERS)


@pytest.fixture
def cli(tmp_path: Path, config: Config) -> Cli:
    return Cli(tmp_path, tmp_path / "outbox.yaml")


@pytest.fixture
def jobs(config: Config) -> Iterator[Connection]:
    """To the tables, with the jobs that are there from the start: 1 and 2."""
    with table_of(config) as table:
        yield table.connection


End = tuple[str, str, str] | tuple[str, str, str, int]
"""Status, message, exception; how long it took, 1500 ms unless it is said."""


@contextmanager
def node(config: Config, *ends: End) -> Iterator[None]:
    """One that takes up the next runs that are asked for, and ends them with these statuses, messages, exceptions."""

    def work() -> None:
        with closing(connect(config.database)) as connection:
            for status, message, exception, *took_ms in ends:
                rows = wait_for(lambda: connection.query(ASKED_FOR), WAIT_S, "a run to be asked for")
                now = {"id": rows[0][0], "is": status, "message": message, "exception": exception}
                now["took"] = took_ms[0] if took_ms else 1500
                begun = "status = 'running', node_id = 'n1', started_at_ms = 5"
                connection.execute(f"UPDATE outboxd_job_log SET {begun} WHERE id = :id", now)
                ended = "status = :is, message = :message, exception = :exception, duration_ms = :took"
                connection.execute(f"UPDATE outboxd_job_log SET {ended} WHERE id = :id", now)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize(
    ("end", "status", "told"),
    [
        (("succeeded", "Hello, World", ""), 0, "succeeded at n1 after 1.5 s: Hello, World"),
        (("failed", "", "HTTP 503: busy"), 1, "failed at n1 after 1.5 s: HTTP 503: busy"),
        (("skipped", "another run has the lock", ""), 1, "was skipped at n1 after 1.5 s: another run has the lock"),
        (("interrupted", "", ""), 1, "was interrupted at n1 after 1.5 s"),
        (("interrupted", "its process ended", "", 0), 1, "was interrupted at n1: its process ended"),
    ],
)
def test_a_run_is_waited_for_and_its_end_is_told(
    cli: Cli, jobs: Connection, config: Config, end: End, status: int, told: str
) -> None:
    """Of an unpublished job too; nothing about the job changes."""
    jobs.execute("UPDATE outboxd_job SET status = 0 WHERE id = 1")
    before = cli("jobs", "show", "1", "--json").json
    with node(config, end, end):
        done = cli("jobs", "run", "1")
        program = cli("jobs", "run", "1", "--json")
    assert (done.status, done.err, done.out) == (status, "", f"run 1 of job 1 (LogClean) {told}\n")
    assert (program.status, program.json["status"], program.json["id"]) == (status, end[0], 2)
    after = cli("jobs", "show", "1", "--json").json
    assert {**after, "nextTimes": 0} == {**before, "nextTimes": 0}


def test_it_is_said_that_no_node_takes_a_run_up(cli: Cli, jobs: Connection) -> None:
    """Who waits learns what to look at; the run waits on."""
    done = cli("jobs", "run", "1", "--timeout", "300ms")
    assert (done.status, done.err) == (1, "")
    assert "was taken up by no node within 0.3 s, and still waits: does a daemon with jobs.enabled run?" in done.out
    program = cli("jobs", "run", "1", "--timeout", "0s", "--json")
    assert (program.status, program.json["status"], program.json["nodeId"]) == (1, "requested", None)
    jobs.execute("UPDATE outboxd_job_log SET status = 'running', node_id = 'n1' WHERE id = 1")
    assert [run["status"] for run in cli("jobs", "log", "--json").json["runs"]] == ["requested", "running"]


def test_a_run_may_be_only_asked_for(cli: Cli, jobs: Connection) -> None:
    said = cli("jobs", "run", "2", "--no-wait").ok()
    assert said == "run 1 of job 2 (OutboxClean) is asked for: a node takes it up within seconds\n"
    assert cli("jobs", "run", "2", "--no-wait", "--json").json["runId"] == 2
    (row,) = jobs.query("SELECT triggered_by, tick_ms, status FROM outboxd_job_log WHERE id = 1")
    assert "@" in row[0]
    assert tuple(row[1:]) == (None, "requested")
    for _ in range(14):
        cli("jobs", "run", "2", "--no-wait").ok()
    assert "16 runs of job 2 (OutboxClean) wait for a node already" in cli("jobs", "run", "2").failed()


def test_a_line_that_is_gone_is_no_success(cli: Cli, jobs: Connection) -> None:
    """`LogClean` or a person deleted it while it was waited for."""
    process = cli.start("jobs", "run", "1", stdout=-1)
    wait_for(lambda: jobs.query(ASKED_FOR), WAIT_S, "a run to be asked for")
    jobs.execute("DELETE FROM outboxd_job_log")
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "is gone from the log: nobody can tell how it ended" in out


def test_the_log_is_filtered(cli: Cli, jobs: Connection) -> None:
    """Newest first; of all jobs, of one, of a status, of a time."""
    for number, status in enumerate(("succeeded", "failed", "skipped", "failed")):
        at_ms = 1_700_000_000_000 + 1000 * number
        columns = "job_id, name, tick_ms, fire_at_ms, status, node_id, started_at_ms, exception"
        values = f"{1 + number % 2}, 'n', {at_ms}, {at_ms}, '{status}', 'n1', {at_ms}, 'why {number}'"
        jobs.execute(f"INSERT INTO outboxd_job_log ({columns}) VALUES ({values})")
    lines = cli("jobs", "log").ok().splitlines()
    assert [line.split()[0] for line in lines] == ["run", "4", "3", "2", "1"]
    assert lines[1].endswith("why 3")
    found = cli("jobs", "log", "2", "--status", "failed", "--limit", "1", "--json").json
    assert ([run["id"] for run in found["runs"]], found["nextBeforeId"]) == ([4], 4)
    day = ("--since", "2023-11-14T22:13:21Z", "--until", "2023-11-14T22:13:23Z")
    assert [run["id"] for run in cli("jobs", "log", *day, "--json").json["runs"]] == [3, 2]
    assert cli("jobs", "log", "--since", "1h").ok() == "no run matches\n"
    assert "is no time" in cli("jobs", "log", "--since", "yesterday").failed(2)
