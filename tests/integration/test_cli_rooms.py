"""Ordered lanes at the command line: rooms that wait are shown, explained and freed; what they need is asked for."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.cli import Cli
from tests.services.daemon import write_config
from tests.services.lanes import Table, table_of
from tests.services.mariadb import execute

PUBLISHERS = {"bus": {"type": "null"}}
ORDERED: dict[str, Any] = {"ordering": "room", "on_dead": "block"}
HOUR_MS = 3_600_000


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "outbox.yaml"


@pytest.fixture
def cli(tmp_path: Path, config: Path) -> Cli:
    return Cli(tmp_path, config)


@pytest.fixture
def table(config: Path, mysql_url: str) -> Iterator[Table]:
    with table_of(write_config(config, mysql_url, PUBLISHERS, **ORDERED)) as made:
        yield made


def story(cli: Cli, event_id: str) -> tuple[dict[str, Any], list[str]]:
    """For programs, and for people."""
    (document,) = cli("explain", event_id, "--json").json["events"]
    said = [line.strip() for line in cli("explain", event_id).ok().splitlines()]
    return document, said


def line_of(table: Table, *first: dict[str, object]) -> None:
    """A room: these events, and behind them the one that is called `last`."""
    for number, columns in enumerate(first):
        table.fill(1, **{"event_id": f"e{number}", **columns})
    table.fill(1, event_id="last")


# explain


def test_an_event_names_the_retry_that_it_waits_for(cli: Cli, table: Table) -> None:
    """Nothing has to be done: the room goes on by itself."""
    later = table.now_ms() + HOUR_MS
    line_of(table, {"status": "retryable", "next_retry_at_ms": later, "last_error": "HTTP 500"}, {})
    document, said = story(cli, "last")
    assert document["state"] == "waiting"
    assert document["headline"].startswith(
        "it waits for event e0 (id 1) of the same room, which is retryable, next try in"
    )
    assert said[2].startswith("- it waits for"), "and since when"
    assert said[3] == "- 2 events of its room are before it"
    room = document["room"]
    assert said[4] == f"- its room is in partition {room['partition']}, which no worker has right now"
    assert room == {
        "partition": room["partition"], "owner": None, "ahead": 2, "ahead_is_lower_bound": False,
        "front": {"event_id": "e0", "id": 1, "status": "retryable"},
    }  # fmt: skip
    assert document["todo"] == []
    assert story(cli, "e0")[0]["room"]["front"] is None


def test_an_event_names_the_dead_letter_that_it_waits_for_and_what_can_be_done(cli: Cli, table: Table) -> None:
    """Nothing happens until a person acts."""
    line_of(table, {"status": "failed", "last_error": "HTTP 422"})
    document, said = story(cli, "last")
    dead = "it waits for event e0 (id 1) of the same room, which is a dead letter, and on_dead is block"
    assert document["headline"] == dead
    assert [line for line in said if line.startswith("to do")] == [
        "to do: publish e0 again: `outboxd dead replay e0 --lane room_outbox --app app`",
        "to do: or delete it for good: `outboxd dead purge e0 --lane room_outbox --app app`",
        "to do: or let the room go on without it: `outboxd dead skip e0 --lane room_outbox --app app`",
    ]
    assert "is the daemon running" not in "".join(said), "that is not why it waits"
    document, _ = story(cli, "e0")
    assert "room room-1 waits behind it, since on_dead is block" in document["details"]
    assert document["todo"][-1].endswith("`outboxd dead skip e0 --lane room_outbox --app app`")


def test_an_event_names_who_delivers_the_one_before_it(cli: Cli, table: Table) -> None:
    """And who has its room; a lost worker is no worker."""
    soon = table.now_ms() + HOUR_MS
    line_of(table, {"status": "delivering", "worker_id": "n1/room_outbox-01", "lock_until_ms": soon})
    own = "UPDATE outboxd_partition SET worker_id = 'n1/room_outbox-01', lock_until_ms = :until"
    table.connection.execute(own, {"until": soon})
    document, said = story(cli, "last")
    front = "it waits for event e0 (id 1) of the same room, which is "
    assert document["headline"] == front + "being delivered by worker n1/room_outbox-01"
    assert document["room"]["owner"] == "n1/room_outbox-01"
    assert any(line.endswith(", which worker n1/room_outbox-01 has") for line in said)
    table.connection.execute("UPDATE room_outbox SET lock_until_ms = 5 WHERE event_id = 'e0'")
    lost = "in the hands of n1/room_outbox-01, which died or hangs: its lease ran out"
    assert story(cli, "last")[0]["headline"].startswith(front + lost)


def test_an_event_behind_a_fresh_one_waits_like_that_one(cli: Cli, table: Table) -> None:
    """And one without a room waits for nobody."""
    line_of(table, {}, {})
    table.fill(1, event_id="free", room_id="")
    document, said = story(cli, "last")
    at = "it waits for event e0 (id 1) of the same room, which is pending, at the front of the queue"
    assert document["headline"] == at
    assert any("is the daemon running" in line or "no worker holds" in line for line in said)
    assert story(cli, "free")[0]["room"] is None


# dead skip, list, show, status


def test_a_blocked_room_is_counted_skipped_and_free(cli: Cli, table: Table) -> None:
    """Seen, decided, done; the dead letter stays, for whoever asks later."""
    line_of(table, {"status": "failed", "last_error": "HTTP 422", "updated_at_ms": table.now_ms() - HOUR_MS})
    has = "room_outbox: 1 room has a dead letter in front that nobody has decided about: replay it, purge it, or "
    assert has + "`outboxd dead skip EVENT_ID --lane room_outbox`" in cli("status").ok().splitlines()
    assert cli("status", "--json").json["lanes"][0]["blocked_rooms"] == 1
    before = table.row("e0")
    would = "1 dead letter of room_outbox would be skipped, and their rooms go on"
    assert would in cli("dead", "skip", "e0", "--dry-run").ok()
    assert table.row("e0") == before
    assert cli("dead", "skip", "e0").ok() == "1 dead letter of room_outbox skipped\n"
    assert table.row("e0") == {**before, "next_retry_at_ms": -1}
    again = cli("dead", "skip", "e0", "--app", "app", "--lane", "room_outbox", "--yes", "--json").json
    assert again == {"lane": "room_outbox", "matched": 0, "matched_is_lower_bound": False, "done": 0}
    for more in ("e0", "--dry-run"):
        said = cli("dead", "skip", more).ok()
        assert said == "already skipped: 1 dead letter of room_outbox; nothing was changed\n"
    assert "a dead letter in front" not in cli("status").ok()
    assert "(skipped) HTTP 422" in cli("dead", "list").ok()
    assert cli("dead", "list", "--json").json["events"][0]["skipped"] is True
    assert "it was skipped: its room goes on without it" in cli("dead", "show", "e0").ok()
    assert story(cli, "last")[0]["room"]["front"] is None
    cli("dead", "replay", "e0").ok()
    assert story(cli, "last")[0]["headline"].endswith("which is pending, at the front of the queue")


def test_skipping_many_asks_first(cli: Cli, table: Table) -> None:
    """What goes out without them cannot be called back."""
    for room in ("a", "b"):
        table.fill(1, status="failed", room_id=room)
    question = "Let the rooms of 2 dead letters of room_outbox go on without them?"
    assert question in cli("dead", "skip").failed(2)
    assert cli.on_terminal("dead", "skip", typed="n\n").status == 1
    assert "2 rooms have a dead letter in front" in cli("status").ok(), "nothing waits behind them"
    assert cli("status", "--json").json["lanes"][0]["blocked_rooms"] == 2
    assert "2 dead letters of room_outbox skipped" in cli("dead", "skip", "--yes").ok()
    assert cli("status", "--json").json["lanes"][0]["blocked_rooms"] == 0


def test_only_a_dead_letter_can_be_skipped(cli: Cli, table: Table) -> None:
    """Where the event is instead is said."""
    line_of(table)
    shown = cli("dead", "skip", "last", "--yes")
    assert (shown.status, shown.err) == (1, "")
    assert "no dead letter in room_outbox matches: event last is pending" in shown.out
    assert "there is no event nothing" in cli("dead", "skip", "nothing", "--yes").out
    assert table.row("last")["next_retry_at_ms"] == 0


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "room_outbox is not ordered: nothing waits for its dead letters"),
        ({"ordering": "room"}, "rooms of room_outbox go on behind a dead letter by themselves (on_dead: continue)"),
    ],
)
def test_where_no_room_waits_nothing_is_skipped(
    cli: Cli, config: Path, mysql_url: str, settings: dict[str, Any], why: str
) -> None:
    """With what can be done instead: nothing there reads the mark."""
    with table_of(write_config(config, mysql_url, PUBLISHERS, **settings)) as table:
        table.fill(1, event_id="e0", status="failed")
        said = cli("dead", "skip", "e0", "--yes").failed()
        assert why in said
        assert "Replay or purge" in said
        assert table.row("e0")["next_retry_at_ms"] == 0
        assert cli("status", "--json").json["lanes"][0]["blocked_rooms"] is None


# the tables


def test_an_ordered_lane_starts_only_when_its_table_is_ready(cli: Cli, config: Path, mysql_url: str) -> None:
    """G10: one line, and what to do; init-db says what it did, and a second run that nothing is left but to drop the
    index that nobody reads any more."""
    write_config(config, mysql_url, PUBLISHERS)
    cli("init-db").ok()
    write_config(config, mysql_url, PUBLISHERS, **ORDERED)
    assert "has no column room_partition: run `outboxd init-db`" in cli("run").failed()
    assert "ADD COLUMN room_partition" in cli("init-db", "--print").ok()
    assert "room_outbox: building an index" in cli("init-db").ok()
    first, second = cli("init-db").ok().splitlines()
    assert first == "room_outbox: nothing to do, it has version 1"
    execute(mysql_url, second.rpartition(": ")[2])
    assert cli("init-db").ok() == f"{first}\n"
    assert cli("init-db", "--print").ok().startswith("-- nothing to create or change")
    execute(mysql_url, "DELETE FROM outboxd_partition WHERE number = 63")
    assert "has not all of its rows in outboxd_partition: run `outboxd init-db`" in cli("run").failed()
    cli("init-db").ok()
    assert cli("run", "--until-empty").status == 0


def test_an_event_is_explained_before_init_db_has_run(cli: Cli, config: Path, mysql_url: str) -> None:
    """With what is missing, instead of an error."""
    with table_of(write_config(config, mysql_url, PUBLISHERS)) as table:
        write_config(config, mysql_url, PUBLISHERS, **ORDERED)
        table.fill(1, event_id="e0")
        document, said = story(cli, "e0")
        assert document["room"] is None
        assert any(line.startswith("- its room could not be looked at: ") for line in said), said
        assert "init-db" in "".join(said)


def test_a_run_until_empty_leaves_what_is_behind_dead_letters_and_nothing_else(cli: Cli, table: Table) -> None:
    """Whoever of several workers is done first must not take others for done, nor wait for the dead."""
    for number in range(20):
        table.fill(1, room_id=f"dead-{number}", status="failed", last_error="HTTP 422")
        table.fill(2, room_id=f"dead-{number}")
        table.fill(3, room_id=f"free-{number}")
    start_s = time.monotonic()
    assert cli("run", "--until-empty").status == 0
    assert time.monotonic() - start_s < 10, "they waited for each other's partitions"
    assert table.by_status() == {"failed": 20, "pending": 40, "delivered": 60}
