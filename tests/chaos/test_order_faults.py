"""An ordered backlog that is interrupted: restarts, reloads, drains, the database's own restart, workers that die, a
node that joins. Every room keeps its order, nothing is lost, and its partitions are served again.
"""

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from outboxd.config.schema import Config
from tests.services.chaos import SEED, scaled
from tests.services.daemon import Daemon
from tests.services.find import require
from tests.services.lanes import Table, event, table_of
from tests.services.mariadb import Server
from tests.services.nodes import another_node
from tests.services.rooms import (
    LEASE_S,
    OrderedReceiver,
    check_ended,
    check_order,
    events_of,
    ordered_lane,
    over_http,
)
from tests.services.wait import let_pass

EVENTS = scaled(6_000, 900)
ROOMS = 60
PARTITIONS = 64
LONG_LEASE: dict[str, Any] = {"lease": "60s"}
"""Nothing in these tests waits for its end."""
ENDS_S = 60.0


@dataclass
class Backlog:
    """A lane with events in it. ids: of all that were written."""

    path: Path
    config: Config
    table: Table
    receiver: OrderedReceiver
    ids: list[str]

    def daemon(self, path: Path | None = None) -> Daemon:
        """A run of it, or of another node's."""
        chosen = path or self.path
        return Daemon(chosen, chosen.with_suffix(".log"))

    def more(self, count: int, rooms: int = ROOMS) -> list[str]:
        """Further events; their ids."""
        rows = events_of(rooms, count, random.Random(SEED + len(self.ids)))
        self.table.insert(rows)
        added = [str(row["event_id"]) for row in rows]
        self.ids += added
        return added

    def flows(self, daemon: Daemon, count: int = 100) -> None:
        """Wait until so many more have arrived."""
        wanted = self.receiver.taken + count
        daemon.wait_until(lambda: self.receiver.taken >= wanted, "events to arrive")

    def finish(self, daemon: Daemon) -> None:
        """Everything is delivered, in order."""
        daemon.wait_until(self.table.is_done, "everything to be delivered", ENDS_S)
        accepted = self.receiver.arrivals()
        assert self.table.by_status() == {"delivered": len(self.ids)}
        check_ended(self.table, accepted, self.ids)
        check_order(self.table, accepted)

    def owners(self) -> dict[str, int]:
        """Worker -> how many partitions it leases now."""
        sql = "SELECT worker_id, COUNT(*) FROM outboxd_partition WHERE worker_id <> '' GROUP BY worker_id"
        return {str(worker): int(count) for worker, count in self.table.connection.query(sql)}


@contextmanager
def backlog(url: str, path: Path, count: int = EVENTS, longest_s: float = 0.05, **worker: Any) -> Iterator[Backlog]:
    """A receiver that takes its time, and so many events that wait."""
    with OrderedReceiver(longest_s=longest_s) as receiver:
        config = ordered_lane(path, url, over_http(receiver), **worker)
        with table_of(config) as table:
            found = Backlog(path, config, table, receiver, [])
            found.more(count)
            yield found


