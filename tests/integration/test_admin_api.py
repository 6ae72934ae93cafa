"""The admin API of a running daemon: what it answers is what the commands say, of the same rows."""

import base64
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from outboxd import __version__
from outboxd.admin.dead import MOST_CHANGED
from outboxd.config.schema import Database
from outboxd.store import connect
from tests.services.admin import TOKEN, Answer, Client
from tests.services.cli import Cli
from tests.services.daemon import Daemon, write_config
from tests.services.find import free_port
from tests.services.lanes import Table, table_of

PUBLISHERS = {"bus": {"type": "null"}, "im": {"type": "null", "events": ["Room*"]}}
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Running:
    """A daemon, its table, and those who ask it."""

    daemon: Daemon
    table: Table
    cli: Cli
    owner: Client
    token: Client
    database: Database


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder, port = tmp_path_factory.mktemp("api"), free_port()
    (folder / "token").write_text(TOKEN)
    admin = {"listen": f"127.0.0.1:{port}", "token_file": str(folder / "token")}
    config = write_config(
        folder / "o.yaml", f"sqlite:///{folder}/o.db", PUBLISHERS, admin=admin, database={"statement_timeout": "1s"}
    )
    with table_of(config) as table, Daemon(folder / "o.yaml", folder / "log") as daemon:
        daemon.admin_pid()
        owner, token = Client(Path(config.admin.socket)), Client(("127.0.0.1", port), TOKEN)
        yield Running(daemon, table, Cli(folder, folder / "o.yaml"), owner, token, config.database)


@pytest.fixture
def table(running: Running) -> Table:
    """Empty."""
    running.table.connection.execute("DELETE FROM room_outbox")
    return running.table


def bury(table: Table, *event_ids: str, **columns: object) -> None:
    """Make dead letters."""
    usual: dict[str, object] = {"status": "failed", "updated_at_ms": table.now_ms() - HOUR_MS, "retry_count": 2}
    usual |= {"last_error": "im: HTTP 422: no room", "published_to": "bus,!im"}
    table.insert([{"event_id": name, "event_type": "RoomCreated", "room_id": "room-1", "app_code": "app",
                   "envelope": b'{"a": 1}', **usual, **columns} for name in event_ids])  # fmt: skip


def delay(table: Table, *event_ids: str, **columns: object) -> None:
    """Events that no worker touches: due tomorrow."""
    for event_id in event_ids:
        table.fill(1, event_id=event_id, next_retry_at_ms=table.now_ms() + 24 * HOUR_MS, **columns)


def status_of(table: Table, event_id: str) -> object:
    return table.row(event_id)["status"]


def without_clock(document: Any) -> Any:
    """The document but for what a clock says while it is made."""
    if isinstance(document, dict):
        clocks = ("time_ms", "headline", "details", "workers")
        return {name: without_clock(value) for name, value in document.items() if name not in clocks}
    return [without_clock(item) for item in document] if isinstance(document, list) else document


def ok(answer: Answer) -> Any:
    assert answer.status == 200, answer
    assert answer.headers["Content-Type"] == "application/json"
    return answer.json


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


# dead letters: changed


def test_a_dead_letter_is_replayed_and_delivered(running: Running, table: Table) -> None:
    """By a token, whose name is in the log; who is asked is told, in the command's words."""
    bury(table, "x1", "x2")
    told = ok(running.token.post("/api/dead/replay", {"event_id": "x1"}))
    assert told == {
        "lane": "room_outbox", "matched": 1, "matched_is_lower_bound": False, "done": 1, "left": 0, "dry_run": False,
        "says": [
            "asked will be: im (1); not asked again, since they accepted: bus (1)",
            "1 dead letter of room_outbox pending again",
        ],
    }  # fmt: skip
    running.daemon.wait_until(lambda: status_of(table, "x1") == "delivered", "it to be delivered")
    assert status_of(table, "x2") == "failed"
    line = running.daemon.admin_lines("admin_changed")[-1]
    assert (line["by"], line["what"]) == ("token_file", "1 dead letter of room_outbox pending again")
    again = running.token.post("/api/dead/replay", {"event_id": "x1"})
    assert (again.status, again.error) == (404, "no dead letter in room_outbox matches: event x1 is delivered")


