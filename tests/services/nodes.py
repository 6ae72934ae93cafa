"""Nodes that share a lane: each is a configuration and a log, over as many runs of the daemon as a test makes of it."""

import calendar
import os
import random
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.services.daemon import Daemon, is_running, parsed
from tests.services.journal import Change
from tests.services.sinks import VARIABLE, Publish
from tests.services.wait import wait_for

SHORT_LEASE: dict[str, object] = {"publish_timeout": "200ms", "lease": "2600ms"}
"""As short as it may be: what a dead worker held is free soon."""
LEASE_S = 2.6


def another_node(config: Path, node_id: str) -> Path:
    """The same configuration for another node: a file beside it."""
    other = config.with_name(f"{node_id}.yaml")
    text = config.read_text().replace("node_id: node\n", f"node_id: {node_id}\n")
    other.write_text(text.replace(str(config.with_suffix(".sock")), str(other.with_suffix(".sock"))))
    return other


def now_ms() -> int:
    """UTC epoch milliseconds, by the clock that a server on this machine has too."""
    return time.time_ns() // 1_000_000


class Life(NamedTuple):
    """One process of a worker. died_ms: when the test killed it; 0: it did not."""

    worker_id: str
    pid: int
    since_ms: int
    died_ms: int


class Outage(NamedTuple):
    """The database was away."""

    from_ms: int
    until_ms: int


class Node:
    """A node that the test kills parts of, and starts again."""

    daemon: Daemon
    """Its present run: from `start` or `with` on."""

    def __init__(self, config: Path, workers: int, sink: Path) -> None:
        self._config = config
        self._log = config.with_suffix(".log")
        self._workers = workers
        self._sink = sink
        self._deaths: dict[int, int] = {}

    def start(self) -> None:
        """Another run of its daemon."""
        self.daemon = Daemon(self._config, self._log, **{VARIABLE: str(self._sink)})

    def __enter__(self) -> "Node":
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.daemon.stop()

    def workers(self) -> dict[str, int]:
        """Name -> pid of each, once all of them run."""
        return self.daemon.workers(self._workers)

    def kill_worker(self, chance: random.Random) -> None:
        """SIGKILL to one of them; the supervisor replaces it."""
        self.kill(chance.choice(sorted(self.workers().values())))

    def kill(self, *pids: int) -> None:
        """SIGKILL, and remember when."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self._deaths.update(dict.fromkeys(pids, now_ms()))

    def kill_supervisor(self) -> None:
        """Its workers end by themselves, in order: they drain. Then it is started again."""
        pids = list(self.workers().values())
        os.kill(self.daemon.pid, signal.SIGKILL)
        wait_for(lambda: not any(map(is_running, pids)), 10, "the orphans to end")
        self.daemon.stop()
        self.start()

    def kill_everything(self) -> None:
        """SIGKILL to the whole process group; then it is started again."""
        pids = list(self.workers().values())
        os.killpg(self.daemon.pid, signal.SIGKILL)
        self._deaths.update(dict.fromkeys(pids, now_ms()))
        self.daemon.stop()
        self.start()

    def lives(self) -> list[Life]:
        """Every process that was a worker of this node, over all runs."""
        lines = parsed(self._log.read_text(errors="replace"))
        started = [line for line in lines if line["event"] == "worker_started"]
        return [
            Life(f"{line['node_id']}/{line['worker']}", pid, epoch_ms(line["time"]), self._deaths.get(pid, 0))
            for line in started
            for pid in [int(line["pid"])]
        ]


def epoch_ms(moment: str) -> int:
    """The time of a line of the log: 2024-06-02T12:00:00.250Z."""
    return calendar.timegm(time.strptime(moment[:19], "%Y-%m-%dT%H:%M:%S")) * 1000 + int(moment[20:23])


def explain(
    changes: Iterable[Change], publishes: Iterable[Publish], lives: Iterable[Life], outages: Iterable[Outage] = ()
) -> int:
    """G1, event by event: a claim was lost only because its process was killed, or the database was away, while it
    held; and no process published an event more often than it had claimed it. So each publish but an event's first
    is one whose forerunner could not be settled. Returns how many claims were lost.
    """
    lives, outages = list(lives), list(outages)
    claims: dict[tuple[str, int], int] = {}
    held: dict[str, tuple[Life, int]] = {}
    lost = 0
    for change in changes:
        if not change.is_claim:
            continue
        if change.is_loss:
            lost += 1
            life, since_ms = held[change.event_id]
            is_killed = since_ms <= life.died_ms <= change.at_ms
            is_cut_off = any(outage.from_ms <= change.at_ms and since_ms <= outage.until_ms for outage in outages)
            assert is_killed or is_cut_off, f"its lease was lost although {life} lived and could settle: {change}"
        by = [life for life in lives if life.worker_id == change.after.worker_id and life.since_ms <= change.at_ms]
        life = max(by, key=lambda each: each.since_ms)
        held[change.event_id] = (life, change.at_ms)
        claims[change.event_id, life.pid] = claims.get((change.event_id, life.pid), 0) + 1
    for publish in publishes:
        key = (publish.event_id, publish.pid)
        claims[key] = claims.get(key, 0) - 1
        assert claims[key] >= 0, f"published without a claim of its own: {publish}"
    return lost
