"""Workers of the real daemon that die again and again: nothing is left of them but what they have counted."""

import os
import random
import signal
from pathlib import Path

from tests.services.chaos import SEED, scaled
from tests.services.daemon import Daemon, write_config
from tests.services.lanes import Table, table_of
from tests.services.processes import children_of, descriptors_of, resident_bytes, shared_maps_of, state_of
from tests.services.sessions import sessions
from tests.services.wait import let_pass

RESTARTS = scaled(1000, 100)
PARTS = 5
WORKERS = 4
EVENTS = 40
OURS = 1
"""Session: the test's own."""
GROWTH_BYTES = 1 << 20
"""What the allocator may take and keep; a leak of a few hundred bytes for each restart is more in the full form."""


def test_many_restarts_leak_nothing_and_count_nothing_twice(mysql_url: str, tmp_path: Path) -> None:
    """G9: kill -9 in every phase of a worker's start: no process, zombie, descriptor, slot, shared memory or session of
    the database is lost, the supervisor does not grow, and totals go on from where they were.
    """
    chance = random.Random(SEED)
    config = write_config(
        tmp_path / "outbox.yaml",
        mysql_url,
        {"nothing": {"type": "null"}},
        concurrency=WORKERS,
        supervisor={"restart_backoff": "1ms", "restart_backoff_max": "1ms"},
    )
    killed: set[int] = set()
    with table_of(config) as table, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
        relay_some(daemon, table)
        check_at_rest(daemon, mysql_url, parts=1)
        before = held_by(daemon.pid)
        resident = resident_bytes(daemon.pid)
        for part in range(1, PARTS + 1):
            while len(killed) < RESTARTS * part // PARTS:
                kill_one(daemon, killed, chance)
            relay_some(daemon, table)
            check_at_rest(daemon, mysql_url, parts=1 + part)
            assert held_by(daemon.pid) == before
        assert resident_bytes(daemon.pid) < resident + GROWTH_BYTES
        assert sum(line["starts"] for line in status(daemon)) == WORKERS + RESTARTS
        exited = daemon.lines("worker_exited")
        assert [line["how"] for line in exited] == ["killed (out of memory?)"] * RESTARTS
        assert {line["pid"] for line in exited} == killed
        daemon.drain(3.0)
        daemon.wait_until(lambda: sessions(mysql_url) == OURS, "the sessions to be closed")


def kill_one(daemon: Daemon, killed: set[int], chance: random.Random) -> None:
    """A worker that has not been killed yet: some before they run any Python, some when they have connected."""
    spared = {daemon.admin_pid()}
    while not (alive := set(children_of(daemon.pid)) - killed - spared):
        let_pass(0.001)
    victim = chance.choice(sorted(alive))
    let_pass(chance.choice((0.0, 0.0, 0.01, 0.05)))
    os.kill(victim, signal.SIGKILL)
    killed.add(victim)


def relay_some(daemon: Daemon, table: Table) -> None:
    """And no worker dies meanwhile, so that every event counts exactly once."""
    table.fill(EVENTS)
    daemon.wait_until(table.is_done, "the events to be delivered")


def check_at_rest(daemon: Daemon, url: str, parts: int) -> None:
    """As many processes, slots and sessions as there are workers, and every event counted once."""
    daemon.wait_until(lambda: sessions(url) == WORKERS + OURS, "a session for each worker")
    states = [state_of(child) for child in children_of(daemon.pid)]
    assert len(states) == WORKERS + 1, "the workers and the admin role"
    assert "Z" not in states
    lines = status(daemon)
    assert len({line["worker"] for line in lines}) == WORKERS
    assert sum(line["delivered"] for line in lines) == parts * EVENTS
    assert sum(line["claimed"] for line in lines) == parts * EVENTS


def status(daemon: Daemon) -> list[dict[str, int]]:
    """What SIGUSR1 shows of every slot now."""
    seen = len(daemon.lines("worker_status"))
    daemon.signal(signal.SIGUSR1)
    return daemon.wait_for("worker_status", seen + WORKERS)[seen:]


def held_by(pid: int) -> tuple[list[str], int, list[str]]:
    """What the supervisor holds: descriptors, shared memory, threads."""
    return descriptors_of(pid), shared_maps_of(pid), os.listdir(f"/proc/{pid}/task")
