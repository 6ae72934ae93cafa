"""Blocked rooms over the admin API of a running daemon: counted for people and for Prometheus, and freed."""

from collections.abc import Iterator

import pytest

from tests.services.admin_running import Running, bury, delay, ok, running_in, status_of
from tests.services.lanes import Table
from tests.services.wait import wait_for


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_in(tmp_path_factory.mktemp("rooms"), ordering="room", on_dead="block") as made:
        yield made


@pytest.fixture
def table(running: Running) -> Table:
    """Empty."""
    running.table.connection.execute("DELETE FROM room_outbox")
    return running.table


def blocked(running: Running) -> object:
    """As `GET /api/lanes` has it."""
    return ok(running.owner.get("/api/lanes"))["lanes"][0]["blocked_rooms"]


def test_a_blocked_room_is_counted_and_let_go_on(running: Running, table: Table) -> None:
    """By a token, whose name is in the log; the command says the same."""
    bury(table, "x1", "x2")
    bury(table, "x3", room_id="room-2")
    wait_for(lambda: blocked(running) == 2, 20, "the number to be looked up")
    page = running.owner.get("/metrics").body.decode()
    assert 'outboxd_blocked_rooms{lane="room_outbox"} 2' in page
    dry = ok(running.token.post("/api/dead/skip", {"event_id": "x3", "dry_run": True}))
    assert dry["says"] == ["1 dead letter of room_outbox would be skipped, and their rooms go on"]
    told = ok(running.token.post("/api/dead/skip", {"event_id": "x3"}))
    assert told == {
        "lane": "room_outbox", "matched": 1, "matched_is_lower_bound": False, "done": 1, "left": 0, "dry_run": False,
        "says": ["1 dead letter of room_outbox skipped"],
    }  # fmt: skip
    assert (status_of(table, "x3"), table.row("x3")["next_retry_at_ms"]) == ("failed", -1)
    line = running.daemon.admin_lines("admin_changed")[-1]
    assert (line["by"], line["what"]) == ("token_file", "1 dead letter of room_outbox skipped")
    again = ok(running.token.post("/api/dead/skip", {"event_id": "x3"}))
    assert (again["done"], again["left"]) == (0, 0)
    assert again["says"] == ["already skipped: 1 dead letter of room_outbox; nothing was changed"]
    assert running.daemon.admin_lines("admin_changed")[-1] == line
    wait_for(lambda: blocked(running) == 1, 20, "the number to be looked up")
    assert ok(running.owner.get("/api/dead/x3"))["events"][0]["skipped"] is True


def test_what_is_no_dead_letter_is_not_skipped(running: Running, table: Table) -> None:
    """404, with where it is; and nothing is meant by nothing."""
    delay(table, "x1")
    refused = running.token.post("/api/dead/skip", {"event_id": "x1"})
    assert (refused.status, refused.error) == (404, "no dead letter in room_outbox matches: event x1 is pending")
    bury(table, "x2", "x3")
    assert running.token.post("/api/dead/skip", {}).status == 400
    assert table.by_status() == {"pending": 1, "failed": 2}
