"""A lane of display events beside the main one: stale ones are dropped at their turn, old rows cleaned up; on no lane
that did not ask for it."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from outboxd.config.schema import Config
from tests.services.costs import COUNTERS, counters
from tests.services.daemon import LANE, Daemon, write_config
from tests.services.lanes import Table, lanes_of, table_of
from tests.services.receiver import Receiver
from tests.services.wait import wait_for

ROBOTS = "room_robot_outbox"
STALE: Mapping[str, Any] = {"stale_discard_after": "30s"}
LONG_AGO_MS = 60_000


PROBES = {"initial_probe": "200ms", "max_probe": "500ms"}


def robots_and_main(path: Path, url: str, receiver: Receiver, robot: Mapping[str, object], **worker: Any) -> Config:
    """Two lanes that send to one receiver."""
    web = {"web": {"type": "http", "url": receiver.url, "breaker": PROBES}}
    return write_config(path, url, web, lanes={LANE: {}, ROBOTS: robot}, concurrency=2, **worker)


def total(daemon: Daemon, event: str, name: str = "count") -> int:
    """Over all lines of that event."""
    return sum(int(line[name]) for line in daemon.lines(event))


def test_stale_events_are_deleted_and_not_published(database_url: str, tmp_path: Path) -> None:
    """At their turn, also of those that failed before; what is young, or created nobody knows when, is published. The
    main lane drops nothing, however old."""
    with Receiver() as receiver:
        config = robots_and_main(tmp_path / "outbox.yaml", database_url, receiver, STALE)
        with lanes_of(config) as tables:
            main, robots = tables[LANE], tables[ROBOTS]
            old_ms = robots.now_ms() - LONG_AGO_MS
            robots.fill(2500, created_at_ms=old_ms)
            robots.fill(50, created_at_ms=old_ms, status="retryable", retry_count=1, next_retry_at_ms=5, last_error="x")
            young = robots.fill(20)
            unknown = robots.fill(5, created_at_ms=0)
            old = main.fill(50, created_at_ms=old_ms)
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log", "run", "--until-empty") as daemon:
                assert daemon.process.wait(60) == 0
                assert total(daemon, "robot_outbox_stale_discarded") == 2550
                (first, *_) = daemon.lines("robot_outbox_stale_discarded")
                assert first["event_id"]
                assert float(first["age_s"]) >= LONG_AGO_MS / 1000
                assert len(daemon.lines("robot_outbox_stale_discarded")) <= 4
                assert daemon.lines("outbox_dead_letter") == daemon.lines("event_gone") == []
            assert robots.by_status() == {"delivered": 25}
            assert main.by_status() == {"delivered": 50}
    assert sorted(receiver.event_ids()) == sorted([*young, *unknown, *old])


def test_an_event_that_becomes_stale_while_it_waits_is_not_published(database_url: str, tmp_path: Path) -> None:
    """Its turn comes when the publisher can take it, not when it was claimed."""
    with Receiver() as receiver:
        web = {"web": {"type": "http", "url": receiver.url, "max_rate": 5}}
        config = write_config(
            tmp_path / "outbox.yaml", database_url, web, concurrency=1, stale_discard_after="2s", poll_interval="50ms"
        )
        with table_of(config) as table, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            daemon.workers()
            events = table.fill(100)
            daemon.wait_until(table.is_done, "every event to be published or dropped")
            daemon.wait_for("robot_outbox_stale_discarded")
            left = table.by_status()["delivered"]
            daemon.drain(4.0)
            assert total(daemon, "robot_outbox_stale_discarded") == len(events) - left
            assert daemon.lines("event_gone") == []
            assert daemon.lines("lease_lost") == []
    assert 5 <= left <= 20
    assert len(receiver.event_ids()) == left


def test_a_backlog_of_stale_events_goes_while_the_receiver_is_away(database_url: str, tmp_path: Path) -> None:
    """In batches, although only a probe may be claimed; and the receiver is probed with what is behind it."""
    with Receiver() as receiver:
        config = robots_and_main(
            tmp_path / "outbox.yaml", database_url, receiver, {"stale_discard_after": "6s"}, initial_backoff="100ms"
        )
        with lanes_of(config) as tables, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            daemon.workers(4)
            robots = tables[ROBOTS]
            daemon.wait_until(lambda: robots.fill(1) and robots.by_status().get("delivered", 0) > 5, "it to flow")
            receiver.answer(status=503)
            robots.fill(20)
            daemon.wait_for("breaker_opened")
            robots.fill(5000, created_at_ms=robots.now_ms() - LONG_AGO_MS)
            daemon.wait_until(robots.is_done, "the stale ones to be dropped")
            arrived = robots.by_status()["delivered"]
            assert total(daemon, "robot_outbox_stale_discarded") >= 1
            receiver.answer(status=204)
            daemon.wait_until(lambda: robots.fill(1) and robots.by_status()["delivered"] > arrived, "a new one")
            daemon.drain(4.0)
            assert daemon.lines("outbox_dead_letter") == daemon.lines("event_gone") == []


def test_a_room_goes_on_behind_a_stale_event(database_url: str, tmp_path: Path) -> None:
    """Order is kept among what is published."""
    with Receiver() as receiver:
        web = {"web": {"type": "http", "url": receiver.url}}
        config = write_config(
            tmp_path / "outbox.yaml", database_url, web, concurrency=2, ordering="room", on_dead="block", **STALE
        )
        with table_of(config) as table:
            old_ms = table.now_ms() - LONG_AGO_MS
            live: dict[str, list[str]] = {}
            for number in range(40):
                room = f"room-{number % 4}"
                if number % 3:
                    live.setdefault(room, []).extend(table.fill(1, room_id=room))
                else:
                    table.fill(1, room_id=room, created_at_ms=old_ms)
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log", "run", "--until-empty") as daemon:
                assert daemon.process.wait(60) == 0
                assert total(daemon, "robot_outbox_stale_discarded") == 14
            assert table.by_status() == {"delivered": 26}
    arrived = receiver.event_ids()
    for events in live.values():
        assert [event_id for event_id in arrived if event_id in events] == events


CLEANS: Mapping[str, object] = {
    "cleanup_interval": "200ms", "cleanup_active_after": "10m", "cleanup_terminal_after": "1h", "cleanup_batch_size": 70
}  # fmt: skip


def aged(table: Table, minutes: int, count: int, **columns: object) -> None:
    """Rows that were created so long ago."""
    then_ms = table.now_ms() - minutes * 60_000
    table.fill(count, created_at_ms=then_ms, updated_at_ms=then_ms, **columns)


def test_cleanup_deletes_what_is_too_old_and_nothing_else(database_url: str, tmp_path: Path) -> None:
    """Unpublished rows after ten minutes, finished ones after an hour, at most so many a round; here by workers that
    publish nothing, since the lane is paused. The main lane keeps everything."""
    with Receiver() as receiver:
        config = robots_and_main(tmp_path / "outbox.yaml", database_url, receiver, CLEANS)
        with lanes_of(config) as tables:
            for table in tables.values():
                table.connection.execute("UPDATE outboxd_lane SET paused = 1")
            for table in tables.values():
                for minutes, suffix in ((90, 2), (15, 1), (5, 0)):  # ids ascend with time
                    for status, columns in {
                        "pending": {}, "failed": {}, "retryable": {"next_retry_at_ms": 7},
                        "delivered": {"delivered_at_ms": 9}, "delivering": {"lock_until_ms": 8},
                        "leased": {"lock_until_ms": 2**50},
                    }.items():  # fmt: skip
                        name = "delivering" if status == "leased" else status
                        aged(table, minutes, 40, status=name, room_id=f"{status}-{suffix}", **columns)
            robots = tables[ROBOTS]
            kept = {f"{status}-0" for status in ("pending", "failed", "retryable", "delivered", "delivering")}
            kept |= {"failed-1", "delivered-1", "leased-0", "leased-1", "leased-2"}
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                daemon.wait_until(lambda: {row["room_id"] for row in robots.rows()} == kept, "the old rows to go")
                assert len(robots.rows()) == 40 * len(kept)
                assert len(tables[LANE].rows()) == 40 * 18
                event = "robot_outbox_cleanup_deleted"
                kinds = ("active", "terminal")
                wait_for(lambda: sum(total(daemon, event, kind) for kind in kinds) >= 320, 10, "the lines")
                assert [total(daemon, event, kind) for kind in kinds] == [240, 80]
                lines = daemon.lines(event)
                assert all(line["active"] + line["terminal"] <= 70 for line in lines)
                assert {line["worker"].rpartition("-")[0] for line in lines} == {ROBOTS}
                assert receiver.event_ids() == []


NO_AGE = {"cleanup_active_after": "0s", "cleanup_terminal_after": "-1s"}


@pytest.mark.parametrize("off", [{"cleanup_interval": "0s"}, NO_AGE])
def test_a_lane_that_does_not_ask_for_it_is_never_cleaned(
    database_url: str, tmp_path: Path, off: Mapping[str, object]
) -> None:
    """An interval that is not positive, or no age that is."""
    with Receiver() as receiver:
        config = robots_and_main(tmp_path / "outbox.yaml", database_url, receiver, {**CLEANS, **off})
        with lanes_of(config) as tables:
            aged(tables[ROBOTS], 6000, 10, status="delivered", delivered_at_ms=5)
            aged(tables[ROBOTS], 6000, 10)
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log", "run", "--until-empty") as daemon:
                assert daemon.process.wait(60) == 0
                assert daemon.lines("robot_outbox_cleanup_deleted") == []
            assert tables[ROBOTS].by_status() == {"delivered": 20}
            last = tables[ROBOTS].connection.query("SELECT last_cleanup_ms FROM outboxd_lane")
            assert {int(row[0]) for row in last} == {0}


def test_two_nodes_with_four_workers_each_clean_once_per_interval(mysql_url: str, tmp_path: Path) -> None:
    """Whoever comes first sets the time of the round; a trigger writes each one down."""
    robot = {**CLEANS, "cleanup_interval": "1s", "concurrency": 4}
    with Receiver() as receiver:
        config = robots_and_main(tmp_path / "outbox.yaml", mysql_url, receiver, robot)
        other = tmp_path / "other.yaml"
        text = (tmp_path / "outbox.yaml").read_text(encoding="utf-8").replace("node_id: node", "node_id: other")
        other.write_text(text.replace("outbox.sock", "other.sock"), encoding="utf-8")
        with lanes_of(config) as tables:
            database = tables[ROBOTS].connection
            database.execute("CREATE TABLE rounds (lane VARCHAR(64), at_ms BIGINT)")
            database.execute(
                "CREATE TRIGGER noted AFTER UPDATE ON outboxd_lane FOR EACH ROW "
                "INSERT INTO rounds VALUES (NEW.lane, NEW.last_cleanup_ms)"
            )
            with (
                Daemon(tmp_path / "outbox.yaml", tmp_path / "one.log") as one,
                Daemon(other, tmp_path / "two.log") as two,
            ):
                one.workers(6)
                two.workers(6)
                one.wait_until(lambda: len(database.query("SELECT 1 FROM rounds")) >= 8, "eight rounds")
            rounds = [int(row[0]) for row in database.query("SELECT at_ms FROM rounds ORDER BY at_ms")]
            lanes = {str(row[0]) for row in database.query("SELECT lane FROM rounds")}
    assert lanes == {ROBOTS}
    gaps = [later - earlier for earlier, later in itertools.pairwise(rounds)]
    assert min(gaps) >= 1000


def test_a_thousand_stale_events_cost_few_statements(mysql_url: str, tmp_path: Path) -> None:
    """One claim and one DELETE for each batch, and batches of nothing else are large; each row is written twice."""
    with Receiver() as receiver:
        config = robots_and_main(tmp_path / "outbox.yaml", mysql_url, receiver, {**STALE, "concurrency": 1})
        with lanes_of(config) as tables:
            robots = tables[ROBOTS]
            robots.fill(10_000, created_at_ms=1)
            before = counters(robots)
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log", "run", "--until-empty") as daemon:
                assert daemon.process.wait(60) == 0
            after = counters(robots)
            assert robots.by_status() == {}
    per_thousand = {name: (after[name] - before[name]) / 10 for name in COUNTERS}
    assert per_thousand["Com_commit"] <= 10
    assert per_thousand["Com_update"] <= 6
    assert per_thousand["Questions"] <= 60
    assert per_thousand["Handler_update"] <= 1010


def test_cleanup_takes_nothing_that_order_rests_on(database_url: str, tmp_path: Path) -> None:
    """Rooms go on, in order, behind what was deleted, dead letters that blocked them among it; others wait on."""
    ordered = {**CLEANS, "ordering": "room", "on_dead": "block", "cleanup_terminal_after": "20m"}
    with Receiver() as receiver:
        config = robots_and_main(tmp_path / "outbox.yaml", database_url, receiver, ordered)
        with lanes_of(config) as tables:
            robots = tables[ROBOTS]
            aged(robots, 60, 5, status="failed", room_id="a")
            aged(robots, 15, 5, status="failed", room_id="b")
            aged(robots, 60, 50, status="delivered", room_id="a")
            expected = robots.fill(30, room_id="a")
            held = robots.fill(30, room_id="b")
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                daemon.wait_until(lambda: receiver.event_ids() == expected, "the room to go on")
                assert total(daemon, "robot_outbox_cleanup_deleted", "terminal") >= 5
                daemon.drain(4.0)
            assert {row["event_id"] for row in robots.rows("status = 'pending'")} == set(held)
