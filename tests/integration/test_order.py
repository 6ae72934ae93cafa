"""What an ordered lane promises, scene by scene: who waits for whom, who does not, and what happens where no promise
can be kept.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from outboxd.config.schema import Config
from outboxd.store import connect
from tests.services.chaos import FULL
from tests.services.cli import Cli
from tests.services.daemon import LANE, Daemon
from tests.services.lanes import Table, event, table_of
from tests.services.rooms import LEASE_S, OrderedReceiver, check_order, ordered_lane, over_http

OTHERS = 50
"""Rooms that have nothing to do with the one that fails."""
SOON_S = 20.0
"""Whoever waits for nothing is through by then, whatever else the machine does."""
NEVER: dict[str, Any] = {"initial_backoff": "1h", "max_backoff": "1h"}
"""Is what failed tried again, while a test runs."""

FIRST = "warm-up"


@dataclass
class Scene:
    """An ordered lane and its receiver; its daemon runs."""

    path: Path
    config: Config
    table: Table
    receiver: OrderedReceiver
    daemon: Daemon

    def put(self, room: str, count: int = 1, **columns: Any) -> list[str]:
        """Events of one room; their ids."""
        rows = [event(room_id=room, **columns) for _ in range(count)]
        self.table.insert(rows)
        return [str(row["event_id"]) for row in rows]

    def behind(self, head: str, count: int, room: str = "hot", **columns: Any) -> list[str]:
        """An event of that name, and so many others of its room behind it; the ids of these."""
        self.put(room, event_id=head, **columns)
        return self.put(room, count, **columns)

    def arrived(self) -> set[str]:
        """What the receiver has accepted."""
        return set(self.receiver.arrivals())

    def wait_for(self, event_ids: list[str]) -> None:
        """They have all arrived, soon."""
        self.daemon.wait_until(lambda: set(event_ids) <= self.arrived(), f"{len(event_ids)} events to arrive", SOON_S)

    def wait_for_status(self, event_id: str, status: str) -> None:
        """The row says so."""
        self.daemon.wait_until(lambda: self.table.row(event_id)["status"] == status, f"{event_id} to be {status}")

    def flow_beside(self, held: list[str]) -> None:
        """Other rooms flow, three events each, while these wait."""
        others = [name for turn in range(3) for number in range(OTHERS) for name in self.put(f"other-{number}")]
        self.wait_for(others)
        assert not self.arrived() & set(held), "it overtook its head"
        assert not {self.table.row(event_id)["status"] for event_id in held} & {"delivered", "failed"}


@contextmanager
def scene(url: str, path: Path, connections: int = 16, **worker: Any) -> Iterator[Scene]:
    """With one worker unless the test says otherwise; its first publish, which is a probe, is behind it."""
    with OrderedReceiver() as receiver:
        config = ordered_lane(path, url, over_http(receiver, connections), **{"concurrency": 1, **worker})
        with table_of(config) as table, Daemon(path, path.with_suffix(".log")) as daemon:
            at = Scene(path, config, table, receiver, daemon)
            at.wait_for(at.put("", event_id=FIRST))
            yield at


def test_a_head_that_is_tried_again_holds_back_its_own_room_only(database_url: str, tmp_path: Path) -> None:
    """G7: its followers wait for as long as it takes; fifty other rooms do not."""
    with scene(database_url, tmp_path / "node.yaml", **NEVER) as at:
        at.receiver.plan("head", "500")
        followers = at.behind("head", 10)
        at.wait_for_status("head", "retryable")
        at.flow_beside(followers)
        at.table.connection.execute("UPDATE room_outbox SET next_retry_at_ms = 1 WHERE event_id = 'head'")
        at.wait_for(["head", *followers])
        check_order(at.table, at.receiver.arrivals())


def test_a_head_whose_answer_does_not_come_holds_back_its_own_room_only(mysql_url: str, tmp_path: Path) -> None:
    """G7: with connections to spare; the other rooms are through long before its time-out."""
    patient: dict[str, Any] = {"publish_timeout": "30s", "lease": "100s"}
    with scene(mysql_url, tmp_path / "node.yaml", **patient) as at:
        at.receiver.plan("head", "hang")
        followers = at.behind("head", 10)
        at.wait_for_status("head", "delivering")
        at.flow_beside(followers)
        assert at.table.row("head")["status"] == "delivering"


def test_followers_of_one_room_go_one_by_one(mysql_url: str, tmp_path: Path) -> None:
    """Nothing behind a failure may arrive, so over HTTP each waits for the answer to the one before it."""
    with scene(mysql_url, tmp_path / "node.yaml", concurrency=2) as at:
        ids = at.put("hot", 200)
        at.wait_for(ids)
        assert at.receiver.arrivals() == [FIRST, *ids]
        assert at.receiver.event_ids() == [FIRST, *ids]


@pytest.mark.parametrize("on_dead", ["continue", "block"])
def test_a_dead_letter_lets_its_room_go_on_or_blocks_it(on_dead: str, database_url: str, tmp_path: Path) -> None:
    """G7: as `on_dead` says; a replayed one comes before those that waited for it."""
    with scene(database_url, tmp_path / "node.yaml", on_dead=on_dead) as at:
        at.receiver.plan("head", "400")
        followers = at.behind("head", 5)
        at.wait_for_status("head", "failed")
        if on_dead == "continue":
            at.wait_for(followers)
            assert "head" not in at.arrived()
        else:
            at.flow_beside(followers)
            Cli(tmp_path, at.path)("dead", "replay", "head").ok()
            at.wait_for(["head", *followers])
            check_order(at.table, at.receiver.arrivals())


def test_a_skipped_dead_letter_blocks_no_more(mysql_url: str, tmp_path: Path) -> None:
    """It stays what it is; the room goes on within seconds, up to the next dead letter."""
    with scene(mysql_url, tmp_path / "node.yaml", on_dead="block") as at:
        at.receiver.plan("first", "400")
        at.receiver.plan("second", "400")
        at.put("hot", event_id="first")
        between = at.put("hot", 3)
        behind = at.behind("second", 3)
        at.wait_for_status("first", "failed")
        outboxd = Cli(tmp_path, at.path)
        outboxd("dead", "skip", "first", "--yes").ok()
        at.wait_for(between)
        at.wait_for_status("second", "failed")
        at.flow_beside(behind)
        outboxd("dead", "skip", "second", "--yes").ok()
        at.wait_for(behind)
        assert at.table.by_status()["failed"] == 2
        assert not at.arrived() & {"first", "second"}


def test_a_purged_dead_letter_blocks_no_more(mysql_url: str, tmp_path: Path) -> None:
    """Nobody waits for what is gone."""
    with scene(mysql_url, tmp_path / "node.yaml", on_dead="block") as at:
        at.receiver.plan("head", "400")
        followers = at.behind("head", 3)
        at.wait_for_status("head", "failed")
        Cli(tmp_path, at.path)("dead", "purge", "head", "--yes").ok()
        at.wait_for(followers)


def test_a_blocked_room_stays_blocked_over_a_restart(mysql_url: str, tmp_path: Path) -> None:
    """What the owner knows by heart, its successor has to find in the table."""
    with scene(mysql_url, tmp_path / "node.yaml", on_dead="block") as at:
        at.receiver.plan("head", "400")
        followers = at.behind("head", 3)
        at.wait_for_status("head", "failed")
        at.daemon.drain(0.5)
        followers += at.put("hot", 3)
        with Daemon(at.path, at.path.with_suffix(".log")) as at.daemon:
            at.flow_beside(followers)


def test_events_without_a_room_wait_for_nobody(mysql_url: str, tmp_path: Path) -> None:
    """An empty room_id is no room: all of them fail, none holds another back."""
    with scene(mysql_url, tmp_path / "node.yaml", on_dead="block", **NEVER) as at:
        at.receiver.plan("tried", "500")
        at.receiver.plan("dead", "400")
        at.put("", event_id="tried")
        at.put("", event_id="dead")
        at.wait_for(at.put("", 20))


def test_two_tenants_rooms_of_one_name_are_two_rooms(mysql_url: str, tmp_path: Path) -> None:
    """Order is among events of one tenant's room."""
    with scene(mysql_url, tmp_path / "node.yaml", **NEVER) as at:
        at.receiver.plan("head", "500")
        held = at.behind("head", 3, room="same", app_code="one")
        at.wait_for(at.put("same", 3, app_code="two"))
        assert not at.arrived() & set(held)


