"""A million stale display events are dropped beside the main lane, which gets 500 events a second: what that costs it.

Two lanes of one daemon, each with workers of its own, on one database. The main lane's receiver is a Redis stream, as
in latency.py. Runs without and with the stale events take turns; each pair of neighbours is compared.
"""

import os
import select
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from outboxd.config.load import parse
from outboxd.config.schema import Config
from tests.bench import lane, latency
from tests.bench.measure import cpu_s
from tests.services.mariadb import PrivateServer, connect, execute
from tests.services.redis_server import RedisServer, client, redis_binary
from tests.services.wait import let_pass, wait_for

ROBOTS = "room_robot_outbox"
CONFIG = """
node_id: bench
database: {{url: "{url}"}}
admin: {{listen: "", socket: "{socket}"}}
redis: {{url: "{redis}"}}
outbox_worker: {{concurrency: {workers}, batch_size: 100}}
lanes:
  room_outbox: {{direct: [bus]}}
  room_robot_outbox: {{direct: [nothing], stale_discard_after: 30s}}
publishers:
  nothing: {{type: "null"}}
  bus: {{type: redis_streams, url: "{redis}", max_length: 0}}
log: {{level: warning, format: console}}
"""


def measure(server: PrivateServer, url: str, workers: int, stale: int, rounds: int) -> dict[str, float]:
    """robot_p99: the main lane's 99th percentile with stale events to drop, over that without; stale_per_s."""
    directory = Path(tempfile.mkdtemp(prefix="outboxd-bench-robot-"))
    bus = RedisServer(directory, redis_binary(), "--appendfsync", "everysec")
    bus.start()
    try:
        settings = _settings(url, bus.url, workers)
        alone: list[list[float]] = []
        beside: list[list[float]] = []
        rates: list[float] = []
        for number in range(1, rounds + 1):
            took, rate = _run(server, settings, bus, stale)
            rates.append(rate)
            beside.append(took)
            alone.append(_run(server, settings, bus, 0, stale / rate)[0])
            print(f"robot {number}: alone {latency.quantiles(alone[-1])}", flush=True)
            print(f"robot {number}: beside {rate:,.0f} stale/s {latency.quantiles(beside[-1])}", flush=True)
    finally:
        bus.stop()
        shutil.rmtree(directory, ignore_errors=True)
    pairs = list(zip(alone, beside, strict=True))
    return {
        "robot_alone_p99_ms": statistics.median(_p99(took) for took in alone),
        "robot_beside_p99_ms": statistics.median(_p99(took) for took in beside),
        "robot_p99": statistics.median(_p99(with_them) / _p99(without) for without, with_them in pairs),
        "stale_per_s": statistics.median(rates),
    }


def _settings(url: str, redis_url: str, workers: int) -> Config:
    text = CONFIG.format(url=url, redis=redis_url, workers=workers, socket=lane.SOCKET)
    return parse(text, {}, "the benchmark's configuration")


def _p99(took: list[float]) -> float:
    return took[len(took) * 99 // 100]


def _run(
    server: PrivateServer, settings: Config, bus: RedisServer, stale: int, lasts_s: float = 0.0
) -> tuple[list[float], float]:
    """Milliseconds from creation to delivery on the main lane, ascending, while so many stale events are dropped, or
    for lasts_s; and how many were dropped a second."""
    url = settings.database.url
    lane.make(settings)
    if stale:
        lane.fill(url, stale, table=ROBOTS)
        execute(url, f"UPDATE outboxd_lane SET paused = 1 WHERE lane = '{ROBOTS}'")
        lane.calm_down(url)
    with _relaying(settings, bus):
        start_s, before_s = time.monotonic(), cpu_s(server.pid)
        execute(url, f"UPDATE outboxd_lane SET paused = 0 WHERE lane = '{ROBOTS}'")
        with producing(url, "robot", bus.url) as count:
            if stale:
                wait_for(lambda: not _stale_left(url), 900, "the stale events to be dropped")
            else:
                let_pass(lasts_s)
            took_s = time.monotonic() - start_s
        print(f"database: {(cpu_s(server.pid) - before_s) / took_s:.2f} cores for {took_s:.0f} s", flush=True)
        latency.await_all(bus, "robot", count[0])
    return sorted(latency.took_ms(bus, "robot")), stale / took_s


@contextmanager
def _relaying(settings: Config, bus: RedisServer) -> Iterator[None]:
    with lane.daemon(settings, "room_outbox", ROBOTS), closing(client(bus.url)) as redis:
        redis.flushall()
        with closing(connect(settings.database.url)) as connection:
            latency.insert(connection, "up")
            wait_for(lambda: redis.xlen(latency.STREAM), 30, "the first event")
        let_pass(1.5)
        yield


def _stale_left(url: str) -> bool:
    let_pass(0.5)
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {ROBOTS} ORDER BY id DESC LIMIT 1)")
        return bool(cursor.fetchone()[0])


@contextmanager
def producing(url: str, prefix: str, ring_at: str) -> Iterator[list[int]]:
    """A process that adds so many events a second until this ends; then the list says how many those were."""
    count: list[int] = []
    ask_read, ask_write = os.pipe()
    tell_read, tell_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ask_write)
        made = 0
        while not select.select([ask_read], [], [], 0)[0]:
            latency.produce(url, prefix, time.time(), latency.RATE, ring_at)
            made += latency.RATE
        os.write(tell_write, str(made).encode())
        os._exit(0)
    os.close(ask_read)
    os.close(tell_write)
    try:
        yield count
    finally:
        os.close(ask_write)
        count.append(int(os.read(tell_read, 20)))
        os.close(tell_read)
        os.waitpid(pid, 0)
