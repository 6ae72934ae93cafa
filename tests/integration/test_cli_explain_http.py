"""What `outboxd explain` says of a receiver's answers is what happened: each one comes from a real receiver."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.services.cli import Cli
from tests.services.daemon import Daemon, write_config
from tests.services.lanes import table_of
from tests.services.receiver import Receiver

ANSWERS: dict[str, tuple[dict[str, object], str, str | None, str]] = {
    # what the receiver does: state, blame, a part of what is said. Nothing has got through before, so that even what is
    # counted otherwise is blamed on the receiver.
    "200": ({"status": 200}, "delivered", None, "accepted by every publisher"),
    "302": ({"status": 302, "location": "/x"}, "misconfigured", "configuration", "put the final address into"),
    "400": ({"status": 400, "body": "no"}, "dead", "event", "webhook answered 400: it can never accept this event"),
    "401": ({"status": 401}, "misconfigured", "configuration", "check `publishers.webhook.authorization_file`"),
    "403": ({"status": 403}, "misconfigured", "configuration", "allow it at the receiver"),
    "404": ({"status": 404}, "misconfigured", "configuration", "check `publishers.webhook.url`"),
    "413": ({"status": 413}, "dead", "event", "webhook answered 413: it can never accept this event"),
    "422": ({"status": 422, "body": "no room"}, "dead", "event", "reason: HTTP 422: no room"),
    "429": ({"status": 429, "retry_after": "60"}, "retrying", "receiver", "it wants fewer events at a time"),
    "500": ({"status": 500, "body": "boom"}, "retrying", "receiver", "webhook answered 500: it failed while"),
    "502": ({"status": 502}, "retrying", "receiver", "webhook answered 502"),
    "503": ({"status": 503}, "retrying", "receiver", "webhook answered 503"),
    "hang": ({"hang": True}, "retrying", "receiver", "webhook did not answer in time"),
    "reset": ({"close": "before_answer"}, "retrying", "receiver", "webhook ended the connection without an answer"),
    "headers": (
        {"headers": tuple((f"X-{number}", "x" * 5000) for number in range(100))},
        "retrying",
        "receiver",
        "outboxd gave up on webhook, since its answer's headers were too long",
    ),
    "garbage": (
        {"raw": b"hello\r\n\r\n", "close": "after_answer"},
        "retrying",
        "receiver",
        "an answer that is no HTTP",
    ),
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


@pytest.fixture
def cli(tmp_path: Path, sqlite_url: str, receiver: Receiver) -> Cli:
    config = tmp_path / "outbox.yaml"
    resting = {"initial_probe": "50ms"}
    publisher = {"webhook": {"type": "http", "url": receiver.url, "connections": 2, "breaker": resting}}
    short = {"publish_timeout": "500ms", "initial_backoff": "10s", "max_backoff": "20s"}
    write_config(config, sqlite_url, publisher, concurrency=1, **short)  # type: ignore[arg-type]  # keys of the file
    made = Cli(tmp_path, config)
    made("init-db").ok()
    return made


def enqueue(cli: Cli, *event_ids: str) -> None:
    for event_id in event_ids:
        cli("enqueue", "--type", "RoomCreated", "--room", "r1", "--event-id", event_id, "{}").ok()


def story(cli: Cli, event_id: str) -> dict[str, Any]:
    document: dict[str, Any] = cli("explain", event_id, "--json").json["events"][0]
    return document


def is_settled(folder: Path, event_id: str) -> bool:
    """Asked of the table: the command takes longer to start than a refused event waits for its next try."""
    with closing(sqlite3.connect(folder / "outbox.db")) as connection:
        rows = connection.execute("SELECT status FROM room_outbox WHERE event_id = ?", (event_id,)).fetchall()
    return rows[0][0] not in ("pending", "delivering")


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_told_as_it_was_meant(cli: Cli, receiver: Receiver, tmp_path: Path, name: str) -> None:
    """G6: whose fault it was, and whether an attempt was used up, is what people decide by."""
    behaviour, state, blame, part = ANSWERS[name]
    receiver.answer(**behaviour)  # type: ignore[arg-type]  # a behaviour's own words
    enqueue(cli, "e1")
    with Daemon(tmp_path / "outbox.yaml", tmp_path / "log") as daemon:
        daemon.wait_until(lambda: is_settled(tmp_path, "e1"), "the event to be settled")
        daemon.drain(0.5)
    told = story(cli, "e1")
    assert (told["state"], told["blame"]) == (state, blame)
    said = cli("explain", "e1").ok()
    assert part in said
    assert len(receiver.requests) == 1
    logged = daemon.lines("outbox_publish_retryable") + daemon.lines("outbox_dead_letter")
    assert [line["retry_count"] for line in logged] == ([] if state == "delivered" else [told["attempts"]])
    if blame in ("receiver", "configuration"):
        assert told["attempts"] == 0
        assert "attempts used up" not in said
        assert "it uses up an attempt" not in said
    if name == "429":  # what it asked for holds, as far as max_backoff allows
        assert told["next_try_ms"] - told["event"]["updated_at_ms"] >= 20_000


def test_an_event_that_alone_fails_uses_up_attempts_and_says_so(cli: Cli, receiver: Receiver, tmp_path: Path) -> None:
    """G7: others get through, so it is the event."""
    receiver.answer(event_id="bad", status=500)
    enqueue(cli, "good", "bad")
    with Daemon(tmp_path / "outbox.yaml", tmp_path / "log") as daemon:
        daemon.wait_until(lambda: is_settled(tmp_path, "bad") and is_settled(tmp_path, "good"), "both to be settled")
        daemon.drain(0.5)
    assert story(cli, "good")["state"] == "delivered"
    assert (story(cli, "bad")["attempts"], story(cli, "bad")["blame"]) == (1, "event")
    assert "1 of 10 attempts used up" in cli("explain", "bad").ok()


def test_what_waits_for_a_failing_publisher_is_told_to_be_parked(cli: Cli, receiver: Receiver, tmp_path: Path) -> None:
    """G6: in an outage most events are not even tried; it is the publisher that is to be looked at."""
    enqueue(cli, "before")
    names = [f"e{number}" for number in range(12)]
    with Daemon(tmp_path / "outbox.yaml", tmp_path / "log") as daemon:
        daemon.wait_until(lambda: is_settled(tmp_path, "before"), "the first event")
        cli("pause", "room_outbox").ok()
        daemon.wait_for("lane_paused")
        enqueue(cli, *names)
        receiver.refuse()
        receiver.cut()
        cli("resume", "room_outbox").ok()
        daemon.wait_for("breaker_opened")
        daemon.wait_until(lambda: is_settled(tmp_path, names[-1]), "the last one to be settled")
        daemon.drain(0.5)
    stories = [story(cli, name) for name in names]
    assert {told["state"] for told in stories} == {"retrying", "parked"}
    assert {told["blame"] for told in stories} == {"receiver"}
    assert {told["attempts"] for told in stories} == {0}
    parked = next(told for told in stories if told["state"] == "parked")
    assert parked["todo"] == ["look at webhook: probes are sent to it, and it goes on by itself"]


def test_attempts_that_are_used_up_are_told(tmp_path: Path, sqlite_url: str, receiver: Receiver) -> None:
    """The end of an event that a receiver failed on again and again, while others got through."""
    config = tmp_path / "outbox.yaml"
    short = {"initial_backoff": "50ms", "max_backoff": "50ms", "max_retry_count": 3}
    publisher = {"webhook": {"type": "http", "url": receiver.url}}
    settings = write_config(config, sqlite_url, publisher, **short)  # type: ignore[arg-type]  # keys of the file
    cli = Cli(tmp_path, config)
    cli("init-db").ok()
    receiver.answer(event_id="bad", status=500, body="boom")
    enqueue(cli, "good", "bad")
    with table_of(settings) as table, Daemon(config, tmp_path / "log") as daemon:
        daemon.wait_until(table.is_done, "both to end")
        daemon.drain(3)
    told = story(cli, "bad")
    assert (told["state"], told["attempts"], told["max_attempts"]) == ("dead", 3, 3)
    assert "that was attempt 3, and max_retry_count is 3" in cli("explain", "bad").ok()
    assert json.dumps(told)  # all of it is data
