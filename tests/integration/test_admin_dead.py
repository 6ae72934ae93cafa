"""The admin API changes dead letters as the commands do, and asks for a little more care."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from outboxd.admin.dead import MOST_CHANGED
from outboxd.store import connect
from tests.services.admin_running import Running, bury, delay, ok, running_in, status_of
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
