"""Whom a failure is blamed on, under load: receivers that fail at random, poison among good events, a broken parser."""

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.services.chaos import SEED, scaled
from tests.services.daemon import Daemon, write_config
from tests.services.lanes import Table, event, lanes_of, table_of
from tests.services.receiver import Receiver
from tests.services.receiver_answers import DEFAULT, Behaviour, Request

SHORT: dict[str, object] = {"publish_timeout": "300ms", "lease": "2900ms"}
PROBES: dict[str, object] = {"initial_probe": "20ms", "max_probe": "100ms"}
ERROR = Behaviour(status=500)
REFUSAL = Behaviour(status=400)

FLAKY = {
    "lane_30_percent": (0.3, ERROR),
    "lane_half": (0.5, ERROR),
    "lane_70_percent": (0.7, ERROR),
    "lane_hangs": (0.5, Behaviour(hang=True)),
    "lane_resets": (0.5, Behaviour(close="reset")),
}


def flaky(share: float, failure: Behaviour) -> Receiver:
    """One that fails at random, for so large a share of all requests."""
    chance = random.Random(SEED)
    receiver = Receiver(keep_bodies=False)
    receiver.choose(lambda request: failure if chance.random() < share else DEFAULT)
    return receiver


def test_a_receiver_that_fails_at_random_loses_nobody(database_url: str, tmp_path: Path) -> None:
    """G6: with 30, 50 and 70 % of 500s, with half of all requests hanging or reset: none dies of it."""
    count = scaled(5000, 500)
    with ExitStack() as stack:
        receivers = {lane: stack.enter_context(flaky(*how)) for lane, how in FLAKY.items()}
        config = write_config(
            tmp_path / "outbox.yaml",
            database_url,
            {lane: {"type": "http", "url": receiver.url, "breaker": PROBES} for lane, receiver in receivers.items()},
            lanes={lane: {"direct": [lane]} for lane in receivers},
            concurrency=scaled(2, 1), max_retry_count=10, initial_backoff="20ms", max_backoff="200ms", **SHORT,
        )  # type: ignore[arg-type]  # fmt: skip
        tables = stack.enter_context(lanes_of(config))
        ids = {lane: table.fill(count) for lane, table in tables.items()}
        since_s = time.monotonic()
        with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            done: Callable[[], bool] = lambda: all(table.is_done() for table in tables.values())
            daemon.wait_until(done, "everything to come to an end", timeout_s=scaled(300, 60))
            print("took", time.monotonic() - since_s)
            for lane, table in tables.items():
                counts = Counter(int(str(row["retry_count"])) for row in table.rows())
                requests = Counter(receivers[lane].event_ids())
                opened = [line for line in daemon.lines("breaker_opened") if line["lane"] == lane]
                print(lane, table.by_status(), sorted(counts.items()), len(opened), sum(requests.values()), max(requests.values()))
                assert table.by_status() == {"delivered": count}, lane
                assert set(requests) == set(ids[lane])
                assert max(counts) < 10
