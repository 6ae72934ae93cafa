"""The daemon over a database whose network a test breaks: a proxy, a receiver, load, and what must hold."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.services.chaos import SEED, scaled
from tests.services.daemon import Daemon, write_config
from tests.services.lanes import Row, Table, table_of
from tests.services.proxy import Proxy
from tests.services.slow_receiver import SlowReceiver

WORKERS = 2
STATEMENT_TIMEOUT_S = 1.0
LONGEST_ANSWER_S = 0.05

SETTINGS: dict[str, object] = {
    "concurrency": WORKERS,
    "batch_size": 20,
    "publish_timeout": "1s",
    "lease": "60s",  # longer than any outage here
    "database": {"connect_timeout": "1s", "statement_timeout": f"{STATEMENT_TIMEOUT_S}s"},
}
SETTLE = "SET status = 'delivered'"
"""The statement of the usual settle, and with `within` its transaction."""
CLAIM = "SET status = 'delivering'"
TOLD = ("supervisor_started", "worker_started", "admin_listens", "database_unavailable", "database_available")


@dataclass
class Wired:
    """Everything of one test. table: the lane's, past the proxy. ids: of the events written so far, each as often as it
    is to arrive. counted: by their ids, the attempts of those that failed or whose lease ran out."""

    proxy: Proxy
    receiver: SlowReceiver
    table: Table
    daemon: Daemon
    ids: list[str]
    workers: int
    counted: dict[str, int] = field(default_factory=dict)

    def fill(self, count: int, **columns: object) -> None:
        """Write so many events."""
        self.ids += self.table.fill(count, **columns)

    def insert(self, rows: Sequence[Row]) -> None:
        """Write events."""
        self.table.insert(rows)
        self.ids += [str(row["event_id"]) for row in rows]

    def fail_once(self, rows: Sequence[Row], counted: bool, **answer: Any) -> None:
        """Write events whose first publish the receiver answers so; each arrives twice. counted: it is an attempt."""
        ids = [str(row["event_id"]) for row in rows]
        for event_id in ids:
            self.receiver.answer(event_id=event_id, times=1, **answer)
        self.insert(rows)
        self.ids += ids
        self.counted |= dict.fromkeys(ids, int(counted))

    def lose(self, lock_until_ms: int) -> str:
        """Write an event that somebody has claimed who is no more; its id."""
        self.fill(1, status="delivering", claim_token=7, lock_until_ms=lock_until_ms)
        self.counted[self.ids[-1]] = 1
        return self.ids[-1]

    def wait_for_requests(self, count: int) -> None:
        """Until so many more have come."""
        wanted = len(self.receiver.requests) + count
        self.daemon.wait_until(lambda: len(self.receiver.requests) >= wanted, f"{count} more requests")

    def pass_time(self, seconds: float) -> None:
        """Let the daemon go on as it is."""
        until_s = time.monotonic() + seconds
        self.daemon.wait_until(lambda: time.monotonic() >= until_s, "the time to pass")

    def wait_for_end(self, timeout_s: float = scaled(240, 40)) -> None:
        """Until every event is delivered or failed."""
        self.daemon.wait_until(self.table.is_done, "everything to be delivered", timeout_s)

    def wait_until_back(self) -> None:
        """Until every outage that was told has had its end told."""

        def is_back() -> bool:
            if len(self.daemon.lines("database_unavailable")) == len(self.daemon.lines("database_available")):
                return True
            self.fill(1)  # a worker that is back says so when it has written something
            return False

        self.daemon.wait_until(is_back, "as many ends of outages as beginnings")

    def check(self, outages: int | None = None, told: Collection[str] = ()) -> None:
        """Every event has come to its end and was published once, no attempt was counted that was not made, no worker
        was restarted, and each change of state has one line; outages: per worker, if the test knows. told: events of
        the log that there may be beside them, warnings too."""
        daemon = self.daemon
        self.wait_until_back()
        self.wait_for_end()
        rows = {str(row["event_id"]): row for row in self.table.rows()}
        assert {row["status"] for row in rows.values()} == {"delivered"}, self.table.by_status()
        wrong = {i: row["retry_count"] for i, row in rows.items() if row["retry_count"] != self.counted.get(i, 0)}
        assert (wrong, rows.keys() - set(self.ids), set(self.ids) - rows.keys()) == ({}, set(), set()), wrong
        wanted, arrived = Counter(self.ids), Counter(self.receiver.event_ids())
        assert arrived == wanted, f"too often: {arrived - wanted}, not often enough: {wanted - arrived}"
        assert Counter(line["worker"] for line in daemon.lines("worker_started")) == Counter(list(daemon.workers()))
        if outages is not None:
            found = Counter(line["worker"] for line in daemon.lines("database_unavailable"))
            assert found == Counter(dict.fromkeys(daemon.workers(self.workers), outages)), found
        unexpected = [line for line in daemon.lines() if line["event"] not in {*TOLD, *told}]
        assert unexpected == [], unexpected


@contextmanager
def wired(
    url: str,
    tmp_path: Path,
    events: int,
    before: Callable[[Proxy], object] = lambda _: None,
    **worker: object,
) -> Iterator[Wired]:
    """The daemon at work through a proxy, with so many events. before: of its start; worker: settings that differ from
    SETTINGS."""
    receiver = SlowReceiver(SEED, LONGEST_ANSWER_S)
    with Proxy(url) as proxy, receiver:
        web = {"web": {"type": "http", "url": receiver.url, "connections": 8}}
        settings = {**SETTINGS, **worker}
        write_config(tmp_path / "outbox.yaml", proxy.url, web, **settings)  # type: ignore[arg-type]
        with table_of(write_config(tmp_path / "direct.yaml", url, web)) as table:
            ids = table.fill(events)
            before(proxy)
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                yield Wired(proxy, receiver, table, daemon, ids, int(str(settings["concurrency"])))
