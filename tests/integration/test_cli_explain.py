"""`outboxd explain`: every state, told from a row that is in it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outboxd.explain import story
from tests.services.cli import Cli
from tests.services.daemon import write_config
from tests.services.lanes import Table, table_of

PUBLISHERS = {
    "bus": {"type": "null"},
    "im": {"type": "null", "events": ["Room*", "!RoomHeatChanged"]},
}
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


def one(cli: Cli, event_id: str) -> tuple[dict[str, Any], str]:
    """The event's story for programs and for people."""
    (document,) = cli("explain", event_id, "--json").json["events"]
    assert document["state"] in story.STATES
    said = cli("explain", event_id).ok()
    assert said.startswith(f"event {event_id} in room_outbox (id {document['event']['id']}, ")
    return document, said


def test_an_event_that_was_never_seen(cli: Cli, table: Table) -> None:
    """The most likely reasons, and status 1 for scripts."""
    shown = cli("explain", "nothing")
    assert (shown.status, shown.err) == (1, "")
    assert "event nothing was never seen in room_outbox" in shown.out
    assert "did not commit" in shown.out
    assert "; or, in " not in shown.out, "nothing is thrown away here"
    assert cli("explain", "nothing", "--json").json == {"event_id": "nothing", "lanes": ["room_outbox"], "events": []}


def test_an_event_that_is_nowhere_may_have_been_thrown_away(tmp_path: Path, cli: Cli, sqlite_url: str) -> None:
    """Each way to go that a lane's configuration has is named, with its key; of this lane alone if one is asked for."""
    lanes: dict[str, dict[str, Any]] = {
        "display": {"stale_discard_after": "30s", "cleanup_interval": "1m", "cleanup_terminal_after": "1h"},
        "audit": {"retention": "168h"},
        "plain": {"retention": "-1h", "cleanup_active_after": "1h"},
    }
    write_config(tmp_path / "outbox.yaml", sqlite_url, PUBLISHERS, lanes=lanes)
    cli("init-db").ok()
    audit = "in audit, it was delivered and deleted 7 d later (retention)"
    display = (
        "in display, it was discarded, older than 30 s when its turn came (stale_discard_after) "
        "or it was cleaned up at an age of 1 h (cleanup_terminal_after)"
    )
    said = cli("explain", "nothing").out
    assert (audit in said, display in said, "in plain, " in said) == (True, True, False)
    said = cli("explain", "nothing", "--lane", "audit").out
    assert (audit in said, display in said) == (True, False)


def test_a_fresh_event_waits_behind_others(cli: Cli, table: Table) -> None:
    """How long, how many before it, and that nobody seems to work."""
    since = table.now_ms() - 60_000
    table.fill(2, created_at_ms=since)
    (event_id,) = table.fill(1, created_at_ms=since)
    table.fill(3, created_at_ms=since)
    document, said = one(cli, event_id)
    assert (document["state"], document["ahead"], document["asked"]) == ("waiting", 2, ["bus", "im"])
    assert (document["workers"], document["blame"], document["attempts"]) == ({}, None, 0)
    assert "it waits for 1 min" in said
    assert "to be published for the first time" in said
    assert "2 events are before it" in said
    assert "is the daemon running" in said
    assert "goes to bus, im" in said


def test_a_fresh_event_knows_of_workers_and_of_the_last_delivery(cli: Cli, table: Table) -> None:
    """Evidence in the tables that somebody works, or when somebody last did."""
    now = table.now_ms()
    table.fill(1, status="delivered", delivered_at_ms=now - 2 * HOUR_MS)
    (event_id,) = table.fill(1, created_at_ms=now - HOUR_MS)
    assert "the newest delivered event was delivered 2 h ago" in one(cli, event_id)[1]
    table.fill(3, status="delivering", worker_id="n2/room_outbox-01", lock_until_ms=now + HOUR_MS)
    table.fill(1, status="delivering", worker_id="n3/room_outbox-01", lock_until_ms=now - 1)
    document, said = one(cli, event_id)
    assert document["workers"] == {"n2/room_outbox-01": 3}
    assert "workers at work in this lane: n2/room_outbox-01 (3 events)" in said


