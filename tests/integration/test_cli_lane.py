"""`outboxd enqueue`, `status`, `pause` and `resume`."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.services.cli import Cli
from tests.services.daemon import write_config
from tests.services.lanes import table_of

PUBLISHERS = {"null": {"type": "null"}}
NEW = ("enqueue", "--type", "RoomCreated", "--room", "r1")


@pytest.fixture
def config(tmp_path: Path, database_url: str) -> Path:
    path = tmp_path / "outbox.yaml"
    write_config(path, database_url, PUBLISHERS, max_event_bytes=1000)
    return path


@pytest.fixture
def cli(tmp_path: Path, config: Path) -> Cli:
    made = Cli(tmp_path, config)
    made("init-db").ok()
    return made


def test_an_event_is_enqueued_and_relayed(cli: Cli) -> None:
    """From the command line to the publisher, as the first thing a person tries."""
    assert cli(*NEW, "--event-id", "e1", '{"title": "hällo"}').ok() == "enqueued event e1 in room_outbox (id 1)\n"
    assert cli("run", "--until-empty").status == 0
    assert cli("explain", "e1", "--json").json["events"][0]["state"] == "delivered"


def test_every_option_of_enqueue_is_written(cli: Cli, config: Path, database_url: str) -> None:
    """`-` reads bytes from standard input as they are."""
    headers = '{"traceparent": "00-ab-cd-01"}'
    given = ("--app", "acme", "--delay", "10m", "--content-type", "application/protobuf", "--headers", headers)
    made = cli(*NEW, *given, "--json", "-", stdin=b"\x00\xff\n").json
    assert made.keys() == {"lane", "id", "event_id", "app_code"}
    assert len(made["event_id"]) == 36
    with table_of(write_config(config, database_url, PUBLISHERS)) as table:
        row = table.row(made["event_id"])
        assert (row["envelope"], row["content_type"]) == (b"\x00\xff\n", "application/protobuf")
        assert (row["app_code"], json.loads(str(row["headers"]))) == ("acme", json.loads(headers))
        assert 590_000 < int(str(row["due_at_ms"])) - table.now_ms() <= 600_000


def test_what_would_become_a_dead_letter_is_refused_at_once(cli: Cli) -> None:
    """Who types it is there to correct it."""
    assert "DATA is no JSON" in cli(*NEW, "{oops").failed(2)
    assert (
        "it would become a dead letter; raise lanes.room_outbox.max_event_bytes"
        in cli(*NEW, f'"{"x" * 1000}"').failed()
    )
    cli(*NEW, "--content-type", "text/plain", "{oops").ok()
    cli(*NEW, "--event-id", "e1", "{}").ok()
    assert "event_id 'e1' is in room_outbox already" in cli(*NEW, "--event-id", "e1", "{}").failed()


def test_enqueue_needs_no_init_db_on_an_embedded_database(tmp_path: Path, sqlite_url: str) -> None:
    """Whichever comes first, the daemon or the first event."""
    config = tmp_path / "embedded.yaml"
    write_config(config, sqlite_url, PUBLISHERS)
    Cli(tmp_path, config)(*NEW, "{}").ok()


def test_status_counts_every_class(cli: Cli, config: Path, database_url: str) -> None:
    """For people as a table, for programs as JSON with fixed names."""
    with table_of(write_config(config, database_url, PUBLISHERS)) as table:
        now = table.now_ms()
        table.fill(3, created_at_ms=now - 65_000)
        table.fill(1, next_retry_at_ms=now + 3_600_000)
        table.fill(2, status="failed")
        table.fill(1, status="retryable", next_retry_at_ms=now + 60_000)
        table.fill(4, status="delivered")
    shown = cli("status").ok().splitlines()
    assert shown[1].split() == [
        "lane", "waiting", "scheduled", "retrying", "delivering", "dead", "oldest", "next", "due", "state",
    ]  # fmt: skip
    assert shown[2].split()[:6] == ["room_outbox", "3", "1", "1", "0", "2"]
    assert "1 min" in shown[2]
    assert shown[2].endswith("on")
    assert "outboxd dead list --lane room_outbox" in shown[3]
    document = cli("status", "--json").json
    assert document.keys() == {"time_ms", "database", "daemon", "daemon_problem", "lanes"}
    (lane,) = document["lanes"]
    assert (lane["fresh"], lane["scheduled"], lane["retrying"], lane["delivering"], lane["failed"]) == (3, 1, 1, 0, 2)
    assert (lane["enabled"], lane["problem"], lane["paused"], lane["capped"]) == (True, None, False, [])
    assert 60_000 < lane["oldest_age_ms"] < 120_000
    assert abs(document["time_ms"] - now) < 60_000


def test_a_paused_lane_is_shown_with_who_and_how_to_go_on(cli: Cli) -> None:
    """A pause that was forgotten looks like an outage."""
    cli(*NEW, "{}").ok()
    assert "room_outbox is paused on all nodes" in cli("pause", "room_outbox", "--reason", "receiver moves").ok()
    said = cli("status").ok()
    assert "paused" in said.splitlines()[2]
    assert "receiver moves: `outboxd resume room_outbox`" in said
    assert cli("status", "--json").json["lanes"][0]["paused_by"].endswith(": receiver moves")
    cli("resume", "room_outbox").ok()
    assert cli("run", "--until-empty").status == 0
    assert cli("status", "--json").json["lanes"][0]["fresh"] == 0


def test_a_lane_without_a_table_does_not_hide_the_others(cli: Cli, config: Path, database_url: str) -> None:
    """One that is not enabled may have none; one that is says what to do, and the status is 1."""
    lanes = {"room_outbox": {}, "orders": {}, "old": {"enabled": False}}
    write_config(config, database_url, PUBLISHERS, lanes=lanes)
    shown = cli("status")
    assert (shown.status, shown.err) == (1, "")
    assert "orders: " in shown.out
    assert "init-db" in shown.out
    assert "room_outbox        0" in shown.out
    assert "old" not in shown.out.split()


def test_watch_shows_it_again_until_ctrl_c(cli: Cli) -> None:
    """With --json one document a line, for a program that reads along; the end is no failure."""
    with cli.start("status", "--watch", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        first, second = json.loads(process.stdout.readline()), json.loads(process.stdout.readline())
        assert 1500 < second["time_ms"] - first["time_ms"] < 10_000
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_terminal_gets_colours_and_a_table_that_fits(cli: Cli) -> None:
    """Where a row does not fit, it is a paragraph: nothing is cut off. What is piped on is plain text."""
    wide = cli.on_terminal("status", columns=120)
    assert (wide.status, "\x1b" in wide.out) == (0, True)
    assert any("room_outbox" in line and line.rstrip().endswith("on") for line in wide.out.splitlines())
    narrow = cli.on_terminal("status", columns=40).out
    assert "lane: room_outbox\nwaiting: 0\nscheduled: 0\n" in narrow
    assert "\x1b" not in cli("status").ok()