@pytest.mark.parametrize("kind", scaled(["mysql", "sqlite"], ["mysql"]))
def test_restarts_keep_the_order(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """G5: what a drain gives back is taken up where it stopped, and no lease has to run out."""
    url, count = request.getfixturevalue(f"{kind}_url"), EVENTS if kind == "mysql" else 2_000
    with backlog(url, tmp_path / "node.yaml", count, **LONG_LEASE) as lane:
        for _ in range(scaled(6, 2)):
            with lane.daemon() as daemon:
                lane.flows(daemon, count // 10)
                daemon.drain(0.5)
        with lane.daemon() as daemon:
            lane.finish(daemon)
        assert len(lane.receiver.arrivals()) == len(lane.ids), "an orderly end publishes nothing twice"


def test_reloads_keep_the_order(mysql_url: str, tmp_path: Path) -> None:
    """G5: one worker after the other hands its rooms on, to more of them and to fewer."""
    with backlog(mysql_url, tmp_path / "node.yaml", **LONG_LEASE) as lane, lane.daemon() as daemon:
        for number, workers in enumerate(scaled((4, 1, 2), (4, 1))):
            lane.more(300)
            lane.flows(daemon)
            ordered_lane(lane.path, mysql_url, over_http(lane.receiver), **{**LONG_LEASE, "concurrency": workers})
            daemon.signal(signal.SIGHUP)
            daemon.wait_for("reload_finished", number + 1)
        lane.finish(daemon)
        assert len(lane.receiver.arrivals()) == len(lane.ids), "an orderly end publishes nothing twice"


@pytest.mark.parametrize("how", scaled(["restart", "kill"], ["kill"]))
def test_a_restart_of_the_database_keeps_the_order(
    how: str, mysql_server: Server, mysql_url: str, tmp_path: Path
) -> None:
    """G1, G10: what was in flight meanwhile is settled or published again; nothing overtakes it."""
    require("private-mysql", getattr(mysql_server, "pid", None), "the database server is not a process of ours")
    with backlog(mysql_url, tmp_path / "node.yaml") as lane, lane.daemon() as daemon:
        lane.flows(daemon)
        stop: Callable[[], None] = mysql_server.kill if how == "kill" else mysql_server.stop
        stop()
        daemon.wait_for("database_unavailable")
        mysql_server.start()
        with table_of(lane.config) as lane.table:
            lane.finish(daemon)


def test_a_killed_workers_rooms_go_on_with_its_successor(mysql_url: str, tmp_path: Path) -> None:
    """A worker of the same name takes its partitions up at once: new rooms are served while the leases of what was in
    flight still hold, for a minute. No room that had something in flight is published from meanwhile."""
    path = tmp_path / "node.yaml"
    with backlog(mysql_url, path, 200, longest_s=0.01, **LONG_LEASE) as lane, lane.daemon() as daemon:
        daemon.wait_until(lane.table.is_done, "the first publishes of either worker, which are probes")
        behind = stick(lane, daemon)
        os.kill(daemon.workers(2)["room_outbox-01"], signal.SIGKILL)
        lost = in_flight(lane)
        assert lost, "it had nothing in flight"
        daemon.wait_for("worker_started", 3)
        fresh = {lane.table.fill(1, room_id=f"fresh-{number}")[0] for number in range(4 * PARTITIONS)}
        lane.ids += fresh
        daemon.wait_until(lambda: fresh <= set(lane.receiver.arrivals()), "rooms of every partition", 30)
        assert lost.items() <= in_flight(lane).items()
        assert not {behind[head] for head in lost} & set(lane.receiver.arrivals())
        # As if the minute had passed.
        lane.table.connection.execute("UPDATE room_outbox SET lock_until_ms = 1 WHERE status = 'delivering'")
        lane.finish(daemon)


def stick(lane: Backlog, daemon: Daemon) -> dict[str, str]:
    """A head in many rooms whose answer does not come, and a follower behind each; the ids of either."""
    behind = {}
    for number in range(40):
        rows = [event(room_id=f"stuck-{number}", event_type=kind) for kind in ("Head", "Behind")]
        lane.receiver.plan(str(rows[0]["event_id"]), "hang")
        lane.table.insert(rows)
        behind[str(rows[0]["event_id"])] = str(rows[1]["event_id"])
    lane.ids += [*behind.keys(), *behind.values()]
    daemon.wait_until(lambda: len(in_flight(lane)) >= 4, "heads in flight")
    return behind


def in_flight(lane: Backlog) -> dict[str, object]:
    """Event id -> token of the heads that the first worker has claimed."""
    heads = "status = 'delivering' AND worker_id = 'node/room_outbox-01' AND event_type = 'Head'"
    return {str(row["event_id"]): row["claim_token"] for row in lane.table.rows(heads)}


def test_a_worker_that_sleeps_through_its_lease_overtakes_nobody(mysql_url: str, tmp_path: Path) -> None:
    """G3, G4: others have its rooms when it wakes up; what it still had in hand it neither publishes nor settles."""
    path = tmp_path / "node.yaml"
    with backlog(mysql_url, path, 0) as lane, lane.daemon() as daemon, lane.daemon(another_node(path, "b")) as other:
        daemon.wait_until(lambda: is_fair(lane), "a fair share for each worker", 30)
        lane.more(EVENTS)
        lane.flows(daemon)
        pid = daemon.workers(2)["room_outbox-01"]
        os.kill(pid, signal.SIGSTOP)
        lane.more(EVENTS // 2)
        let_pass(LEASE_S + 1)
        os.kill(pid, signal.SIGCONT)
        lane.more(EVENTS // 2)
        lane.finish(other)


def test_a_node_that_never_comes_back_is_replaced_within_its_lease(mysql_url: str, tmp_path: Path) -> None:
    """G1: its partitions are free once their lease has run out; nothing waits for the node itself."""
    path = tmp_path / "node.yaml"
    with backlog(mysql_url, path, 0) as lane, lane.daemon() as daemon:
        with lane.daemon(another_node(path, "other")) as other:
            other.workers(2)
            daemon.wait_until(lambda: has_some(lane, "other/"), "partitions of the other node", 30)
            lane.more(EVENTS)
            lane.flows(daemon)
            os.killpg(other.pid, signal.SIGKILL)
        lane.finish(daemon)
        daemon.wait_until(lambda: not has_some(lane, "other/"), "the partitions to be taken over", 10 * LEASE_S)
        assert sum(lane.owners().values()) == PARTITIONS


def has_some(lane: Backlog, node: str) -> bool:
    """Does a worker of the node lease a partition?"""
    return any(worker.startswith(node) for worker in lane.owners())


def test_a_node_that_joins_gets_its_share(mysql_url: str, tmp_path: Path) -> None:
    """Within seconds, while events flow; and it gives it back when it leaves."""
    path = tmp_path / "node.yaml"
    with backlog(mysql_url, path) as lane, lane.daemon() as daemon:
        lane.flows(daemon)
        daemon.wait_until(lambda: sum(lane.owners().values()) == PARTITIONS, "all partitions to be leased", 30)
        with lane.daemon(another_node(path, "other")) as other:
            daemon.wait_until(lambda: is_fair(lane), "a fair share for each worker", 30)
            lane.more(EVENTS // 2)
            lane.flows(daemon)
            other.drain(0.5)
        daemon.wait_until(
            lambda: not has_some(lane, "other/") and sum(lane.owners().values()) == PARTITIONS, "what it gave back", 30
        )
        lane.finish(daemon)
        assert len(lane.receiver.arrivals()) == len(lane.ids), "nobody died: nothing is published twice"


def is_fair(lane: Backlog) -> bool:
    """Does each of four workers lease about a quarter?"""
    shares = lane.owners()
    return len(shares) == 4 and sum(shares.values()) == PARTITIONS and max(shares.values()) <= PARTITIONS // 2
