"""Whom a failure is blamed on, under load: receivers that fail at random, poison among good events, a broken parser."""

import itertools
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.services.chaos import SEED, scaled
from tests.services.daemon import Daemon, write_config
from tests.services.lanes import Table, event, lanes_of, table_of
from tests.services.receiver import Receiver
from tests.services.receiver_answers import DEFAULT, Behaviour

SHORT: dict[str, Any] = {"publish_timeout": "300ms", "lease": "2900ms"}
PROBES: dict[str, object] = {"initial_probe": "20ms", "max_probe": "100ms"}
ERROR = Behaviour(status=500)

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


def test_a_receiver_that_fails_at_random_loses_nobody(mysql_url: str, tmp_path: Path) -> None:
    """G6: with 30, 50 and 70 % of 500s, with half of all requests hanging or reset: none dies of it."""
    with ExitStack() as stack:
        receivers = {lane: stack.enter_context(flaky(*how)) for lane, how in FLAKY.items()}
        config = write_config(
            tmp_path / "outbox.yaml",
            mysql_url,
            {lane: {"type": "http", "url": receiver.url, "breaker": PROBES} for lane, receiver in receivers.items()},
            lanes={lane: {"direct": [lane]} for lane in receivers},
            concurrency=scaled(2, 1), max_retry_count=10, initial_backoff="20ms", max_backoff="200ms", **SHORT,
        )  # fmt: skip
        tables = stack.enter_context(lanes_of(config))
        ids = {lane: table.fill(scaled(5000, 500 if lane == "lane_half" else 100)) for lane, table in tables.items()}
        with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            daemon.wait_until(
                lambda: all(table.is_done() for table in tables.values()), "the end", timeout_s=scaled(300, 60)
            )
        for lane, table in tables.items():
            counts = Counter(int(str(row["retry_count"])) for row in table.rows())
            requests = Counter(receivers[lane].event_ids())
            print(f"{lane}: attempts counted {sorted(counts.items())}, made at most {max(requests.values())}")
            assert table.by_status() == {"delivered": len(ids[lane])}, lane
            assert set(requests) == set(ids[lane])


def test_a_lone_poisonous_event_ends_and_opens_nothing(database_url: str, tmp_path: Path) -> None:
    """G7: on a lane where nothing else happens, whether an event has ever been accepted there or not."""
    with Receiver() as receiver, ExitStack() as stack:
        config = write_config(
            tmp_path / "outbox.yaml",
            database_url,
            {"web": {"type": "http", "url": receiver.url, "breaker": PROBES}},
            lanes={"lane_new": {}, "lane_used": {}},
            concurrency=1, max_retry_count=4, initial_backoff="20ms", max_backoff="100ms", **SHORT,
        )  # fmt: skip
        tables = stack.enter_context(lanes_of(config))
        tables["lane_used"].fill(1)
        with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            daemon.wait_until(tables["lane_used"].is_done, "the first event")
            receiver.choose(lambda request: ERROR if request.event_id.startswith("poison") else DEFAULT)
            for lane, table in tables.items():
                table.insert([event(event_id=f"poison-{lane}")])
                daemon.wait_until(table.is_done, "the poison to end")
            daemon.drain(0.3)
            assert daemon.lines("breaker_opened") == []
        for lane, table in tables.items():
            row = table.row(f"poison-{lane}")
            assert (row["status"], row["retry_count"], row["last_error"]) == ("failed", 4, "HTTP 500")
        attempts = Counter(receiver.event_ids())
        # The first publish of a process is a lone probe, which costs nobody an attempt.
        assert (attempts["poison-lane_used"], attempts["poison-lane_new"]) == (4, 5)


