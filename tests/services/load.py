"""A lane under load on a database server of its own: a producer, a slow receiver, a daemon with documented rights."""

import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outboxd.config.schema import Config
from outboxd.errors import StoreError
from outboxd.store import connect
from outboxd.store.statements import NOW
from tests.services.chaos import SEED
from tests.services.daemon import LANE, Daemon, write_config
from tests.services.find import program, require
from tests.services.grants import grants
from tests.services.lanes import Table, event, table_of
from tests.services.mariadb import PrivateServer, execute, start_mariadb
from tests.services.receiver import Receiver
from tests.services.slow_receiver import SlowReceiver
from tests.services.wait import wait_for

WORKERS = 2
PUBLISH_TIMEOUT_S = 1.0
BATCH = 50
SETTINGS: dict[str, Any] = {"concurrency": WORKERS, "batch_size": BATCH, "publish_timeout": "1s", "lease": "5s"}
"""The shortest lease that its time-out allows, so that an outage of some seconds outlives it."""
LIMITS = {"statement_timeout": "2s", "connect_timeout": "1s"}
DATABASE = "app"
DRAINED_S = 60.0

SERVER: dict[str, str | int] = {"innodb_flush_log_at_trx_commit": 2, "innodb_log_file_size": "16M"}
"""A commit survives every crash of the server, not one of the machine: that no test brings about."""


@contextmanager
def own_server(
    directory: Path | None = None, environ: Mapping[str, str] | None = None, **options: str | int
) -> Iterator[PrivateServer]:
    """A server for one test, gone with its files afterwards. directory: an empty one, for its data."""
    require("private-mysql", program("mariadbd"), "there is no mariadbd to start")
    place = Path(tempfile.mkdtemp(prefix="outboxd-mariadb-", dir=directory))
    server = None
    try:
        server = start_mariadb(place / "server", None, environ, **{**SERVER, **options})
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(place)


class Producer:
    """Writes an event or two, again and again, each statement a transaction, until it is stopped; in a thread.

    `committed` holds the ids whose statement was answered. While the database is away or refuses, it tries again.
    session: statements for each new session, such as a time zone of its own.
    """

    def __init__(self, config: Config, pause_s: float = 0.01, session: tuple[str, ...] = ()) -> None:
        self.committed: list[str] = []
        self._config = config
        self._pause_s = pause_s
        self._session = session
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)

    def __enter__(self) -> "Producer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Nothing is written any more."""
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the producer is stuck"

    def more(self, count: int = 20, timeout_s: float = 20) -> None:
        """Wait until it has written so many more."""
        wanted = len(self.committed) + count
        wait_for(lambda: len(self.committed) >= wanted, timeout_s, "the producer to write")

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                connection = connect(self._config.database)
            except StoreError:
                self._stop.wait(0.1)
                continue
            try:
                for statement in self._session:
                    connection.execute(statement)
                self._write(Table(connection))
            except StoreError:  # away in the midst of it
                self._stop.wait(0.1)
            finally:
                connection.close()

    def _write(self, table: Table) -> None:
        while not self._stop.wait(self._pause_s):
            rows = [event() for _ in range(2)]
            table.insert(rows)
            self.committed += [str(row["event_id"]) for row in rows]


