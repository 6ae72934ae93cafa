"""Clocks that are wrong (G12): a node's own, which nothing may depend on; the database's, which jumps under load."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from outboxd.config.schema import Config
from tests.services.chaos import SEED, scaled
from tests.services.cli import Cli
from tests.services.daemon import LANE, write_config
from tests.services.faketime import Clock
from tests.services.lanes import Table, event, table_of
from tests.services.load import (
    BATCH,
    LIMITS,
    PUBLISH_TIMEOUT_S,
    WORKERS,
    Load,
    Producer,
    leases_ms,
    own_server,
    prepare,
    start_node,
    under_load,
)  # fmt: skip
from tests.services.receiver import Receiver
from tests.services.slow_receiver import SlowReceiver

OFFSETS_S = {"right": 0.0, "ahead": 600.0, "behind": -600.0}
HOUR_S = 3600.0
LEASE_MS = 5000
SLACK_S = 8.0
"""What a busy machine may be late by; nothing beside an error of ten minutes."""


def arrivals(receiver: Receiver, event_id: str) -> list[float]:
    """When the event arrived, each time; time.monotonic()."""
    return [request.received_s for request in receiver.requests if request.event_id == event_id]


def test_nodes_whose_clocks_are_wrong_change_nothing(tmp_path: Path) -> None:
    """G2, G12: ten minutes ahead, ten behind, and right, beside each other on one lane: no lease, no due time and no
    delay is wrong, nothing is published twice.
    """
    with ExitStack() as stack:
        admin = prepare(stack.enter_context(own_server()), tmp_path)
        receiver = stack.enter_context(SlowReceiver(SEED, 0.2))
        receiver.answer(event_id="fails-once", times=1, status=500)
        table = stack.enter_context(table_of(admin))
        table.fill(scaled(2000, 200))
        nodes = {}
        for name, offset_s in OFFSETS_S.items():
            (tmp_path / name).mkdir()
            environ = Clock(tmp_path / name, offset_s).python_environ if offset_s else {}
            node = start_node(admin, tmp_path, receiver, name, environ, concurrency=1, initial_backoff="1s")
            daemon = nodes[name] = stack.enter_context(node)
        producer = stack.enter_context(Producer(admin, 0.02))
        producer.more()
        start_s = time.monotonic()
        table.insert([event(event_id="fails-once")])
        table.insert([event(event_id="delayed", next_retry_at_ms=table.now_ms() + 2500)])
        seen: dict[str, int] = {}

        def all_hold() -> bool:
            found = leases_ms(table)
            assert all(0 < left_ms <= LEASE_MS for left_ms in found.values()), found
            seen.update(found)
            return set(seen) == {f"{name}/{LANE}-01" for name in OFFSETS_S}

        daemon.wait_until(all_hold, "every node to hold something")
        daemon.wait_until(lambda: arrivals(receiver, "delayed"), "the delayed event")
        producer.stop()
        daemon.wait_until(table.is_done, "everything to be delivered")
        rows = table.rows()
        for daemon in nodes.values():
            daemon.drain(PUBLISH_TIMEOUT_S)
    (delayed_s,) = arrivals(receiver, "delayed")
    assert 2.4 <= delayed_s - start_s <= 2.5 + SLACK_S
    first_s, second_s = arrivals(receiver, "fails-once")
    assert 0.9 <= second_s - first_s <= 1.1 + SLACK_S
    usual = [name for name in receiver.event_ids() if name != "fails-once"]
    assert len(usual) == len(set(usual)) == len(rows) - 1
    assert {(row["status"], row["retry_count"]) for row in rows} == {("delivered", 0), ("delivered", 1)}
    ages_s = [int(str(row["delivered_at_ms"])) / 1000 - int(str(row["created_at_ms"])) / 1000 for row in rows]
    assert min(ages_s) >= 0
    assert max(ages_s) <= 60


@pytest.mark.parametrize("offset_s", scaled([600.0, -600.0], [600.0]))
def test_what_a_person_reads_on_a_node_whose_clock_is_wrong_is_right(
    mysql_url: str, tmp_path: Path, offset_s: float
) -> None:
    """G12: ages, delays and "how long ago" are by the database's clock, whatever the shell's machine thinks."""
    config = write_config(tmp_path / "outbox.yaml", mysql_url, {"nothing": {"type": "null"}})
    cli = Cli(tmp_path, tmp_path / "outbox.yaml", **Clock(tmp_path, offset_s).python_environ)
    with table_of(config) as table:
        before_ms = table.now_ms()
        table.fill(1, event_id="waits")
        cli("enqueue", "--type", "T", "--room", "r", "--event-id", "later", "--delay", "2m", "{}").ok()
        after_ms = table.now_ms()
        status = cli("status", "--json").json
        (lane,) = (lane for lane in status["lanes"] if lane["lane"] == LANE)
        later = table.row("later")
        story = cli("explain", "later").ok()
        dead = cli("dead", "kill", "waits", "--yes", "--json").json
        found = cli("dead", "list", "--since", "1m", "--json").json
        none = cli("dead", "list", "--until", "1m", "--json").json
    assert before_ms + 120_000 <= int(str(later["next_retry_at_ms"])) <= after_ms + 120_000
    assert before_ms <= int(str(later["created_at_ms"])) <= after_ms
    assert before_ms <= status["time_ms"] <= after_ms + SLACK_S * 1000
    assert 0 <= lane["oldest_age_ms"] <= 2 * SLACK_S * 1000
    assert "in 1 min " in story or "in 2 min" in story, story
    assert dead["killed"]
    assert (found["count"], none["count"]) == (1, 0)


@contextmanager
def stepped_server(tmp_path: Path) -> Iterator[tuple[Config, Clock, Mapping[str, str]]]:
    """A MariaDB of its own whose clock the test steps."""
    clock = Clock(tmp_path)
    with own_server(environ=clock.environ) as server:
        yield prepare(server, tmp_path), clock, {}


@contextmanager
def stepped_machine(tmp_path: Path) -> Iterator[tuple[Config, Clock, Mapping[str, str]]]:
    """SQLite: the database's clock is the node's own."""
    url = f"sqlite:///{tmp_path / 'outbox.db'}"
    config = write_config(tmp_path / "admin.yaml", url, {"nothing": {"type": "null"}}, database=LIMITS)
    clock = Clock(tmp_path)
    yield config, clock, clock.python_environ


Place = Callable[[Path], AbstractContextManager[tuple[Config, Clock, Mapping[str, str]]]]
PLACES = pytest.mark.parametrize("place", scaled([stepped_server, stepped_machine], [stepped_server]))


@contextmanager
def before_the_step(place: Place, tmp_path: Path) -> Iterator[tuple[Load, Clock, Table]]:
    """Events flow, one is delayed by half an hour, one has failed and waits to be tried again."""
    with ExitStack() as stack:
        config, clock, environ = stack.enter_context(place(tmp_path))
        load = stack.enter_context(under_load(config, tmp_path, scaled(3000, 200), environ, initial_backoff="3s"))
        table = stack.enter_context(table_of(config))
        load.receiver.answer(event_id="fails-once", times=1, status=500)
        load.receiver.answer(event_id="fails-later", times=1, status=500)
        table.insert([event(event_id="fails-once")])
        table.insert([event(event_id="delayed", next_retry_at_ms=clock.now_ms() + 1_800_000)])
        load.daemon.wait_until(lambda: table.row("fails-once")["status"] == "retryable", "the failure to be settled")
        yield load, clock, table


def explained(load: Load, rows: list[dict[str, object]]) -> None:
    """G1: what arrived again had failed, or lost a lease, and that was counted."""
    counted = {str(row["event_id"]): int(str(row["retry_count"])) for row in rows}
    assert {name: count for name, count in load.twice().items() if count > 1 + counted[name]} == {}


@PLACES
def test_a_database_whose_clock_jumps_an_hour_ahead(place: Place, tmp_path: Path) -> None:
    """G1, G12: events go on flowing at once; what was held may be published again, since its lease ran out; what was
    delayed or waited is due.
    """
    with before_the_step(place, tmp_path) as (load, clock, _):
        clock.step(HOUR_S)
        load.flows(timeout_s=SLACK_S)
        load.producer.more(timeout_s=SLACK_S)
        rows = load.finish()
        explained(load, rows)
        assert len(load.twice()) <= 2 * WORKERS * BATCH, "no more than what was held"
        load.drain()


@PLACES
def test_a_database_whose_clock_jumps_an_hour_back(place: Place, tmp_path: Path) -> None:
    """G1, G8, G12: events go on flowing at once, and living workers settle what they hold. What the old clock dated
    waits for its date: a delay, a retry, the lease of a worker that is dead. New failures are retried as ever.
    """
    with before_the_step(place, tmp_path) as (load, clock, table):
        pids = load.daemon.workers(WORKERS)
        load.receiver.take_at_most(0.3)
        load.daemon.wait_until(lambda: f"node/{LANE}-01" in leases_ms(table), "the first worker to hold something")
        os.kill(pids[f"{LANE}-01"], signal.SIGKILL)
        clock.step(-HOUR_S)
        load.receiver.take_at_most(0.05)
        load.flows(timeout_s=SLACK_S)
        table.insert([event(event_id="fails-later")])
        load.daemon.wait_until(lambda: table.row("fails-later")["status"] == "delivered", "the new failure", 20)
        load.producer.stop()

        def only_the_old_is_left() -> bool:
            left = table.rows("status <> 'delivered'")
            held = [row for row in left if row["status"] == "delivering"]
            due = {row["event_id"] for row in left if row["status"] != "delivering"}
            future_ms = clock.now_ms() + 600_000
            return due == {"fails-once", "delayed"} and all(int(str(row["lock_until_ms"])) > future_ms for row in held)

        load.daemon.wait_until(only_the_old_is_left, "all but what the old clock has dated")
        clock.step(HOUR_S)
        explained(load, load.finish())
        load.daemon.drain(PUBLISH_TIMEOUT_S)
