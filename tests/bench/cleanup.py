"""Two million old rows are deleted while producers insert 500 a second and workers relay: what an INSERT then takes.

Once by the cleanup of a lane that opted in, once by `prune` beside a lane that did not. Before each, the same inserts
without anything to delete: the 99th percentiles of one run are compared.
"""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import MySQLdb

from outboxd.config.load import parse
from outboxd.config.schema import Config
from outboxd.store import connect as connect_store
from outboxd.store.prune import prune
from tests.bench import lane
from tests.bench.measure import cpu_s
from tests.services.mariadb import PrivateServer, connect
from tests.services.wait import let_pass, wait_for

GOALS = {
    "cleanup_insert_p99": ("<=", 2.0),
    "cleanup_s": ("<=", 600.0),
    "cleanup_insert_errors": ("<=", 0.0),
    "prune_insert_p99": ("<=", 2.0),
    "prune_s": ("<=", 600.0),
    "prune_insert_errors": ("<=", 0.0),
}
RATE = 500
CONNECTIONS = 4
LIMIT_S = 600.0
INSERT = "INSERT INTO room_outbox (event_id, event_type, room_id, envelope) VALUES (%s, 'RoomChanged', 'room-1', %s)"
CONFIG = """
node_id: bench
database: {{url: "{url}"}}
admin: {{listen: "", socket: "{socket}"}}
outbox_worker: {{direct: [nothing], concurrency: {workers}, batch_size: 100}}
lanes: {{room_outbox: {{{cleanup}}}}}
publishers: {{nothing: {{type: "null"}}}}
log: {{level: warning, format: console}}
"""
CLEANUP = "cleanup_interval: 5s, cleanup_terminal_after: 1h, cleanup_active_after: 1h, cleanup_batch_size: 50000"


def measure(server: PrivateServer, url: str, workers: int, rows: int, inserts: int) -> dict[str, float]:
    """…_insert_p99: beside the deletion over without. …_s: how long that took. …_insert_errors: those that failed."""
    report: dict[str, float] = {}
    for name, cleanup in (("cleanup", CLEANUP), ("prune", "")):
        report |= _compare(server, _settings(url, workers, cleanup), name, rows, inserts)
    return report


def _settings(url: str, workers: int, cleanup: str) -> Config:
    text = CONFIG.format(url=url, workers=workers, cleanup=cleanup, socket=lane.SOCKET)
    return parse(text, {}, "the benchmark's configuration")


def _compare(server: PrivateServer, settings: Config, name: str, rows: int, inserts: int) -> dict[str, float]:
    url = settings.database.url
    lane.make(settings)
    lane.fill(url, rows, {"status": "'delivered'", "delivered_at_ms": "1"})
    lane.calm_down(url, 600)
    with lane.daemon(_settings(url, settings.lanes["room_outbox"].concurrency, "")):
        let_pass(2.0)
        with producing(url, "quiet", inserts) as quiet:
            pass
    with lane.daemon(settings):
        start_s = time.monotonic()
        with producing(url, "beside", inserts) as beside:
            if name == "cleanup":
                wait_for(lambda: not _old_left(url), LIMIT_S, "the old rows to be deleted")
            else:
                _prune(settings)
            took_s = time.monotonic() - start_s
    print(f"{name}: without {_shown(quiet[0])}; beside {_shown(beside[0])}; {rows / took_s:,.0f} rows/s", flush=True)
    print(f"database: {cpu_s(server.pid):.0f} s of processor time so far", flush=True)
    return {
        f"{name}_quiet_p99_ms": p99(quiet[0].took_ms),
        f"{name}_beside_p99_ms": p99(beside[0].took_ms),
        f"{name}_insert_p99": p99(beside[0].took_ms) / p99(quiet[0].took_ms),
        f"{name}_s": took_s,
        f"{name}_insert_errors": float(len(quiet[0].errors) + len(beside[0].errors)),
    }


class Inserts(msgspec.Struct):
    """took_ms: each one's time, ascending. errors: of those that failed."""

    took_ms: list[float]
    errors: list[str]


@contextmanager
def producing(url: str, prefix: str, least: int) -> Iterator[list[Inserts]]:
    """A process whose connections insert RATE events a second, until this ends and there are `least` of them."""
    found: list[Inserts] = []
    with tempfile.TemporaryDirectory() as folder:
        ended, result = Path(folder, "ended"), Path(folder, "result")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                result.write_bytes(msgspec.json.encode(_insert(url, prefix, least, ended)))
                code = 0
            finally:
                os._exit(code)
        try:
            yield found
        finally:
            ended.touch()
            os.waitpid(pid, 0)
            found.append(msgspec.json.decode(result.read_bytes(), type=Inserts))


def _insert(url: str, prefix: str, least: int, ended: Path) -> Inserts:
    took_ms: list[float] = []
    errors: list[str] = []
    start_s = time.monotonic()

    def work(first: int) -> None:
        with closing(connect(url)) as connection:
            cursor = connection.cursor()
            number = first
            while number < least or not ended.exists():
                time.sleep(max(0.0, start_s + number / RATE - time.monotonic()))
                before_s = time.monotonic()
                try:
                    cursor.execute(INSERT, (f"{prefix}-{number}", lane.ENVELOPE))
                except MySQLdb.Error as error:
                    errors.append(str(error))
                took_ms.append((time.monotonic() - before_s) * 1000)
                number += CONNECTIONS

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Inserts(sorted(took_ms), errors)


def _prune(settings: Config) -> None:
    connection = connect_store(settings.database)
    try:
        pruned = prune(connection, settings.lanes["room_outbox"], 3600.0)
        print(f"prune: {pruned}", flush=True)
    finally:
        connection.close()


def _old_left(url: str) -> bool:
    let_pass(0.5)
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT created_at_ms FROM room_outbox ORDER BY id LIMIT 1")
        return bool(cursor.fetchone()[0] == 1)


def p99(took_ms: list[float]) -> float:
    """Of those that ascend."""
    return took_ms[len(took_ms) * 99 // 100]


def _shown(inserts: Inserts) -> str:
    took = inserts.took_ms
    return f"{len(took):,} INSERTs p50 {took[len(took) // 2]:.1f} p99 {p99(took):.1f} worst {took[-1]:.1f} ms"
