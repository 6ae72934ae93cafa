"""`outboxd jobs`: listing, adding, changing, starting and stopping jobs, as a person does it and as a script does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from outboxd.store.connection import Connection
from tests.services.cli import Cli
from tests.services.daemon import write_config
from tests.services.lanes import table_of

CRON, BAD_CRON = "0 0 0 1 1 *", "0 0 1 1 *"
PUBLISHERS = {"bus": {"type": "null"}}
NEW = ("jobs", "add", "--name", "nightly", "--cron", CRON, "--url", "HelloWorld")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path, tmp_path / "outbox.yaml")


@pytest.fixture
def jobs(tmp_path: Path, database_url: str) -> Iterator[Connection]:
    """To the tables, with the jobs that are there from the start: 1 and 2."""
    sections = {"jobs": {"enabled": True}}
    with table_of(write_config(tmp_path / "outbox.yaml", database_url, PUBLISHERS, sections=sections)) as table:
        yield table.connection


def test_a_job_is_added_shown_changed_and_listed(cli: Cli, jobs: Connection) -> None:
    said = cli(*NEW, "--params", "p", "--policy", "2", "--is-sync", "0", "--remark", "why").ok()
    key = said.split()[1]
    assert said == f"job {key} (nightly) is added, unpublished: it has no ticks until it is resumed\n"
    shown = cli("jobs", "show", key).ok()
    assert f"job {key}: nightly, unpublished" in shown
    assert "runs HelloWorld, single, asynchronous" in shown
    assert shown.count(" 00:00:00 ") == 5
    assert cli("jobs", "update", key, "--name", "yearly", "--is-sync", "1").ok() == (
        f"job {key} (yearly) is updated (name, is_sync); it is unpublished\n"
    )
    found = cli("jobs", "show", key, "--json").json
    assert (found["name"], found["isSync"], found["params"], found["executePolicyText"]) == ("yearly", 1, "p", "single")
    rows = [line.split() for line in cli("jobs", "list").ok().splitlines()]
    assert [row[0] for row in rows] == ["id", "1", "2", key]
    assert rows[3][1:3] == ["unpublished", "-"]
    assert rows[1][1:3] == ["running", "in"]
    assert cli("jobs", "list", "--name", "YEAR").ok().count("\n") == 2
    assert [job["id"] for job in cli("jobs", "list", "--status", "running", "--json").json["jobs"]] == [1, 2]
    assert "1 of 3; --limit shows more" in cli("jobs", "list", "--limit", "1").ok()
    assert cli("jobs", "list", "--name", "nothing").ok() == "there is no job that matches\n"


def test_a_job_is_started_stopped_and_deleted(cli: Cli, jobs: Connection) -> None:
    key = str(cli(*NEW, "--json").json["id"])
    assert cli("jobs", "resume", key, "--json").json["statusText"] == "running"
    assert cli("jobs", "pause", key).ok().startswith(f"job {key} (nightly) is paused: it has no ticks any more")
    assert "add --yes to do it" in cli("jobs", "delete", key).failed(2)
    assert "nothing was changed" in cli.on_terminal("jobs", "delete", key, typed="n\n").out
    assert cli("jobs", "show", key, "--json").json["statusText"] == "paused"
    assert cli("jobs", "delete", key, "--yes").ok().startswith(f"job {key} (nightly) is deleted")
    for command in ("show", "pause", "resume", "run"):
        assert "was deleted: `outboxd jobs list` shows those that are there" in cli("jobs", command, key).failed()
    assert "there is no job 999" in cli("jobs", "update", "999", "--name", "n").failed()


def test_what_cannot_be_a_job_is_wrong_usage(cli: Cli, jobs: Connection) -> None:
    """Told with the reason, and nothing is written."""
    assert "put the seconds in front: 0 0 0 1 1 *" in cli(*NEW[:-4], "--cron", BAD_CRON, "--url", "H").failed(2)
    assert "the url cannot be called" in cli(*NEW[:-1], "ftp://h/").failed(2)
    assert "the name is empty" in cli(*NEW, "--name", "").failed(2)
    assert "the name holds the control character U+001B" in cli(*NEW, "--name", "\x1b[31m").failed(2)
    assert "Missing option '--url'" in cli(*NEW[:-2]).failed(2)
    assert "4 is not in the range" in cli(*NEW, "--policy", "4").failed(2)
    assert "nothing is to be changed" in cli("jobs", "update", "1").failed(2)
    assert "put the seconds in front" in cli("jobs", "update", str(_paused(cli)), "--cron", BAD_CRON).failed(2)
    assert len(cli("jobs", "list", "--json").json["jobs"]) == 3


def _paused(cli: Cli) -> int:
    key = int(cli(*NEW, "--json").json["id"])
    cli("jobs", "pause", str(key)).ok()
    return key


def test_a_wrong_cron_pauses_a_running_job_and_says_so(cli: Cli, jobs: Connection) -> None:
    """It is written, so that is no usage error; a script sees that something is wrong all the same."""
    done = cli("jobs", "update", "1", "--cron", BAD_CRON, "--json")
    assert (done.status, done.err, done.json["statusText"]) == (1, "", "paused")
    assert "it was running and is paused now" in done.json["says"][0]
    assert "it cannot be used: 5 fields" in cli("jobs", "show", "1").ok()
    assert "six are needed" in cli("jobs", "resume", "1").failed()


def test_the_next_times_of_a_job_and_of_an_expression_are_told(cli: Cli, jobs: Connection, tmp_path: Path) -> None:
    """Of an expression without a configuration: whoever writes one tries it here."""
    bare = Cli(tmp_path, TZ="Europe/Berlin")
    lines = bare("jobs", "next", "0 30 2 29 2 *", "--count", "3").ok().splitlines()
    assert [line.split()[2:4] for line in lines] == [["02:30:00", "+01:00,"]] * 3
    assert len(bare("jobs", "next", "@every 90s", "--json").json["nextTimes"]) == 5
    assert cli("jobs", "next", "1", "--json").json["cronExpression"] == "0 30 2 * * *"
    assert "put the seconds in front: 0 */5 * * * *" in bare("jobs", "next", "*/5 * * * *").failed(2)
    assert "there is no job 77" in cli("jobs", "next", "77").failed()
    assert "put -- before an expression" in bare("jobs", "next", "-1 * * * * *").failed(2)
    assert "is no cron expression" in bare("jobs", "next", "--", "-1 * * * * *").failed(2)
    assert "--count" in bare("jobs", "next", "--cuont", "3").failed(2)


def test_hostile_text_moves_no_cursor(cli: Cli, jobs: Connection) -> None:
    """Written past our rules, by SQL."""
    name = "\x1b[2Jred\n"
    jobs.execute("UPDATE outboxd_job SET name = :name, url = :name, params = :name WHERE id = 1", {"name": name})
    for command in (("list",), ("show", "1"), ("pause", "1")):
        said = cli("jobs", *command).ok()
        assert "\x1b" not in said
        assert "\\x1b[2Jred" in said


def test_tables_that_are_missing_are_told_with_what_to_do(cli: Cli, jobs: Connection) -> None:
    """And `check` says so, too."""
    jobs.execute("DROP TABLE outboxd_job")
    for command in (("list",), ("show", "1"), NEW[1:], ("run", "1")):
        assert "run `outboxd init-db`" in cli("jobs", *command).failed()
    shown = cli("check")
    (line,) = [line for line in shown.out.splitlines() if " jobs " in line]
    assert (shown.status, line.split()[0]) == (1, "failed")
    assert "run `outboxd init-db`" in line


def test_check_tells_of_the_jobs(cli: Cli, jobs: Connection) -> None:
    """How many, and which have no ticks although they run."""

    def line() -> list[str]:
        (found,) = [line.split(maxsplit=2) for line in cli("check").ok().splitlines() if " jobs " in line]
        return found

    assert line() == ["ok", "jobs", "2 jobs, 2 running"]
    jobs.execute("UPDATE outboxd_job SET cron_expression = '* * * * *' WHERE id = 2")
    result, _, text = line()
    assert result == "warning"
    assert text.startswith("2 jobs, 2 running; no ticks, since the cron expression cannot be used: job 2 (OutboxClean)")
    cli("jobs", "pause", "2").ok()
    assert line() == ["ok", "jobs", "2 jobs, 1 running"]