def test_a_dry_run_changes_nothing_and_says_what_it_would_do(running: Running, table: Table) -> None:
    """With the numbers of the command."""
    bury(table, "x1", "x2")
    for path, command in (("replay", "published again"), ("purge", "deleted for good")):
        told = ok(running.owner.post(f"/api/dead/{path}", {"dry_run": True, "event_type": "Room*"}))
        assert (told["matched"], told["done"], told["left"], told["dry_run"]) == (2, 0, 2, True)
        assert told["says"][-1] == f"2 dead letters of room_outbox would be {command}"
        same = running.cli("dead", path, "--dry-run", "--event-type", "Room*", "--json").json
        assert same == {name: told[name] for name in same}
    assert table.by_status() == {"failed": 2}


@pytest.mark.parametrize("what", ["replay", "purge"])
def test_all_of_them_must_be_meant(running: Running, table: Table, what: str) -> None:
    """An empty object is what a program sends that lost its filter."""
    bury(table, "x1", "x2", "x3")
    for document in ({}, {"limit": 2}, {"lane": "room_outbox"}, {"all": False}):
        refusal = running.owner.post(f"/api/dead/{what}", document)
        assert (refusal.status, "no filter is given" in refusal.error) == (400, True)
        assert '"all": true' in refusal.json["todo"]
    assert table.by_status() == {"failed": 3}
    assert ok(running.owner.post(f"/api/dead/{what}", {"limit": 1}))["done"] == 1, "one is no accident"
    assert ok(running.owner.post(f"/api/dead/{what}", {"all": True}))["done"] == 2
    nothing = ok(running.owner.post(f"/api/dead/{what}", {"all": True}))
    assert nothing["says"] == ["no dead letter in room_outbox matches"]


def test_those_who_accepted_it_are_asked_again_where_that_is_said(running: Running, table: Table) -> None:
    bury(table, "x1")
    told = ok(running.owner.post("/api/dead/replay", {"event_id": "x1", "to": "all"}))
    assert told["says"][0] == "asked will be: bus (1), im (1)"
    assert running.owner.post("/api/dead/replay", {"event_id": "x1", "to": "bus"}).status == 400


def test_a_request_changes_a_bounded_number_and_says_how_many_are_left(running: Running, table: Table) -> None:
    """G9: no request lasts long; who asks again gets to the end."""
    bury(table, *(f"x{i}" for i in range(MOST_CHANGED + 50)))
    told = ok(running.owner.post("/api/dead/purge", {"all": True}))
    assert (told["matched"], told["done"], told["left"]) == (MOST_CHANGED + 50, MOST_CHANGED, 50)
    told = ok(running.owner.post("/api/dead/purge", {"room": "room-1"}))
    assert (told["done"], told["left"], table.by_status()) == (50, 0, {})


def test_an_event_is_killed_once(running: Running, table: Table) -> None:
    """Who did it stands in the row; what is over already is left alone."""
    delay(table, "e1")
    dry = ok(running.owner.post("/api/dead/kill", {"event_id": "e1", "dry_run": True}))
    assert (dry["killed"], dry["before"], status_of(table, "e1")) == (False, "pending", "pending")
    assert dry["says"][0].endswith("is pending and would be killed")
    told = ok(running.owner.post("/api/dead/kill", {"event_id": "e1"}))
    assert (told["killed"], told["before"], told["worker_id"]) == (True, "pending", "")
    assert (status_of(table, "e1"), table.row("e1")["last_error"]) == ("failed", "killed by admin.socket@node")
    again = running.token.post("/api/dead/kill", {"event_id": "e1"})
    assert (again.status, "is failed already: nothing was changed" in again.error) == (409, True)
    assert running.owner.post("/api/dead/kill", {}).status == 400
    assert running.owner.post("/api/dead/kill", {"event_id": "nope"}).status == 404


def test_an_id_that_two_tenants_have_is_killed_for_one_only(running: Running, table: Table) -> None:
    delay(table, "same")
    delay(table, "same", app_code="acme")
    refusal = running.owner.post("/api/dead/kill", {"event_id": "same"})
    assert (refusal.status, "say app with one of acme, app" in refusal.error) == (400, True)
    assert ok(running.owner.post("/api/dead/kill", {"event_id": "same", "app": "acme"}))["app_code"] == "acme"
    assert table.by_status() == {"pending": 1, "failed": 1}


def test_a_lock_on_the_table_is_a_conflict_and_not_a_failure(running: Running, table: Table) -> None:
    """The same request may be made again."""
    bury(table, "x1")
    with closing(connect(running.database)) as other:
        other.begin()
        refusal = running.owner.post("/api/dead/purge", {"event_id": "x1"})
        assert (refusal.status, "holds a lock" in refusal.error) == (409, True), refusal
        other.rollback()
    assert ok(running.owner.post("/api/dead/purge", {"event_id": "x1"}))["done"] == 1
