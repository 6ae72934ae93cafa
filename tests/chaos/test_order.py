"""Order per room over random rooms, failures, retries, dead letters and kills, on two nodes: the promise itself.

The receiver decides by a seeded plan what becomes of each try. `OUTBOXD_CHAOS=full` is the long form.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.services.chaos import FULL, SEED, scaled
from tests.services.cli import Cli
from tests.services.daemon import LANE
from tests.services.lanes import Row, Table, table_of
from tests.services.nodes import Node, another_node
from tests.services.queues import RedisQueue
from tests.services.redis_server import private_redis
from tests.services.rooms import (
    OrderedReceiver,
    check_ended,
    check_order,
    events_of,
    held_back,
    is_at_rest,
    ordered_lane,
    over_http,
    plans_for,
)

EVENTS = scaled(20_000, 1_500)
ROOMS = scaled(800, 80)
WORKERS = 2
"""Of each node."""
WORKER_KILLS = scaled(30, 2)
SUPERVISOR_KILLS = scaled(4, 1)
ENDS_S = 240.0 if FULL else 60.0


@contextmanager
def two_nodes(path: Path) -> Iterator[list[Node]]:
    """That share a lane, and the node_id of each."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(Node(config, WORKERS, path.parent)) for config in (path, another_node(path, "other"))
        ]


def disturb(nodes: Sequence[Node], chance: random.Random, supervisor: bool) -> None:
    """Somebody dies."""
    node = chance.choice(nodes)
    if supervisor:
        node.kill_supervisor()
    else:
        node.kill_worker(chance)


