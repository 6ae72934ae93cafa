"""Processes that die without a word, under load: nothing is lost, and every duplicate is explained."""

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from outboxd.config.schema import Config
from tests.services.chaos import SEED, scaled
from tests.services.daemon import Daemon, is_running, write_config
from tests.services.find import require
from tests.services.journal import check_claims, journal, keep_journal
from tests.services.lanes import Table, table_of
from tests.services.mariadb import Server
from tests.services.nodes import SHORT_LEASE, Node, Outage, another_node, explain, now_ms
from tests.services.receiver import Receiver
from tests.services.sinks import publishes
from tests.services.slow_receiver import SlowReceiver
from tests.services.wait import let_pass, wait_for

EVENTS = scaled(20_000, 2_000)
WORKERS = 2
"""Of each node."""
KILLS = ["worker"] * scaled(45, 4) + ["holder"] * scaled(5, 1) + ["supervisor"] * scaled(5, 1)
"""worker: whatever it does at that moment; holder: one that holds leases."""
DATABASE_KILLS = ["database"] * scaled(3, 1)
RECONNECTED_MS = 6_000
"""A worker that finds the database away tries again after 5 s at the latest."""


class Flow:
    """Events that flow through two nodes, and what was done to them meanwhile."""

    def __init__(self, config: Config, nodes: list[Node], sink: Path, server: Server | None) -> None:
        self.chance = random.Random(SEED)
        self.outages: list[Outage] = []
        self._config = config
        self._nodes = nodes
        self._sink = sink
        self._server = server

    def disturb(self, what: str, events: int) -> None:
        """More events; and when some of them are published, a kill."""
        with table_of(self._config) as table:
            seen = len(publishes(self._sink))
            table.fill(events)
        node = self.chance.choice(self._nodes)
        wanted = seen + self.chance.randrange(1, events // 4)  # so that many are still to come, and held
        node.daemon.wait_until(lambda: len(publishes(self._sink)) >= wanted, "more publishes", timeout_s=40)
        if what == "worker":
            node.kill_worker(self.chance)
        elif what == "holder":
            node.daemon.wait_until(self._kill_holder, "a worker that holds something", timeout_s=40)
        elif what == "supervisor":
            node.kill_supervisor()
        else:
            self._kill_database()

    def _kill_holder(self) -> bool:
        """One that is found to hold leases, frozen first, so that it holds them still when it dies."""
        with table_of(self._config) as table:
            for node in self._nodes:
                node_id = node.daemon.lines("worker_started")[-1]["node_id"]
                for name, pid in node.workers().items():
                    os.kill(pid, signal.SIGSTOP)
                    held = f"status = 'delivering' AND worker_id = '{node_id}/{name}'"
                    if table.rows(held):
                        let_pass(0.1)  # what it has sent already, the database does still
                        if table.rows(held):
                            node.kill(pid)
                            return True
                    os.kill(pid, signal.SIGCONT)
            if table.is_done():
                table.fill(500)
        return False

    def _kill_database(self) -> None:
        assert self._server is not None
        since_ms = now_ms()
        self._server.kill()
        for node in self._nodes:
            node.daemon.wait_for("database_unavailable")
        self._server.start()
        self.outages.append(Outage(since_ms, now_ms() + RECONNECTED_MS))


@pytest.mark.parametrize("kind", ["mysql", "sqlite"])
def test_killed_processes_lose_nothing(kind: str, request: pytest.FixtureRequest, tmp_path: Path, sink: Path) -> None:
    """G1, G2, G8: workers, supervisors and the database server are killed while events flow through two nodes.

    Every event arrives and is delivered; every lost lease is that of a killed process, or was lost while the database
    was away; nobody publishes more often than it has claimed; `retry_count` is the number of lost leases.
    """
    url: str = request.getfixturevalue(f"{kind}_url")
    server: Server | None = request.getfixturevalue("mysql_server") if kind == "mysql" else None
    if server is not None:
        require("private-mysql", getattr(server, "pid", None), "the database server is not a process of ours")
    lingering = {"sink": {"type": "python", "target": "tests.services.sinks:Lingering"}}
    # Long enough that no worker loses a lease because the machine has no time for it.
    settings = {**SHORT_LEASE, "lease": "4s", "concurrency": WORKERS, "batch_size": 40}
    config = write_config(tmp_path / "node.yaml", url, lingering, **settings)  # type: ignore[arg-type]
    with table_of(config) as table:
        keep_journal(table)
    with (
        Node(tmp_path / "node.yaml", WORKERS, sink) as one,
        Node(another_node(tmp_path / "node.yaml", "other"), WORKERS, sink) as other,
    ):
        flow = Flow(config, [one, other], sink, server)
        kills = KILLS + (DATABASE_KILLS if kind == "mysql" else [])
        flow.chance.shuffle(kills)
        for what in kills:
            flow.disturb(what, EVENTS // len(kills))
        with table_of(config) as table:
            one.daemon.wait_until(table.is_done, "everything to be delivered", timeout_s=90)
            for node in (one, other):
                node.daemon.drain(0.2)
            lives = [life for node in (one, other) for life in node.lives()]
            check_flow(table, sink)
            lost = explain(journal(table), publishes(sink), lives, flow.outages)
    assert lost >= 1, "the kills hit nobody who held anything"


def check_flow(table: Table, sink: Path) -> None:
    """G1, G8: everything has arrived and is delivered, and what was counted are lost leases."""
    changes = journal(table)
    check_claims(changes)
    rows = table.rows()
    assert {row["status"] for row in rows} == {"delivered"}
    assert {row["event_id"] for row in rows} == {publish.event_id for publish in publishes(sink)}
    losses: dict[object, int] = {}
    for change in changes:
        losses[change.event_id] = losses.get(change.event_id, 0) + change.is_loss
    assert {row["event_id"]: row["retry_count"] for row in rows} == losses


@pytest.mark.parametrize("kind", scaled(["mysql", "sqlite"], ["mysql"]))
def test_killed_processes_lose_nothing_over_http(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """G1: the same through curl, whose own connections die with the process. What arrived twice got no answer."""
    chance = random.Random(SEED)
    config_file, log = tmp_path / "outbox.yaml", tmp_path / "daemon.log"
    ids: list[str] = []
    with SlowReceiver(SEED, 0.05) as receiver:
        config = over_http(request.getfixturevalue(f"{kind}_url"), config_file, receiver)
        with table_of(config) as table:
            keep_journal(table)
            for number in range(scaled(40, 4)):
                ids += table.fill(300)
                wanted = len(receiver.requests) + chance.randrange(1, 200)
                with Daemon(config_file, log) as daemon:
                    daemon.wait_until(lambda n=wanted: len(receiver.requests) >= n, "requests")  # type: ignore[misc]
                    pids = list(daemon.workers(WORKERS).values())
                    os.kill(chance.choice(pids) if number % 2 else daemon.pid, signal.SIGKILL)
                    if number % 2:
                        daemon.wait_for("worker_started", WORKERS + 1)
                        daemon.drain(0.2)
                    else:
                        wait_for(lambda p=pids: not any(map(is_running, p)), 10, "the orphans to end")  # type: ignore[misc]
            with Daemon(config_file, log) as daemon:
                daemon.wait_until(table.is_done, "everything to be delivered", timeout_s=40)
            rows, changes = table.rows(), journal(table)
    arrived = Counter(receiver.event_ids())
    assert {row["status"] for row in rows} == {"delivered"}
    assert set(arrived) == set(ids) == {row["event_id"] for row in rows}
    # The receiver accepts everything: a publish that is to be tried again is one whose answer did not come in time.
    unanswered = Counter(c.event_id for c in changes if c.is_loss or c.after.status == "retryable")
    assert {i: count for i, count in arrived.items() if count > 1 + unanswered[i]} == {}, "a publish too many"


def over_http(url: str, path: Path, receiver: Receiver, **worker: object) -> Config:
    """A lane over HTTP with short leases."""
    web = {"type": "http", "url": receiver.url, "connections": 8}
    settings = {**SHORT_LEASE, "concurrency": WORKERS, "batch_size": 40, **worker}
    return write_config(path, url, {"web": web}, **settings)  # type: ignore[arg-type]


def test_workers_whose_supervisor_is_killed_drain(database_url: str, tmp_path: Path) -> None:
    """G1: what they had in flight is settled, what they had not yet sent is free at once: no lease has to run out."""
    with SlowReceiver(SEED, 0.15) as receiver:
        patient = {"publish_timeout": "1s", "lease": "5s", "batch_size": 400}
        config = over_http(database_url, tmp_path / "outbox.yaml", receiver, **patient)
        with table_of(config) as table:
            table.fill(800)
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                daemon.wait_until(lambda: len(receiver.requests) >= 60, "requests")
                pids = list(daemon.workers(WORKERS).values())
                os.kill(daemon.pid, signal.SIGKILL)
                wait_for(lambda: not any(map(is_running, pids)), 10, "the orphans to end")
            counts = table.by_status()
            assert counts.keys() == {"pending", "delivered"}
            assert counts["delivered"] == len(receiver.requests) == len(set(receiver.event_ids()))
