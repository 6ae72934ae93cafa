"""The daemon over a database whose network a test breaks: a proxy, a receiver, load, and what must hold."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.services.chaos import SEED
from tests.services.daemon import Daemon, write_config
from tests.services.lanes import Table, table_of
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


@dataclass
class Wired:
    """Everything of one test. table: the lane's, past the proxy. ids: of the events written so far."""

    proxy: Proxy
    receiver: SlowReceiver
    table: Table
    daemon: Daemon
    ids: list[str] = field(default_factory=list)

    def fill(self, count: int, **columns: object) -> None:
        """Write so many events."""
        self.ids += self.table.fill(count, **columns)

    def wait_for_requests(self, count: int) -> None:
        """Until so many more have come."""
        wanted = len(self.receiver.requests) + count
        self.daemon.wait_until(lambda: len(self.receiver.requests) >= wanted, f"{count} more requests")

    def pass_time(self, seconds: float) -> None:
        """Let the daemon go on as it is."""
        until_s = time.monotonic() + seconds
        self.daemon.wait_until(lambda: time.monotonic() >= until_s, "the time to pass")

    def wait_for_end(self, timeout_s: float = 40) -> None:
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

    def check(self, outages: int | None = None) -> None:
        """Every event has come to its end and was published once, no attempt was counted, no worker was restarted,
        nothing else was lost or late, and each change of state has one line; outages: per worker, if the test knows."""
        daemon = self.daemon
        self.wait_until_back()
        self.wait_for_end()
        rows = self.table.rows()
        assert {(row["status"], row["retry_count"]) for row in rows} == {("delivered", 0)}
        assert Counter(self.receiver.event_ids()) == Counter(self.ids)
        assert len(daemon.lines("worker_started")) == WORKERS
        if outages is not None:
            found = Counter(line["worker"] for line in daemon.lines("database_unavailable"))
            assert found == Counter(dict.fromkeys(daemon.workers(), outages))
        assert {line["event"] for line in daemon.lines() if line["level"] != "info"} <= {"database_unavailable"}


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
                yield Wired(proxy, receiver, table, daemon, ids)
