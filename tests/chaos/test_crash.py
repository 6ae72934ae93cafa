"""Processes that die without a word: nothing is lost, and every duplicate is explained.

`OUTBOXD_CHAOS=full` makes many rounds of what is otherwise a small seeded sample.
"""

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from outboxd.config.schema import Config
from tests.services.daemon import Daemon, is_running, write_config
from tests.services.lanes import Table, event, table_of
from tests.services.receiver import Receiver
from tests.services.sinks import VARIABLE, published
from tests.services.slow_receiver import SlowReceiver
from tests.services.wait import wait_for

SEED = 20_240_602
FULL = os.environ.get("OUTBOXD_CHAOS") == "full"
ROUNDS = 40 if FULL else 4
WORKERS = 2

SHORT_LEASE: dict[str, object] = {"publish_timeout": "200ms", "lease": "2600ms"}
"""As short as it may be: what a dead worker held is free soon."""


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """Where publishers of `tests.services.sinks` write what they have published."""
    directory = tmp_path / "published"
    directory.mkdir()
    return directory


def over_http(url: str, tmp_path: Path, receiver: Receiver, **worker: object) -> Config:
    """A lane over HTTP with short leases."""
    web = {"type": "http", "url": receiver.url, "connections": 8}
    settings = {**SHORT_LEASE, "concurrency": WORKERS, "batch_size": 40, **worker}
    return write_config(tmp_path / "outbox.yaml", url, {"web": web}, **settings)  # type: ignore[arg-type]


def check(table: Table, ids: list[str], sent: list[str]) -> dict[str, int]:
    """G1: every event arrived and is delivered; what arrived twice had lost a lease. The number of extra arrivals."""
    rows = {str(row["event_id"]): row for row in table.rows()}
    assert {row["status"] for row in rows.values()} == {"delivered"}
    arrived = Counter(sent)
    assert set(arrived) == set(ids) == set(rows)
    extra = {event_id: count - 1 for event_id, count in arrived.items() if count > 1}
    unexplained = {i: count for i, count in extra.items() if int(str(rows[i]["retry_count"])) < count}
    assert unexplained == {}, "published again although no lease was lost"
    return extra


def test_killed_processes_lose_nothing(database_url: str, tmp_path: Path) -> None:
    """G1: SIGKILL of a worker or of the supervisor at random moments, under load; the daemon is started again."""
    chance = random.Random(SEED)
    ids: list[str] = []
    with SlowReceiver(SEED, 0.05) as receiver:
        config = over_http(database_url, tmp_path, receiver)
        with table_of(config) as table:
            for number in range(ROUNDS):
                ids += table.fill(300)
                seen = len(receiver.requests)
                with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                    wanted = seen + chance.randrange(1, 200)
                    daemon.wait_until(lambda n=wanted: len(receiver.requests) >= n, "requests")  # type: ignore[misc]
                    if number % 2:
                        kill_a_worker(daemon, chance)
                    else:
                        kill_the_supervisor(daemon)
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                daemon.wait_until(table.is_done, "everything to be delivered", timeout_s=40)
            extra = check(table, ids, receiver.event_ids())
    on_its_way = 8 + 40  # on the wire, and answered but not yet settled: a batch at the most
    assert sum(extra.values()) <= ROUNDS // 2 * on_its_way


def kill_a_worker(daemon: Daemon, chance: random.Random) -> None:
    """It is replaced; then the daemon is asked to drain."""
    pids = daemon.workers(WORKERS)
    victim = chance.choice(sorted(pids))
    os.kill(pids[victim], signal.SIGKILL)
    daemon.wait_until(lambda: daemon.workers(WORKERS)[victim] != pids[victim], "another worker in its slot")
    daemon.drain(0.2)


def kill_the_supervisor(daemon: Daemon) -> None:
    """Its workers end by themselves, in order: they drain."""
    pids = list(daemon.workers(WORKERS).values())
    os.kill(daemon.pid, signal.SIGKILL)
    wait_for(lambda: not any(map(is_running, pids)), 3, "the orphans to end")


def test_workers_whose_supervisor_is_killed_drain(database_url: str, tmp_path: Path) -> None:
    """G1: what they had in flight is settled, what they had not yet sent is free at once: no lease has to run out."""
    with SlowReceiver(SEED, 0.15) as receiver:
        config = over_http(database_url, tmp_path, receiver)
        with table_of(config) as table:
            table.fill(300)
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                daemon.wait_until(lambda: len(receiver.requests) >= 60, "requests")
                kill_the_supervisor(daemon)
            counts = table.by_status()
            assert counts.keys() == {"pending", "delivered"}
            assert counts["delivered"] == len(receiver.requests) == len(set(receiver.event_ids()))


@pytest.fixture
def deadly(database_url: str, tmp_path: Path, sink: Path) -> Iterator[tuple[Table, Daemon]]:
    """A lane whose publisher is killed by events of type Killer, and its daemon."""
    config = write_config(
        tmp_path / "outbox.yaml",
        database_url,
        {"sink": {"type": "python", "target": "tests.services.sinks:Killing"}},
        concurrency=WORKERS,
        max_retry_count=3,
        batch_size=20,
        **SHORT_LEASE,  # type: ignore[arg-type]  # durations as the file writes them
    )
    with table_of(config) as table:
        table.fill(10)
        table.insert([event(event_id="killer", event_type="Killer")])
        table.fill(29)
        with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log", **{VARIABLE: str(sink)}) as daemon:
            yield table, daemon


def test_an_event_that_kills_its_worker_takes_nobody_along(deadly: tuple[Table, Daemon], sink: Path) -> None:
    """G8: it kills three workers, alone from the second time on, and is a dead letter; all others are delivered."""
    table, daemon = deadly
    daemon.wait_until(table.is_done, "every event to come to an end", timeout_s=60)
    killer = table.row("killer")
    assert (killer["status"], killer["retry_count"]) == ("failed", 3)
    assert str(killer["last_error"]).startswith("outbox retry limit exceeded")
    others = table.rows("event_id <> 'killer'")
    assert {row["status"] for row in others} == {"delivered"}
    assert max(int(str(row["retry_count"])) for row in others) <= 1, "only its first batch was lost with it"
    sent = Counter(published(sink))
    assert sent.pop("killer") == 3
    assert set(sent) == {row["event_id"] for row in others}
    assert max(sent.values()) <= 2
    started = daemon.lines("worker_started")
    assert len(started) == WORKERS + 3, "one death for each attempt"
    # Once it had time to settle, the next worker found nothing of the others left to lose.
    daemon.drain(0.2)