def test_a_fresh_event_in_an_outage_is_told_what_others_failed_of(cli: Cli, table: Table) -> None:
    """G6: while a publisher rests, most events are not touched: nothing in their own rows says why they wait."""
    now = table.now_ms()
    (event_id,) = table.fill(1, created_at_ms=now - HOUR_MS)
    held = {"status": "retryable", "next_retry_at_ms": now + 60_000}
    table.fill(1, **held, updated_at_ms=now - HOUR_MS, last_error="im: HTTP 401 (check authorization_file)")
    table.fill(1, **held, updated_at_ms=now, last_error="im: HTTP 503")
    said = one(cli, event_id)[1]
    assert "the last failure of another event in this lane, " in said
    assert "ago: im: HTTP 503 (im answered 503: it, or a proxy before it, is out of service" in said
    table.connection.execute("DELETE FROM room_outbox WHERE last_error = 'im: HTTP 503'")
    assert "is the daemon running" in one(cli, event_id)[1]


def test_an_event_of_a_paused_lane_says_who_paused_it(cli: Cli, table: Table) -> None:
    """The reason is not the event's; what to type is."""
    (event_id,) = table.fill(1)
    cli("pause", "room_outbox", "--reason", "receiver moves").ok()
    document, said = one(cli, event_id)
    assert (document["paused"], document["state"]) == (True, "waiting")
    assert "receiver moves: `outboxd resume room_outbox`" in said
    assert "is the daemon running" not in said


def test_an_event_of_a_lane_that_is_not_enabled_says_so(
    cli: Cli, table: Table, config: Path, database_url: str
) -> None:
    """Every lane is looked at, enabled or not; one without a table is passed over."""
    (event_id,) = table.fill(1)
    lanes = {"room_outbox": {"enabled": False}, "none": {"enabled": False}}
    write_config(config, database_url, PUBLISHERS, lanes=lanes)
    assert "set `lanes.room_outbox.enabled`" in one(cli, event_id)[1]


def test_a_delayed_event_says_until_when(cli: Cli, table: Table) -> None:
    """Its producer wanted it so: nothing is wrong."""
    due = table.now_ms() + HOUR_MS
    (event_id,) = table.fill(1, next_retry_at_ms=due)
    document, said = one(cli, event_id)
    assert (document["state"], document["next_try_ms"]) == ("delayed", due)
    assert "it is delayed until 2" in said
    assert "its producer wanted it so" in said


def test_an_event_that_is_being_published_says_by_whom(cli: Cli, table: Table) -> None:
    """And for how long its lease lasts."""
    until = table.now_ms() + 60_000
    (event_id,) = table.fill(1, status="delivering", worker_id="n1/room_outbox-03", lock_until_ms=until)
    document, said = one(cli, event_id)
    assert (document["state"], document["next_try_ms"]) == ("publishing", None)
    assert "it is being published by n1/room_outbox-03" in said


def test_an_event_whose_lease_ran_out_is_no_longer_said_to_be_published(cli: Cli, table: Table) -> None:
    """Its worker died or hangs; the loss will count."""
    until = table.now_ms() - 60_000
    (event_id,) = table.fill(1, status="delivering", worker_id="n1/room_outbox-03", lock_until_ms=until)
    document, said = one(cli, event_id)
    assert document["state"] == "lease_over"
    assert "its lease ran out 1 min" in said
    assert "ago: n1/room_outbox-03 died or hangs" in said
    assert "0 of 10 attempts used up" in said


def test_a_retryable_event_says_attempts_next_try_and_whose_fault(cli: Cli, table: Table) -> None:
    """The three questions of whoever looks for an event."""
    due = table.now_ms() + HOUR_MS
    retry = {"status": "retryable", "retry_count": 3, "next_retry_at_ms": due, "published_to": "bus"}
    (event_id,) = table.fill(1, **retry, last_error="im: HTTP 500: boom")
    document, said = one(cli, event_id)
    assert (document["state"], document["blame"], document["attempts"]) == ("retrying", "event", 3)
    assert (document["next_try_ms"], document["max_attempts"]) == (due, 10)
    assert (document["accepted"], document["asked"]) == (["bus"], ["im"])
    assert "last error: im: HTTP 500: boom" in said
    assert "im answered 500" in said
    assert "3 of 10 attempts used up" in said
    assert "accepted already by bus" in said


def test_a_parked_event_says_which_publisher_fails(cli: Cli, table: Table) -> None:
    """It was not even tried: nothing is wrong with it."""
    retry = {"status": "retryable", "next_retry_at_ms": table.now_ms() + 60_000, "published_to": "bus"}
    (event_id,) = table.fill(1, **retry, last_error="im: waiting for im, which is failing")
    document, said = one(cli, event_id)
    assert (document["state"], document["blame"]) == ("parked", "receiver")
    assert "it is parked, since im is failing, so it was not tried" in said