def test_a_delayed_event_holds_nobody_back(mysql_url: str, tmp_path: Path) -> None:
    """Its producer asked for it to come later than what follows."""
    with scene(mysql_url, tmp_path / "node.yaml") as at:
        (late,) = at.put("hot", next_retry_at_ms=at.table.now_ms() + 3_600_000)
        at.wait_for(at.put("hot", 5))
        at.table.connection.execute(f"UPDATE room_outbox SET next_retry_at_ms = 1 WHERE event_id = '{late}'")
        at.wait_for([late])


def test_a_lower_id_that_commits_late_is_delivered(mysql_url: str, tmp_path: Path) -> None:
    """G1: nobody can know of it when the higher one is published, so it comes behind it; but it comes, once."""
    with scene(mysql_url, tmp_path / "node.yaml") as at, closing(connect(at.config.database)) as slow:
        slow.begin()
        (late,) = insert_one(slow)
        early = at.put("hot", 3)
        at.wait_for(early)
        slow.commit()
        at.wait_for([late])
        at.wait_for(at.put("hot", 3))
        assert at.receiver.arrivals().index(late) == 4
        assert at.receiver.arrivals().count(late) == 1


@pytest.mark.parametrize("open_s", [1.5, *([14.0] if FULL else [])])
def test_what_is_written_after_a_slow_transaction_comes_after_it(
    open_s: float, mysql_url: str, tmp_path: Path
) -> None:
    """G1: other rooms have higher ids and go on meanwhile. Once it is committed its events are there to be seen, and so
    they come before all that its room gets from then on."""
    with scene(mysql_url, tmp_path / "node.yaml") as at, closing(connect(at.config.database)) as slow:
        slow.begin()
        first = insert_one(slow)
        since_s = time.monotonic()
        while time.monotonic() < since_s + open_s:
            at.wait_for([name for number in range(OTHERS) for name in at.put(f"other-{number}")])
        slow.commit()
        behind = at.put("hot", 3)
        at.wait_for([*first, *behind])
        check_order(at.table, at.receiver.arrivals())


def insert_one(connection: Any) -> list[str]:
    """An event of the hot room, in the transaction of the connection."""
    rows = [event(room_id="hot")]
    Table(connection).insert(rows)
    return [str(row["event_id"]) for row in rows]


def test_what_a_killed_worker_had_in_flight_comes_again_before_its_followers(mysql_url: str, tmp_path: Path) -> None:
    """G1: a duplicate cannot be helped, since its answer went with the worker; what follows still waits for it."""
    with scene(mysql_url, tmp_path / "node.yaml") as at:
        at.receiver.plan("head", "unheard")
        followers = at.behind("head", 5)
        at.daemon.wait_until(lambda: "head" in at.arrived(), "the head to arrive")
        os.kill(at.daemon.workers()[f"{LANE}-01"], signal.SIGKILL)
        at.daemon.wait_until(lambda: set(followers) <= at.arrived(), "the room to go on", SOON_S + LEASE_S)
        assert at.receiver.arrivals() == [FIRST, "head", "head", *followers]