def test_poison_among_good_events_ends_without_holding_them_up(mysql_url: str, tmp_path: Path) -> None:
    """G7: a part of all events is always answered with 500, under a steady load: those are dead after their attempts,
    all others arrive at their usual pace."""
    with Receiver(keep_bodies=False) as receiver:
        receiver.choose(lambda request: ERROR if request.event_id.startswith("poison") else DEFAULT)
        config = write_config(
            tmp_path / "outbox.yaml",
            mysql_url,
            {"web": {"type": "http", "url": receiver.url}},
            concurrency=1, max_retry_count=2, initial_backoff="200ms", max_backoff=f"{scaled(10, 3)}s", **SHORT,
        )  # fmt: skip
        with table_of(config) as table, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            table.fill(20)
            daemon.wait_until(table.is_done, "the first events")
            stream = Stream(table, receiver, daemon)
            usual_s = stream.flow(scaled(10, 1), poison_every=0)
            mixed_s = stream.flow(scaled(30, 2), poison_every=scaled(20, 10))
            is_alive = "event_id LIKE 'poison%' AND status <> 'failed'"
            for _ in range(scaled(150, 30)):
                if not table.rows(is_alive):
                    break
                stream.flow(1, poison_every=0)
            poison = table.rows("event_id LIKE 'poison%'")
            opened = len(daemon.lines("breaker_opened"))
        attempts = Counter(i for i in receiver.event_ids() if i.startswith("poison"))
        most = max(attempts.values())
        print(f"usual {usual_s:.3f} s, mixed {mixed_s:.3f} s, {len(poison)} bad, tried {most} times, opened {opened}")
        assert {(row["status"], row["retry_count"]) for row in poison} == {("failed", 2)}
        assert mixed_s < 3 * usual_s + 0.5, "poison holds up the good events"
        assert opened <= scaled(4, 1)


@dataclass
class Stream:
    """A steady load on a table."""

    table: Table
    receiver: Receiver
    daemon: Daemon
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def flow(self, lasting_s: float, poison_every: int) -> float:
        """Insert ten events at a time for so long, one in so many is poison (0: none); the median of how long the
        good ones took to arrive."""
        sent_s: dict[str, float] = {}
        until_s = time.monotonic() + lasting_s

        def more() -> bool:
            numbers = [next(self.numbers) for _ in range(10)]
            kinds = {n: "poison" if poison_every and n % poison_every == 0 else "good" for n in numbers}
            now_s = time.monotonic()
            self.table.insert([event(event_id=f"{kinds[n]}-{n}") for n in numbers])
            sent_s.update({f"good-{n}": now_s for n in numbers if kinds[n] == "good"})
            return now_s > until_s

        self.daemon.wait_until(more, "the end of the load", timeout_s=2 * lasting_s + 30)
        self.daemon.wait_until(lambda: sent_s.keys() <= set(self.receiver.event_ids()), "the good ones", timeout_s=60)
        arrived = {request.event_id: request.received_s for request in self.receiver.requests}
        return statistics.median(arrived[event_id] - since_s for event_id, since_s in sent_s.items())


def test_a_broken_parser_buries_few(mysql_url: str, tmp_path: Path) -> None:
    """G6: a receiver that refuses everything with 400 makes at most `dead_brake` dead letters in each process; once it
    is repaired everything else arrives."""
    brake, workers, starts = 5, 2, scaled(8, 3)
    count = starts * workers * brake + 300
    with Receiver(keep_bodies=False) as receiver:
        config = write_config(
            tmp_path / "outbox.yaml",
            mysql_url,
            {"web": {"type": "http", "url": receiver.url, "breaker": {**PROBES, "dead_brake": brake}}},
            concurrency=workers, initial_backoff="50ms", max_backoff="500ms", **SHORT,
        )  # fmt: skip
        receiver.answer(status=400)
        with table_of(config) as table:
            ids = table.fill(count)
            for number in range(1, starts + 1):
                with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                    daemon.wait_for("breaker_opened", workers)
                    probed = len(receiver.requests) + 5 * workers
                    daemon.wait_until(lambda n=probed: len(receiver.requests) >= n, "probes")  # type: ignore[misc]
                    daemon.drain(0.3)
                buried = table.by_status()["failed"]
                print(f"{buried} buried after {number} starts")
                assert buried <= number * workers * brake
            receiver.rules.clear()
            receiver.requests.clear()
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                daemon.wait_until(table.is_done, "everything else to be delivered")
            assert table.by_status() == {"delivered": count - buried, "failed": buried}
            dead = {str(row["event_id"]) for row in table.rows("status = 'failed'")}
            assert Counter(receiver.event_ids()) == Counter(set(ids) - dead)
