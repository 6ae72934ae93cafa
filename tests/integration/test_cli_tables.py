"""`outboxd init-db` and `outboxd check`: the tables, and whether everything is there."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.services.cli import Cli
from tests.services.daemon import write_config
from tests.services.find import free_port
from tests.services.mariadb import execute
from tests.services.receiver import Receiver

PUBLISHERS = {"console": {"type": "console"}}


@pytest.fixture
def config(tmp_path: Path, database_url: str) -> Path:
    path = tmp_path / "outbox.yaml"
    write_config(path, database_url, PUBLISHERS, lanes={"room_outbox": {}, "orders": {}})
    return path


@pytest.fixture
def cli(tmp_path: Path, config: Path) -> Cli:
    return Cli(tmp_path, config)


def test_init_db_tells_each_step_and_changes_nothing_the_second_time(cli: Cli) -> None:
    """It belongs into every deployment, so it must be harmless."""
    said = cli("init-db").ok().splitlines()
    assert {"orders: created, it has version 1", "room_outbox: created, it has version 1"} <= set(said)
    beside = ("schema", "lane", "inbox", "partition", "job", "job_log")
    assert said[:7] == [
        *(f"outboxd_{name}: created" for name in beside),
        "outboxd_job: the jobs LogClean and OutboxClean were added",
    ]
    again = cli("init-db").ok().splitlines()
    assert again == [f"{lane}: nothing to do, it has version 1" for lane in ("orders", "room_outbox")]


def test_after_an_upgrade_init_db_tells_of_each_table_that_was_added(cli: Cli, database_url: str) -> None:
    """Rights on a new table are granted by whoever reads of it; what was there is not told of."""
    cli("init-db").ok()
    for table in ("outboxd_job", "outboxd_inbox"):
        execute(database_url, f"DROP TABLE {table}") if database_url.startswith("mysql") else _drop(database_url, table)
    assert cli("init-db").ok().splitlines() == [
        "outboxd_inbox: created",
        "outboxd_job: created",
        "outboxd_job: the jobs LogClean and OutboxClean were added",
        *(f"{lane}: nothing to do, it has version 1" for lane in ("orders", "room_outbox")),
    ]


def _drop(url: str, table: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute(f"DROP TABLE {table}")


def test_the_printed_sql_makes_what_init_db_would_make(cli: Cli, database_url: str) -> None:
    """For whoever must hand SQL to somebody else: it changes nothing itself, and what it prints is all of it."""
    printed = cli("init-db", "--print")
    assert printed.status == 0
    assert "the table room_outbox does not exist" in cli("check").out or "no database" in cli("check").out
    statements = [part for part in printed.out.split(";\n") if part.strip()]
    if database_url.startswith("mysql"):
        execute(database_url, *statements)
    else:
        with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(printed.out)
    assert cli("check").status == 0
    assert cli("init-db").ok().count("nothing to do") == 2
    assert "nothing to create or change" in cli("init-db", "--print").ok()


def test_the_sql_is_printed_without_a_database_too(tmp_path: Path) -> None:
    """Who reviews it may have no access; the output stays clean SQL, the remark is on standard error."""
    config = tmp_path / "outbox.yaml"
    write_config(config, f"mysql://app@127.0.0.1:{free_port()}/app", PUBLISHERS)
    printed = Cli(tmp_path, config)("init-db", "--print")
    assert printed.status == 0
    assert printed.out.startswith("CREATE TABLE")
    assert "this is the SQL for an empty database" in printed.err


def test_check_has_a_line_for_everything_and_ends_with_0(cli: Cli, database_url: str, tmp_path: Path) -> None:
    """The last step before a deployment."""
    lanes: dict[str, object] = {"room_outbox": {}, "orders": {}}
    write_config(tmp_path / "outbox.yaml", database_url, PUBLISHERS, lanes=lanes, sections={"jobs": {}})
    cli("init-db").ok()
    lines = [line.split()[:3] for line in cli("check").ok().splitlines()]
    assert lines == [
        ["ok", "configuration", "node"],
        ["ok", "database", lines[1][2]],
        ["ok", "table", "orders"],
        ["ok", "table", "room_outbox"],
        ["ok", "jobs", "2"],
        ["ok", "jobs.handlers", "registered:"],
        ["ok", "publisher", "console"],
        ["ok", "admin.listen", "no"],
        ["ok", "admin.socket", lines[8][2]],
        ["ok", "admin", "tokens"],
        ["ok", "metrics", "a"],
    ]


def test_check_names_what_is_missing_and_ends_with_1(cli: Cli, database_url: str, tmp_path: Path) -> None:
    """Everything is looked at, however much has failed before."""
    shown = cli("check")
    assert (shown.status, shown.err) == (1, "")
    assert shown.out.count("run `outboxd init-db`") >= 1
    assert "ok       publisher console" in shown.out
    write_config(tmp_path / "outbox.yaml", database_url, PUBLISHERS)
    cli("init-db").ok()
    write_config(tmp_path / "outbox.yaml", database_url, PUBLISHERS, lanes={"room_outbox": {}, "orders": {}})
    shown = cli("check")
    assert shown.status == 1
    assert "ok       table room_outbox" in shown.out
    assert "failed   table orders            the table orders does not exist: run `outboxd init-db`" in shown.out


def test_check_connects_to_a_receiver_without_a_request(tmp_path: Path, sqlite_url: str) -> None:
    """A receiver must not have to know requests that are no events. One that is down is a failure."""
    config = tmp_path / "outbox.yaml"
    cli = Cli(tmp_path, config)
    with Receiver() as receiver:
        write_config(config, sqlite_url, {"webhook": {"type": "http", "url": receiver.url}})
        cli("init-db").ok()
        assert "ok       publisher webhook" in cli("check").ok()
        assert receiver.accepted == 1
        assert receiver.requests == []
    shown = cli("check")
    assert shown.status == 1
    assert f"cannot connect to {receiver.url}" in shown.out


def test_check_shows_warnings_and_what_is_not_used(tmp_path: Path, sqlite_url: str) -> None:
    """A warning lets the daemon start, so it is none of the failures."""
    config = tmp_path / "outbox.yaml"
    unused = {"type": "http", "url": "http://127.0.0.1:1/"}
    write_config(config, sqlite_url, {**PUBLISHERS, "later": unused}, direct=["console"], concurrency=0)
    cli = Cli(tmp_path, config)
    cli("init-db").ok()
    shown = cli("check").ok()
    assert "warning  configuration" in shown
    assert "ok       publisher later         not looked at: no enabled lane uses it" in shown
