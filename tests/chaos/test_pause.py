"""Processes that stand still and go on (SIGSTOP, as a suspended machine or a starved container does): what they knew is
old by then, and nothing of it may reach the table or a receiver."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from outboxd.config.schema import Config
from outboxd.errors import StoreConflict
from tests.services.chaos import scaled
from tests.services.daemon import LANE, Daemon, is_running, write_config
from tests.services.journal import check_claims, journal, keep_journal
from tests.services.lanes import Table, published_more_than_once, table_of
from tests.services.nodes import SHORT_LEASE, Node, another_node
from tests.services.receiver import Receiver
from tests.services.sinks import published
from tests.services.wait import wait_for

CONNECTIONS = 4
EVENTS = 40
ON_THE_WIRE_S = 0.15
"""So long an answer takes: below publish_timeout, and long enough to stop a worker that waits for it."""


def configure(url: str, tmp_path: Path, receiver: Receiver, workers: int) -> Config:
    """Two nodes, `node` and `other`, that share a lane over HTTP with short leases."""
    web = {"type": "http", "url": receiver.url, "connections": CONNECTIONS}
    settings = {**SHORT_LEASE, "concurrency": workers, "batch_size": EVENTS}
    config = write_config(tmp_path / "node.yaml", url, {"web": web}, **settings)  # type: ignore[arg-type]
    another_node(tmp_path / "node.yaml", "other")
    return config


@contextmanager
def stopped(table: Table, pids: Sequence[int]) -> Iterator[None]:
    """SIGSTOP; SIGCONT at the end.

    Not inside a transaction: its rows, locked, would be hidden until the server ends the session, after 30 s.
    """

    def stop_outside_a_transaction() -> bool:
        send(signal.SIGSTOP, pids)
        wait_for(lambda: all(map(stands_still, pids)), 5, "them to stand still")
        until_s = time.monotonic() + 0.4  # the server may have a last statement of theirs to end
        while time.monotonic() < until_s:
            if nothing_locked(table):
                return True
        send(signal.SIGCONT, pids)
        return False

    try:
        wait_for(stop_outside_a_transaction, 10, "a moment without a transaction")
        yield
    finally:
        send(signal.SIGCONT, filter(is_running, pids))


def send(signum: signal.Signals, pids: Iterable[int]) -> None:
    """The signal to all of them."""
    for pid in pids:
        os.kill(pid, signum)


def stands_still(pid: int) -> bool:
    """Are all of its threads stopped?"""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all((task / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "T" for task in tasks)


def nothing_locked(table: Table) -> bool:
    """Has nobody a transaction open that has taken or settled something?"""
    connection = table.connection
    try:
        if connection.dialect == "sqlite":
            connection.begin()
            connection.rollback()
        else:
            connection.query(f"SELECT COUNT(*) FROM {table.name} FOR UPDATE NOWAIT")
    except StoreConflict:
        return False
    return True


def totals(daemon: Daemon, name: str) -> int:
    """What SIGUSR1 says of the daemon's workers together."""
    before = len(daemon.lines("worker_status"))
    workers = len({line["worker"] for line in daemon.lines("worker_started")})
    daemon.signal(signal.SIGUSR1)
    lines = daemon.wait_for("worker_status", before + workers)
    return sum(int(line[name]) for line in lines[before : before + workers])


ALL = [(kind, what) for kind in ("mysql", "sqlite") for what in ("worker", "node")]


