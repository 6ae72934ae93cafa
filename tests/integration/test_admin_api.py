"""The admin API of a running daemon: what it tells is what the commands say, of the same rows."""

import base64
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from outboxd import __version__
from tests.services.admin_running import Running, bury, delay, ok, running_in, without_clock
from tests.services.lanes import Table


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_in(tmp_path_factory.mktemp("api")) as made:
        yield made


@pytest.fixture
def table(running: Running) -> Table:
    """Empty."""
    running.table.connection.execute("DELETE FROM room_outbox")
    return running.table


# lanes


def test_lanes_are_told_with_their_numbers_and_workers(running: Running, table: Table) -> None:
    """What `outboxd status` shows, of one node."""
    delay(table, "d1", "d2")
    bury(table, "x1")

    def counted() -> Any:
        document = ok(running.owner.get("/api/lanes"))
        return document if document["lanes"][0]["failed"] == 1 else None

    document = running.daemon.wait_until(counted, "the numbers of now")
    assert (document["node_id"], document["version"], document["draining"]) == ("node", __version__, False)
    assert (document["database_up"], 0 <= document["numbers_age_ms"] < 60_000) == (True, True)
    (lane,) = document["lanes"]
    assert (lane["lane"], lane["scheduled"], lane["fresh"], lane["capped"]) == ("room_outbox", 2, 0, [])
    assert (lane["paused"], lane["problem"], lane["breakers"]) == (False, None, {"bus": 0, "im": 0})
    assert {worker["worker"]: worker["pid"] for worker in lane["workers"]} == running.daemon.workers(4)
    for worker in lane["workers"]:
        assert (worker["state"], worker["in_flight"], sum(worker["restarts"].values())) == ("running", 0, 0)
        assert 0 <= worker["heartbeat_age_ms"] <= worker["age_ms"]
    assert running.cli("status", "--json").json["lanes"][0].keys() == lane.keys()


# events


def test_an_event_s_story_is_the_one_that_explain_tells(running: Running, table: Table) -> None:
    """Of every tenant, in every lane, unless one is named."""
    delay(table, "e1")
    bury(table, "e1", app_code="other")
    told = ok(running.owner.get("/api/events/e1"))
    assert without_clock(told) == without_clock(running.cli("explain", "e1", "--json").json)
    assert [event["state"] for event in told["events"]] == ["delayed", "dead"]
    one = ok(running.owner.get("/api/events/e1?app=other&lane=room_outbox"))
    assert [event["event"]["app_code"] for event in one["events"]] == ["other"]
    missing = running.owner.get("/api/events/e2")
    assert (missing.status, "never seen in room_outbox" in missing.error) == (404, True)
    assert "did not commit" in missing.json["todo"]


@pytest.mark.parametrize(
    "event_id",
    ["a/b", "/", "//", "a//b/", "a b", "a?b#c", "%41", "100%", "a+b", "replay", "..", ".", "a\\b", "\x7f\n", "&lane=x",
     "x" * 64],
)  # fmt: skip
def test_an_event_of_any_id_is_found(running: Running, table: Table, event_id: str) -> None:
    """Producers choose them; any ASCII may stand in one."""
    delay(table, event_id)
    found = ok(running.owner.get(f"/api/events/{quote(event_id, safe='')}"))
    assert [event["event"]["event_id"] for event in found["events"]] == [event_id]
    table.connection.execute("UPDATE room_outbox SET status = 'failed'")
    found = ok(running.owner.get(f"/api/dead/{quote(event_id, safe='')}"))
    assert [event["event"]["event_id"] for event in found["events"]] == [event_id]


# dead letters: list and show


def test_dead_letters_are_listed_page_by_page(running: Running, table: Table) -> None:
    """Newest first, none twice and none left out, as the command lists them."""
    bury(table, *(f"x{i}" for i in range(5)))
    seen, target, pages = [], "/api/dead?limit=2", 0
    while target:
        page = ok(running.owner.get(target))
        assert page["count"] == (5 if pages == 0 else None), "counted once"
        seen += page["events"]
        pages += 1
        following = page["next_before_id"]
        target = f"/api/dead?limit=2&before_id={following}" if following is not None else ""
    assert (pages, [event["event_id"] for event in seen]) == (3, ["x4", "x3", "x2", "x1", "x0"])
    listed = running.cli("dead", "list", "--json").json
    assert seen == listed["events"]
    assert ok(running.owner.get("/api/dead")) == {**listed, "next_before_id": None}


@pytest.mark.parametrize(
    ("query", "options", "found"),
    [
        ("event_type=Gift*", ["--event-type", "Gift*"], ["b"]),
        ("room=r%202", ["--room", "r 2"], ["c"]),
        ("app=", ["--app", ""], ["d"]),
        ("error=TIME-OUT", ["--error", "TIME-OUT"], ["e"]),
        ("since=30m", ["--since", "30m"], ["f"]),
        ("until=2020-01-01", ["--until", "2020-01-01"], ["g"]),
        ("room=r%202&event_type=Gift*", ["--room", "r 2", "--event-type", "Gift*"], []),
    ],
)
def test_filters_mean_what_the_options_mean(
    running: Running, table: Table, query: str, options: list[str], found: list[str]
) -> None:
    bury(table, "a")
    bury(table, "b", event_type="GiftSent")
    bury(table, "c", room_id="r 2")
    bury(table, "d", app_code="")
    bury(table, "e", last_error="time-out")
    bury(table, "f", updated_at_ms=table.now_ms() - 1000)
    bury(table, "g", updated_at_ms=1)
    told = ok(running.owner.get(f"/api/dead?{query}"))
    assert ([event["event_id"] for event in told["events"]], told["count"]) == (found, len(found))
    assert told["events"] == running.cli("dead", "list", *options, "--json").json["events"]


def test_a_dead_letter_is_shown_with_its_payload(running: Running, table: Table) -> None:
    """Text as text, anything else as base64; where the event is instead, if it is not dead."""
    bury(table, "x1", envelope='{"ü": 1}'.encode())
    bury(table, "x2", envelope=b"\xff\x00")
    told = ok(running.owner.get("/api/dead/x1"))
    assert without_clock(told) == without_clock(running.cli("dead", "show", "x1", "--json").json)
    assert told["events"][0]["envelope"] == '{"ü": 1}'
    assert base64.b64decode(ok(running.owner.get("/api/dead/x2"))["events"][0]["envelope_base64"]) == b"\xff\x00"
    delay(table, "d1")
    missing = running.owner.get("/api/dead/d1")
    assert (missing.status, missing.error) == (404, "no dead letter in room_outbox matches: event d1 is pending")


def test_payloads_of_one_answer_are_bounded(running: Running, table: Table) -> None:
    """G9: several tenants may have the id, each with a payload of megabytes."""
    large = b"x" * (9 * 1024 * 1024)
    for app in ("a", "b", "c"):
        bury(table, "x1", app_code=app, envelope=large if app != "a" else b"{}")
    events = ok(running.owner.get("/api/dead/x1"))["events"]
    shown = {event["event"]["app_code"]: event["envelope"] and len(event["envelope"]) for event in events}
    assert shown == {"c": len(large), "b": None, "a": 2}
    assert len(ok(running.owner.get("/api/dead/x1?app=b"))["events"][0]["envelope"]) == len(large)