def test_a_held_event_says_what_to_change(cli: Cli, table: Table) -> None:
    """A misconfiguration is a person's to mend, and costs no attempt."""
    retry = {"status": "retryable", "next_retry_at_ms": table.now_ms() + 60_000}
    (event_id,) = table.fill(1, **retry, last_error="im: HTTP 401 (check authorization_file)")
    document, said = one(cli, event_id)
    assert (document["state"], document["blame"]) == ("misconfigured", "configuration")
    assert document["todo"] == ["check `publishers.im.authorization_file`"]
    assert "no attempt is used up" in said


def test_a_delivered_event_says_when_and_to_whom(cli: Cli, table: Table) -> None:
    """Also where nobody wanted it."""
    now = table.now_ms()
    done = {"status": "delivered", "created_at_ms": now - 90_000, "delivered_at_ms": now - 60_000}
    (all_,) = table.fill(1, **done)
    (named,) = table.fill(1, **done, published_to="bus,im")
    assert one(cli, all_)[0]["state"] == "delivered"
    assert ", 30 s after it was created" in one(cli, all_)[1]
    assert "today: bus, im" in one(cli, all_)[1]
    assert one(cli, named)[0]["accepted"] == ["bus", "im"]
    assert "accepted by bus, im" in one(cli, named)[1]


def test_a_dead_letter_says_since_when_why_who_refused_it_and_how_to_replay(cli: Cli, table: Table) -> None:
    """With the very command."""
    dead = {"status": "failed", "updated_at_ms": table.now_ms() - HOUR_MS, "published_to": "bus,!im", "retry_count": 1}
    (event_id,) = table.fill(1, **dead, last_error="im: HTTP 422: no such room")
    document, said = one(cli, event_id)
    assert (document["state"], document["blame"]) == ("dead", "event")
    assert (document["accepted"], document["refused"], document["asked"]) == (["bus"], ["im"], [])
    assert "(1 h ago)" in said
    assert "reason: im: HTTP 422: no such room" in said
    assert "refused by im" in said
    command = f"outboxd dead replay {event_id} --lane room_outbox --app app"
    assert f"`{command}`" in said
    cli(*command.split()[1:]).ok()
    document, said = one(cli, event_id)
    assert (document["state"], document["asked"]) == ("waiting", ["im"])
    assert "it was a dead letter and is pending again" in said


def test_an_id_of_several_tenants_is_said_to_be_several_events(cli: Cli, table: Table) -> None:
    """An event_id is unique within an app code only; --app chooses."""
    for app in ("acme", "tencent"):
        table.fill(1, event_id="same", app_code=app)
    said = cli("explain", "same").ok()
    assert "2 events have this id, which is unique within an app code only" in said
    assert said.count("\nevent same in room_outbox") == 2
    assert "2 events" not in cli("explain", "same", "--app", "acme").ok()
    assert cli("explain", "same", "--app", "none").status == 1


def test_what_a_row_holds_cannot_write_to_the_terminal(cli: Cli, table: Table) -> None:
    """An error text comes from a receiver, and a room's name from anyone."""
    (event_id,) = table.fill(1, status="failed", room_id="r\x1b[31m", last_error="HTTP 422: \x1b[2J\x07")
    said = cli("explain", event_id).ok()
    assert "\x1b" not in said
    assert "\\x1b[2J" in said


def test_an_event_that_is_due_while_its_publisher_fails_knows_of_the_probe(cli: Cli, table: Table) -> None:
    """G6: no free worker takes it then; the next thing to happen is a probe. One that was given back waits for none."""
    failed = {"status": "retryable", "next_retry_at_ms": table.now_ms() - 1}
    (refused,) = table.fill(1, **failed, last_error="im: HTTP 503")
    (parked,) = table.fill(1, **failed, last_error="im: waiting for im, which is failing")
    (given_back,) = table.fill(1, **failed)
    probe = "next try as soon as a worker is free, or at the publisher's next probe, while it is failing"
    for event_id in (refused, parked):
        said = one(cli, event_id)[1]
        assert probe in said
        assert "or sooner" not in said
    assert "probe" not in one(cli, given_back)[1]