@pytest.mark.parametrize(("kind", "what"), scaled(ALL, [("mysql", "worker"), ("mysql", "node"), ("sqlite", "node")]))
def test_what_stood_still_past_its_lease_changes_nothing(
    kind: str, what: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """G3, G4: another node has delivered everything meanwhile. What was on the wire arrives twice; the rest of the
    queue is not published, no late outcome is written, each event held counts as `lease_lost`, and the node goes on.
    """
    count = 2 if what == "node" else 1
    with Receiver() as receiver:
        config = configure(request.getfixturevalue(f"{kind}_url"), tmp_path, receiver, count)
        with table_of(config) as table, Daemon(tmp_path / "node.yaml", tmp_path / "node.log") as node:
            keep_journal(table)
            workers = list(node.workers(count).values())
            table.fill(1)
            node.wait_until(table.is_done, "the first event to be delivered")
            receiver.answer(delay_s=ON_THE_WIRE_S)
            table.fill(EVENTS * count)
            node.wait_until(lambda: len(receiver.requests) >= 1 + CONNECTIONS * count, "publishes on the wire")
            with stopped(table, [node.pid, *workers] if what == "node" else workers):
                receiver.answer()
                before = relay_elsewhere(table, tmp_path, receiver)
                twice = set(published_more_than_once(receiver.event_ids()))
                arrived = len(receiver.requests)
            lost = {change.event_id for change in journal(table) if change.is_loss}
            node.wait_until(lambda: totals(node, "lease_lost") == len(lost), "all that was lost to be counted")
            assert totals(node, "in_flight") == 0
            assert node.lines("lease_lost"), "not a line of it"
            assert len(receiver.requests) == arrived, "published what it no longer held"
            assert table.rows() == before, "changed what it no longer held"
            more = table.fill(50)
            node.wait_until(table.is_done, "the node to go on")
            check_claims(journal(table))
            check_undisturbed(node, workers)
        counts = Counter(receiver.event_ids())
    assert twice, "nothing was on the wire"
    assert twice < lost, "nothing waited in its queue"
    assert {counts[event_id] for event_id in more} == {1}


def relay_elsewhere(table: Table, tmp_path: Path, receiver: Receiver) -> list[dict[str, object]]:
    """Another node takes what the stopped one held, when its leases have run out. The rows, then."""
    with Daemon(tmp_path / "other.yaml", tmp_path / "other.log") as other:
        other.wait_until(table.is_done, "the other node to deliver everything", timeout_s=60)
        other.drain(0.2)
    rows = table.rows()
    assert {row["status"] for row in rows} == {"delivered"}
    return rows


def check_undisturbed(node: Daemon, workers: Sequence[int]) -> None:
    """The supervisor has not taken the pause for a hang."""
    assert node.lines("worker_hung") == []
    assert sorted(node.workers(len(workers)).values()) == sorted(workers)
    node.drain(0.2)


def test_a_worker_that_stands_still_too_long_is_replaced(mysql_url: str, tmp_path: Path, sink: Path) -> None:
    """G1, G8: after the supervisor's limit it is woken to dump its threads, and killed if it does not even do that.

    Another node's worker, or here a third one, has relayed what they held.
    """
    lingering = {"sink": {"type": "python", "target": "tests.services.sinks:Lingering"}}
    settings = {**SHORT_LEASE, "concurrency": 3, "batch_size": 40, "database": {"statement_timeout": "1s"}}
    config = write_config(tmp_path / "node.yaml", mysql_url, lingering, **settings)  # type: ignore[arg-type]
    with table_of(config) as table, Node(tmp_path / "node.yaml", 3, sink) as node:
        keep_journal(table)
        workers = node.workers()
        table.fill(600)
        wait_for(lambda: len(published(sink)) >= 100, 20, "some load")
        one, two, lives = (workers[f"{LANE}-{number:02d}"] for number in (1, 2, 3))
        with stopped(table, list(workers.values())):
            send(signal.SIGCONT, [lives])
            node.daemon.wait_until(table.is_done, "the third worker to deliver everything", timeout_s=60)
            exits = node.daemon.wait_for("worker_exited", 2)
            hung = node.daemon.lines("worker_hung")
            killed = pids_of(node.daemon, "worker_killed")
            again = node.workers()
        table.fill(50)
        node.daemon.wait_until(table.is_done, "the new workers to go on")
        rows = table.rows()
        check_claims(journal(table))
        node.daemon.drain(0.2)
    assert all(11 <= line["silent_s"] <= 30 for line in hung), "statement_timeout and 10 s"
    assert {line["pid"] for line in hung} == {one, two}
    hows = {line["pid"]: line["how"] for line in exits}
    assert hows == {pid: "SIGKILL" if pid in killed else "SIGABRT" for pid in (one, two)}
    assert killed == {one, two} or "Fatal Python error: Aborted" in node.daemon.text()
    assert again[f"{LANE}-03"] == lives
    assert not {one, two} & set(again.values())
    assert {row["status"] for row in rows} == {"delivered"}
    assert set(published(sink)) == {row["event_id"] for row in rows}


def pids_of(daemon: Daemon, event: str) -> set[int]:
    """Of whom the supervisor has said so."""
    return {line["pid"] for line in daemon.lines(event)}
