"""`outboxd dead`: listing, showing, replaying, purging, killing, as a person does it and as a script does."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.cli import Cli
from tests.services.daemon import write_config
from tests.services.lanes import Table, table_of
from tests.services.receiver import Receiver

PUBLISHERS = {"bus": {"type": "null"}, "im": {"type": "null", "events": ["Room*"]}}
HOUR_MS = 3_600_000


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "outbox.yaml"


@pytest.fixture
def cli(tmp_path: Path, config: Path) -> Cli:
    return Cli(tmp_path, config)


@pytest.fixture
def table(config: Path, database_url: str) -> Iterator[Table]:
    with table_of(write_config(config, database_url, PUBLISHERS)) as made:
        yield made


def bury(table: Table, *event_ids: str, **columns: object) -> None:
    """Make dead letters."""
    usual: dict[str, object] = {"status": "failed", "updated_at_ms": table.now_ms() - HOUR_MS, "retry_count": 2}
    usual |= {"last_error": "im: HTTP 422: no room", "published_to": "bus,!im"}
    for event_id in event_ids:
        table.fill(1, event_id=event_id, **{**usual, **columns})


def status_of(table: Table, event_id: str) -> object:
    return table.row(event_id)["status"]


# list and show


def test_dead_letters_are_listed_newest_first(cli: Cli, table: Table) -> None:
    """One line each, with the reason; how many more there are is said."""
    bury(table, "e1", "e2", "e3")
    lines = cli("dead", "list", "--limit", "2").ok().splitlines()
    assert lines[0].split() == ["id", "died", "app", "event_id", "type", "room", "attempts", "reason"]
    assert [line.split()[5] for line in lines[1:3]] == ["e3", "e2"]
    assert lines[1].endswith("2  im: HTTP 422: no room")
    assert lines[3] == "2 of 3 in room_outbox; --limit shows more"


def test_the_list_for_programs_has_fixed_names(cli: Cli, table: Table) -> None:
    """What `jq` is used on."""
    bury(table, "e1")
    document = cli("dead", "list", "--json").json
    assert (document["lane"], document["count"], document["count_is_lower_bound"]) == ("room_outbox", 1, False)
    (event,) = document["events"]
    assert (event["event_id"], event["retry_count"], event["last_error"]) == ("e1", 2, "im: HTTP 422: no room")
    assert event["died_at_ms"] == table.row("e1")["updated_at_ms"]


FILTERS: list[tuple[list[str], set[str]]] = [
    ([], {"e1", "e2", "e3", "e4"}),
    (["e2"], {"e2"}),
    (["--event-id", "e2"], {"e2"}),
    (["--event-type", "Room*"], {"e1", "e2", "e4"}),
    (["--room", "room-9"], {"e2"}),
    (["--app", "acme"], {"e4"}),
    (["--since", "90m"], {"e1", "e2", "e3"}),
    (["--until", "90m"], {"e4"}),
    (["--since", "1d", "--until", "90m"], {"e4"}),
    (["--until", "2020-01-01"], set()),
    (["--since", "2020-01-01T00:00+08:00"], {"e1", "e2", "e3", "e4"}),
    (["--error", "TIME"], {"e3"}),
    (["--event-type", "Room*", "--limit", "2"], {"e2", "e4"}),
]


def test_every_filter_narrows_the_list(cli: Cli, table: Table) -> None:
    """All that a person knows of an event is a way to it."""
    bury(table, "e1")
    bury(table, "e2", room_id="room-9")
    bury(table, "e3", event_type="Gift", last_error="im: no complete answer in time")
    bury(table, "e4", app_code="acme", updated_at_ms=table.now_ms() - 2 * HOUR_MS)
    for given, found in FILTERS:
        events = cli("dead", "list", "--json", *given).json["events"]
        assert {event["event_id"] for event in events} == found, given


def test_one_is_shown_with_its_payload(cli: Cli, table: Table) -> None:
    """What it holds is often why it was refused. Bytes that are no text come as escapes, or whole as base64."""
    bury(table, "e1", envelope=b'{"title": "h\xc3\xa4llo\x1b"}', headers='{"traceparent": "x"}')
    said = cli("dead", "show", "e1").ok()
    for part in ("reason: im: HTTP 422: no room", "refused by im", "accepted by bus", '"hällo\\x1b"', "traceparent"):
        assert part in said
    (event,) = cli("dead", "show", "e1", "--json").json["events"]
    assert (event["state"], json.loads(event["envelope"], strict=False)["title"]) == ("dead", "hällo\x1b")
    bury(table, "e2", envelope=b"\xff\x00")
    assert cli("dead", "show", "e2", "--json").json["events"][0]["envelope_base64"] == "/wA="
    assert cli("dead", "show", "nothing").status == 1


def test_the_list_fits_a_terminal(cli: Cli, table: Table) -> None:
    """A long reason is wrapped on a wide one; on a narrow one each dead letter is a paragraph."""
    bury(table, "e1", last_error="x" * 300)
    wide = cli.on_terminal("dead", "list", columns=140).out
    assert max(len(re.sub("\x1b[^m]*m", "", line)) for line in wide.splitlines()) <= 140
    assert wide.count("x") == 300
    assert "event_id: e1\n" in cli.on_terminal("dead", "list", columns=50).out


# replay


def test_one_dead_letter_is_replayed_without_asking(cli: Cli, table: Table) -> None:
    """It keeps its event_id; who accepted it is not asked again, who refused it is."""
    bury(table, "e1", "e2")
    said = cli("dead", "replay", "e1").ok()
    assert "asked will be: im (1); not asked again, since they accepted: bus (1)" in said
    assert "1 dead letter of room_outbox pending again" in said
    row = table.row("e1")
    assert (row["status"], row["retry_count"], row["published_to"]) == ("pending", 0, "bus")
    assert status_of(table, "e2") == "failed"


def test_a_replay_to_all_asks_everyone_again(cli: Cli, table: Table) -> None:
    """For a receiver that accepted events and lost them."""
    bury(table, "e1")
    assert "asked will be: bus (1), im (1)\n" in cli("dead", "replay", "e1", "--to", "all").ok()
    assert table.row("e1")["published_to"] is None


def test_a_replay_of_many_asks_first(cli: Cli, table: Table) -> None:
    """A backlog that comes back at once may bring the receiver down again."""
    bury(table, "e1", "e2", "e3")
    assert "add --yes to do it" in cli("dead", "replay").failed(2)
    assert status_of(table, "e1") == "failed"
    asked = cli.on_terminal("dead", "replay", typed="n\n")
    assert "Publish 3 dead letters of room_outbox again?" in asked.out
    assert (asked.status, status_of(table, "e1")) == (1, "failed")
    assert "nothing was changed" in asked.out
    assert cli.on_terminal("dead", "replay", "--limit", "2", typed="y\n").status == 0
    assert [status_of(table, name) for name in ("e1", "e2", "e3")] == ["pending", "pending", "failed"]
    assert "1 dead letter" in cli("dead", "replay", "--yes").ok()


def test_a_dry_run_changes_nothing(cli: Cli, table: Table) -> None:
    """And needs no answer."""
    bury(table, "e1", "e2")
    assert "2 dead letters of room_outbox would be published again" in cli("dead", "replay", "--dry-run").ok()
    assert "2 dead letters of room_outbox would be deleted for good" in cli("dead", "purge", "--dry-run").ok()
    document = cli("dead", "purge", "--dry-run", "--json").json
    assert document == {"lane": "room_outbox", "matched": 2, "matched_is_lower_bound": False, "done": 0}
    assert table.by_status() == {"failed": 2}


def test_a_replay_is_as_slow_as_asked(cli: Cli, table: Table) -> None:
    """--rate spares a receiver that has just recovered."""
    bury(table, *(f"e{number}" for number in range(25)))
    since_s = time.monotonic()
    document = cli("dead", "replay", "--yes", "--rate", "10", "--json")
    took_s = time.monotonic() - since_s
    assert json.loads(document.out)["done"] == 25
    assert 2 <= took_s < 6
    assert table.by_status() == {"pending": 25}


def test_one_id_of_several_tenants_is_said_before_a_replay(cli: Cli, table: Table) -> None:
    """It may not be what was meant."""
    bury(table, "same", app_code="acme")
    bury(table, "same", app_code="tencent")
    shown = cli("dead", "replay", "same")
    assert shown.status == 2
    assert "2 events have the id same, of the app codes tencent, acme; --app chooses one" in shown.out
    assert "1 dead letter of" in cli("dead", "replay", "same", "--app", "acme").ok()


def test_an_event_that_is_no_dead_letter_is_not_replayed(cli: Cli, table: Table) -> None:
    """A delivered event must not go out again by a slip; where it is, is said."""
    table.fill(1, event_id="e1", status="delivered")
    shown = cli("dead", "replay", "e1")
    assert (shown.status, shown.err) == (1, "")
    assert "no dead letter in room_outbox matches: event e1 is delivered" in shown.out
    assert "there is no event e2" in cli("dead", "replay", "e2").out
    assert cli("dead", "replay", "--room", "none").status == 0


def test_a_replayed_event_arrives_under_its_old_id(tmp_path: Path, sqlite_url: str) -> None:
    """From the refusal to the delivery, with the real relay and receiver."""
    config = tmp_path / "outbox.yaml"
    cli = Cli(tmp_path, config)
    with Receiver() as receiver:
        write_config(config, sqlite_url, {"webhook": {"type": "http", "url": receiver.url}}, concurrency=1)
        receiver.answer(times=1, status=422, body="no such room")
        cli("enqueue", "--type", "T", "--room", "r", "--event-id", "e1", "{}").ok()
        assert cli("run", "--until-empty").status == 0
        assert "HTTP 422: no such room" in cli("dead", "list").ok()
        cli("dead", "replay", "e1").ok()
        assert cli("run", "--until-empty").status == 0
        assert receiver.event_ids() == ["e1", "e1"]
        assert "no dead letter" in cli("dead", "list").ok()


# purge


def test_purge_asks_even_for_one(cli: Cli, table: Table) -> None:
    """What is deleted cannot be brought back."""
    bury(table, "e1", "e2")
    assert "Delete 1 dead letter of room_outbox for good?" in cli("dead", "purge", "e1").failed(2)
    assert cli.on_terminal("dead", "purge", "e1", typed="y\n").status == 0
    assert table.by_status() == {"failed": 1}
    assert cli("dead", "purge", "--yes", "--json").json["done"] == 1
    assert table.by_status() == {}


def test_what_dies_while_the_question_stands_is_left_alone(cli: Cli, table: Table) -> None:
    """A person agreed to what was counted, not to what came later."""
    bury(table, "e1")
    bury(table, "later", updated_at_ms=table.now_ms() + HOUR_MS)
    assert "1 dead letter of room_outbox deleted" in cli("dead", "purge", "--yes").ok()
    assert "no dead letter" in cli("dead", "replay", "--yes").ok()
    assert status_of(table, "later") == "failed"


# kill


def test_an_unpublished_event_is_killed(cli: Cli, table: Table) -> None:
    """By name only; with who did it as the reason."""
    table.fill(1, event_id="e1")
    assert "add --yes" in cli("dead", "kill", "e1").failed(2)
    assert "is pending and would be killed" in cli("dead", "kill", "e1", "--dry-run").ok()
    assert status_of(table, "e1") == "pending"
    assert "is a dead letter now" in cli("dead", "kill", "e1", "--yes").ok()
    row = table.row("e1")
    assert row["status"] == "failed"
    assert str(row["last_error"]).startswith("killed by ")
    assert "a person ended it" in cli("explain", "e1").ok()


def test_who_was_publishing_a_killed_event_is_said(cli: Cli, table: Table) -> None:
    """What is on its way cannot be called back."""
    until = table.now_ms() + HOUR_MS
    table.fill(1, event_id="e1", status="delivering", worker_id="n1/room_outbox-01", lock_until_ms=until)
    document = cli("dead", "kill", "e1", "--yes", "--json").json
    assert (document["killed"], document["before"]) == (True, "delivering")
    assert document["worker_id"] == "n1/room_outbox-01"


def test_what_is_done_cannot_be_killed(cli: Cli, table: Table) -> None:
    """Status 1, and nothing changes; --yes or not, there is nothing to agree to."""
    table.fill(1, event_id="e1", status="delivered")
    shown = cli("dead", "kill", "e1")
    assert (shown.status, shown.err) == (1, "")
    assert "is delivered already: nothing was changed" in shown.out
    assert "there is no event e2 in room_outbox" in cli("dead", "kill", "e2", "--yes").failed()


def test_an_ambiguous_event_is_not_killed(cli: Cli, table: Table) -> None:
    """The other tenant's event may be a good one. There are no filters that could match several."""
    for app in ("acme", ""):
        table.fill(1, event_id="same", app_code=app)
    assert "say --app with one of '', acme" in cli("dead", "kill", "same", "--yes").failed(2)
    assert "No such option" in cli("dead", "kill", "same", "--room", "r", "--yes").failed(2)
    cli("dead", "kill", "same", "--app", "", "--yes").ok()
    assert table.by_status() == {"failed": 1, "pending": 1}