@dataclass(frozen=True, repr=False)
class Load:
    """What runs. config: an administrator's, root writes to a read-only server and is let in when it is full."""

    config: Config
    daemon: Daemon
    receiver: SlowReceiver
    producer: Producer

    def flows(self, count: int = 100, timeout_s: float = 20) -> None:
        """Wait until so many more events have arrived."""
        wanted = len(self.receiver.requests) + count
        self.daemon.wait_until(lambda: len(self.receiver.requests) >= wanted, f"{count} events to arrive", timeout_s)

    def are_back(self, timeout_s: float = 20) -> None:
        """Wait until every worker has said that its database is back."""
        lines = self.daemon.lines
        self.daemon.wait_until(lambda: len(lines("database_available")) >= WORKERS, "the workers", timeout_s)

    def finish(self) -> list[dict[str, object]]:
        """Stop the producer, let everything be delivered: G1, nothing is lost; all rows."""
        self.producer.stop()
        with table_of(self.config) as table:
            self.daemon.wait_until(table.is_done, "everything to be delivered", DRAINED_S)
            rows = table.rows()
        ids = {str(row["event_id"]) for row in rows}
        assert set(self.producer.committed) <= ids, "the database has lost what it had committed"
        assert {row["status"] for row in rows} == {"delivered"}
        assert set(self.receiver.event_ids()) == ids
        return rows

    def twice(self) -> dict[str, int]:
        """Event id -> how often it arrived, of those that arrived more than once."""
        return {name: count for name, count in Counter(self.receiver.event_ids()).items() if count > 1}

    def changes(self) -> dict[str, list[str]]:
        """Worker -> what it has said of the database, in order."""
        found: dict[str, list[str]] = {}
        for line in self.daemon.lines():
            if str(line["event"]).startswith("database_"):
                found.setdefault(line["worker"], []).append(line["event"].removeprefix("database_"))
        return found

    def drain(self) -> None:
        """End the daemon: no worker died of what happened, and it ends in time."""
        assert len(self.daemon.lines("worker_started")) == WORKERS
        self.daemon.drain(PUBLISH_TIMEOUT_S)


def each_said(*changes: str) -> dict[str, list[str]]:
    """Every worker said just this of its database."""
    return {f"{LANE}-{number:02d}": list(changes) for number in range(1, WORKERS + 1)}


def let_pass(time_s: float) -> None:
    """So long an outage lasts."""
    until_s = time.monotonic() + time_s
    wait_for(lambda: time.monotonic() >= until_s, time_s + 5, "time to pass")


def prepare(server: PrivateServer, directory: Path, name: str = "admin") -> Config:
    """A database with an empty lane, and the daemon's user with its documented rights; root's configuration."""
    execute(server.url, f"CREATE DATABASE IF NOT EXISTS {DATABASE}", "CREATE USER 'outboxd'@'%'")
    url = f"{server.url}/{DATABASE}"
    config = write_config(directory / f"{name}.yaml", url, {"nothing": {"type": "null"}}, database=LIMITS)
    with table_of(config):
        execute(server.url, *grants("outboxd", DATABASE))
    return config


def start_node(
    config: Config,
    directory: Path,
    receiver: Receiver,
    name: str = "node",
    environ: Mapping[str, str] | None = None,
    **worker: Any,
) -> Daemon:
    """A daemon of that name, with the documented rights; config: the administrator's."""
    url = config.database.url.replace("root@", "outboxd@")
    web = {"type": "http", "url": receiver.url, "connections": 8}
    settings = {**SETTINGS, **worker}
    path = directory / f"{name}.yaml"
    write_config(path, url, {"web": web}, database=LIMITS, node_id=name, **settings)
    return Daemon(path, directory / f"{name}.log", **(environ or {}))


@contextmanager
def under_load(
    config: Config,
    directory: Path,
    backlog: int = 0,
    environ: Mapping[str, str] | None = None,
    session: tuple[str, ...] = (),
    **worker: Any,
) -> Iterator[Load]:
    """Events flow: some are there, more come, each takes the receiver up to 50 ms. environ: the daemon's; session: the
    producer's.
    """
    receiver = SlowReceiver(SEED, 0.05)
    with receiver, Producer(config, session=session) as producer:
        with table_of(config) as table:
            table.fill(backlog)
        with start_node(config, directory, receiver, environ=environ, **worker) as daemon:
            load = Load(config, daemon, receiver, producer)
            load.flows()
            daemon.workers(WORKERS)
            yield load


def leases_ms(table: Table) -> dict[str, int]:
    """Worker -> how long the lease of something that it holds still lasts, by the database's clock."""
    now = NOW[table.connection.dialect]
    held = f"FROM {table.name} WHERE status = 'delivering' GROUP BY worker_id"
    sql = f"SELECT worker_id, MIN(lock_until_ms - {now}) {held}"
    return {str(worker): int(left_ms) for worker, left_ms in table.connection.query(sql)}