def flow(
    nodes: Sequence[Node], table: Table, rows: list[Row], receiver: OrderedReceiver, chance: random.Random
) -> None:
    """The rows come in parts; in the midst of each somebody dies."""
    kills = [False] * WORKER_KILLS + [True] * SUPERVISOR_KILLS
    chance.shuffle(kills)
    part = len(rows) // len(kills)
    for number, supervisor in enumerate(kills):
        table.insert(rows[number * part : (number + 1) * part])
        wanted = receiver.taken + chance.randrange(1, max(2, part // 3))
        nodes[0].daemon.wait_until(lambda n=wanted: receiver.taken >= n, "events to arrive")  # type: ignore[misc]
        disturb(nodes, chance, supervisor)
    table.insert(rows[len(kills) * part :])


@pytest.mark.parametrize("on_dead", ["continue", "block"])
def test_every_room_keeps_its_order(on_dead: str, mysql_url: str, tmp_path: Path) -> None:
    """G1: first successful publishes are ascending in every room whatever fails and dies, and nothing is lost. Behind
    a dead letter `continue` goes on; with `block` nothing arrives until a person has skipped or replayed it.
    """
    chance = random.Random(SEED)
    rows = events_of(ROOMS, EVENTS, chance)
    path = tmp_path / "node.yaml"
    with OrderedReceiver(plans_for(rows, chance)) as receiver:
        config = ordered_lane(path, mysql_url, over_http(receiver), on_dead, concurrency=WORKERS)
        with table_of(config) as table, two_nodes(path) as nodes:
            flow(nodes, table, rows, receiver, chance)
            if on_dead == "block":
                nodes[0].daemon.wait_until(lambda: is_at_rest(table), "all that may flow to have flowed", ENDS_S)
                check_order(table, receiver.arrivals())
                check_held_back(table, receiver)
                release(table, receiver, path, nodes[0])
            nodes[0].daemon.wait_until(table.is_done, "everything to come to an end", ENDS_S)
            dead = {row["event_id"] for row in table.rows("status = 'failed'")}
            assert dead, "the plan made no dead letter"
            for node in nodes:
                node.daemon.drain(0.5)
            check_ended(table, receiver.arrivals(), (str(row["event_id"]) for row in rows))
            check_order(table, receiver.arrivals())


def check_held_back(table: Table, receiver: OrderedReceiver) -> None:
    """Followers of dead letters are there and unpublished; a killed worker may have had some of them in hand."""
    held = held_back(table)
    assert held, "no dead letter has followers"
    assert set(held.values()) <= {"pending", "delivering"}
    arrived = held.keys() & set(receiver.arrivals())
    assert not arrived, f"{len(arrived)} arrived although a dead letter is before them: {sorted(arrived)[:5]}"


SKIPPED = 4


def release(table: Table, receiver: OrderedReceiver, path: Path, node: Node) -> None:
    """A person skips some dead letters and replays the rest, which are accepted now: every room goes on."""
    held, outboxd = set(held_back(table)), Cli(path.parent, path)
    rooms = {(row["app_code"], row["room_id"]) for row in table.rows() if row["event_id"] in held}
    heads = [row for row in table.rows("status = 'failed'") if (row["app_code"], row["room_id"]) in rooms]
    receiver.forgive()
    for head in heads[:SKIPPED]:
        outboxd("dead", "skip", "--yes", "--lane", LANE, str(head["event_id"])).ok()
    skipped = {str(head["event_id"]) for head in heads[:SKIPPED]}
    assert {str(row["event_id"]) for row in table.rows("next_retry_at_ms = -1")} == skipped
    node.daemon.wait_until(
        lambda: not set(held_back(table)) & followers(table, heads[:SKIPPED]), "the rooms that were skipped to go on"
    )
    for head in heads[SKIPPED : 2 * SKIPPED]:
        outboxd("dead", "replay", "--lane", LANE, str(head["event_id"])).ok()
    for head in heads[2 * SKIPPED :]:  # the same, without a program for each
        table.connection.execute(REPLAY.format(table=table.name, id=head["id"]))
    node.daemon.wait_until(lambda: held <= set(receiver.arrivals()), "all that was held back", ENDS_S)


REPLAY = (
    "UPDATE {table} SET status = 'pending', retry_count = 0, next_retry_at_ms = 0, published_to = NULL, "
    "lock_until_ms = 0 WHERE id = {id}"
)


def followers(table: Table, heads: Sequence[Row]) -> set[str]:
    """Of these events in their rooms."""
    found = set()
    for head in heads:
        where = f"app_code = '{head['app_code']}' AND room_id = '{head['room_id']}' AND id > {head['id']}"
        found |= {str(row["event_id"]) for row in table.rows(where)}
    return found


def test_a_stream_holds_every_room_in_order(mysql_url: str, tmp_path: Path) -> None:
    """G1: Redis Streams, whose entries show the order of arrival; workers, a supervisor and Redis itself are killed."""
    chance = random.Random(SEED)
    rows = events_of(ROOMS, EVENTS, chance)
    path = tmp_path / "node.yaml"
    kills = ["worker"] * WORKER_KILLS + ["supervisor"] * SUPERVISOR_KILLS + ["redis"] * scaled(4, 1)
    chance.shuffle(kills)
    part = len(rows) // len(kills)
    with private_redis() as server:
        stream = RedisQueue(server)
        publishers = stream.publishers(max_length=0, breaker={"initial_probe": "100ms", "max_probe": "300ms"})
        config = ordered_lane(path, mysql_url, publishers, concurrency=WORKERS, max_retry_count=1000)
        with table_of(config) as table, two_nodes(path) as nodes:
            for number, what in enumerate(kills):
                table.insert(rows[number * part : (number + 1) * part])
                wanted = stream.count() + chance.randrange(1, part // 2)
                nodes[0].daemon.wait_until(lambda n=wanted: stream.count() >= n, "events to arrive")  # type: ignore[misc]
                if what == "redis":
                    server.kill()
                    server.start()
                else:
                    disturb(nodes, chance, what == "supervisor")
            table.insert(rows[len(kills) * part :])
            nodes[0].daemon.wait_until(table.is_done, "everything to be delivered", ENDS_S)
            for node in nodes:
                node.daemon.drain(0.5)
            assert table.by_status() == {"delivered": len(rows)}
            arrived = [one.message.event_id for one in stream.arrived()]
            check_ended(table, arrived, (str(row["event_id"]) for row in rows))
            check_order(table, arrived)


def test_every_publisher_gets_every_room_in_order(mysql_url: str, tmp_path: Path) -> None:
    """G1: of a fan-out, each of whose receivers fails in its own way; what one has accepted it is not sent again."""
    chance = random.Random(SEED)
    rows = events_of(ROOMS // 4, EVENTS // 4, chance)
    path = tmp_path / "node.yaml"
    plans = [plans_for(rows, chance) for _ in range(2)]
    with OrderedReceiver(plans[0]) as first, OrderedReceiver(plans[1]) as second:
        publishers = {"first": over_http(first)["web"], "second": over_http(second)["web"]}
        config = ordered_lane(path, mysql_url, publishers, concurrency=WORKERS)
        with table_of(config) as table, Node(path, WORKERS, tmp_path) as node:
            table.insert(rows)
            node.daemon.wait_until(lambda: first.taken >= len(rows) // 4, "events to arrive")
            node.kill_worker(chance)
            node.daemon.wait_until(table.is_done, "everything to come to an end", ENDS_S)
            node.daemon.drain(0.5)
            for receiver in (first, second):
                check_ended(table, receiver.arrivals(), (str(row["event_id"]) for row in rows))
                check_order(table, receiver.arrivals())


def test_an_embedded_database_keeps_the_order_too(sqlite_url: str, tmp_path: Path) -> None:
    """G1: SQLite, with the same failures and a killed worker."""
    chance = random.Random(SEED)
    rows = events_of(30, scaled(3_000, 400), chance)
    path = tmp_path / "node.yaml"
    with OrderedReceiver(plans_for(rows, chance)) as receiver:
        config = ordered_lane(path, sqlite_url, over_http(receiver), concurrency=WORKERS)
        with table_of(config) as table, Node(path, WORKERS, tmp_path) as node:
            table.insert(rows)
            node.daemon.wait_until(lambda: receiver.taken >= len(rows) // 4, "events to arrive")
            node.kill_worker(chance)
            node.daemon.wait_until(table.is_done, "everything to come to an end", ENDS_S)
            node.daemon.drain(0.5)
            check_ended(table, receiver.arrivals(), (str(row["event_id"]) for row in rows))
            check_order(table, receiver.arrivals())
