"""From an event's creation to its receiver: rung, and by polling alone; and the first event of an idle relay.

The producer's clock is read before its INSERT, so that its commit counts; the receiver is a Redis stream, whose entries
bear the millisecond of their arrival. It is counted to its end: no figure is better than the truth.
"""

import os
import random
import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from outboxd.config.schema import Config
from outboxd.message import decode
from outboxd.producer import channel, ring
from tests.bench import lane
from tests.bench.contestants import in_child
from tests.bench.measure import cpu_s, statements, workers_of
from tests.services.mariadb import PrivateServer, connect
from tests.services.redis_server import RedisServer, client, redis_binary
from tests.services.wait import let_pass, wait_for

RATE = 500
"""Events a second, evenly."""
CONNECTIONS = 4
STREAM = "room_outbox"
FIRSTS = 20
INSERT = "INSERT INTO room_outbox (event_id, event_type, room_id, envelope) VALUES (%s, 'RoomChanged', %s, %s)"


def measure(server: PrivateServer, url: str, workers: int, duration_s: float) -> dict[str, float]:
    """Milliseconds: median and 99th percentile with doorbell and without; the first event of an idle relay; and what
    an event costs while they trickle in."""
    directory = Path(tempfile.mkdtemp(prefix="outboxd-bench-latency-"))
    bus = RedisServer(directory, redis_binary(), "--appendfsync", "everysec")
    bus.start()
    try:
        report = _flow(server, url, bus, workers, duration_s, rings=True)
        report |= _flow(server, url, bus, workers, duration_s, rings=False)
    finally:
        bus.stop()
        shutil.rmtree(directory, ignore_errors=True)
    return report


def _flow(
    server: PrivateServer, url: str, bus: RedisServer, workers: int, duration_s: float, rings: bool
) -> dict[str, float]:
    name, ring_at = ("rung", bus.url) if rings else ("polled", "")
    settings = _settings(url, bus.url, workers, rings)
    lane.make(settings)
    count = round(RATE * duration_s)
    with _relaying(settings, bus, ring_at) as supervisor:
        report = _firsts(url, bus, ring_at) if rings else {}
        asked, database_s, relay_s = statements(server.url), cpu_s(server.pid), _relay_s(supervisor)
        start_s = time.time() + 0.5
        in_child(lambda: produce(url, name, start_s, count, ring_at))
        await_all(bus, name, count)
        asked, database_s = statements(server.url) - asked - count, cpu_s(server.pid) - database_s
        relay_s = _relay_s(supervisor) - relay_s
    took = sorted(took_ms(bus, name))
    assert len(took) == count, f"{len(took)} of {count} events arrived once"
    late = sum(ms > 25 for ms in took)
    print(f"{name}: {quantiles(took)}, {late} later than 25 ms", flush=True)
    return report | {
        f"{name}_p50_ms": took[len(took) // 2],
        f"{name}_p99_ms": took[len(took) * 99 // 100],
        f"{name}_statements": asked / count,
        f"{name}_relay_us": relay_s / count * 1e6,
        f"{name}_database_us": database_s / count * 1e6,
    }


def _settings(url: str, redis_url: str, workers: int, rings: bool) -> Config:
    more = f'  bus: {{type: redis_streams, url: "{redis_url}", max_length: 0}}\n'
    return lane.config(url, "bus", workers=workers, batch=100, more=more + (f'redis: {{url: "{redis_url}"}}' * rings))


@contextmanager
def _relaying(settings: Config, bus: RedisServer, ring_at: str) -> Iterator[int]:
    """A daemon, all of whose workers are up; its supervisor's pid."""
    supervisor = lane.start(settings)
    try:
        with closing(client(bus.url)) as redis, closing(connect(settings.database.url)) as connection:
            redis.flushall()
            workers = settings.lanes["room_outbox"].concurrency
            wait_for(lambda: len(workers_of(supervisor)) == workers, 30, "the workers")
            if ring_at:
                wait_for(lambda: _listeners(redis) == workers, 30, "every worker to listen")
            insert(connection, "up")
            wait_for(lambda: redis.xlen(STREAM), 30, "the first event")
        let_pass(1.5)
        yield supervisor
    finally:
        os.kill(supervisor, signal.SIGTERM)
        os.waitpid(supervisor, 0)


def _listeners(redis: Any) -> int:
    return int(redis.pubsub_numsub(channel("room_outbox"))[0][1])


def insert(connection: Any, prefix: str) -> None:
    """The event's id tells when it was made."""
    cursor = connection.cursor()
    cursor.execute(INSERT, (f"{prefix}:{time.time_ns()}", f"room-{random.randrange(1000)}", lane.ENVELOPE))


def produce(url: str, prefix: str, start_s: float, count: int, ring_at: str) -> int:
    """Four connections take turns; one that is late does not wait any more."""

    def work(number: int) -> None:
        with closing(connect(url)) as connection:
            for i in range(number, count, CONNECTIONS):
                time.sleep(max(0.0, start_s + i / RATE - time.time()))
                insert(connection, prefix)
                if ring_at:
                    ring("room_outbox", ring_at)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


def _firsts(url: str, bus: RedisServer, ring_at: str) -> dict[str, float]:
    """One event, long after the last one; again and again."""
    with closing(connect(url)) as connection:
        for _ in range(FIRSTS):
            let_pass(random.uniform(0.3, 0.6))
            insert(connection, "first")
            ring("room_outbox", ring_at)
    await_all(bus, "first", FIRSTS)
    took = sorted(took_ms(bus, "first"))
    print(f"first of an idle relay: {quantiles(took)}", flush=True)
    return {"first_ms": statistics.median(took), "first_worst_ms": took[-1]}


def await_all(bus: RedisServer, prefix: str, count: int) -> None:
    with closing(client(bus.url)) as redis:
        wait_for(lambda: redis.xlen(STREAM) >= count, 30, f"{count} events")
        wait_for(lambda: len(took_ms(bus, prefix)) >= count, 30, f"{count} events of {prefix}")


def took_ms(bus: RedisServer, prefix: str) -> list[float]:
    with closing(client(bus.url)) as redis:
        entries: Any = redis.xrange(STREAM)
    took = []
    for entry_id, fields in entries:
        name, _, made_ns = decode(fields[b"m"]).event_id.partition(":")
        if name == prefix:
            took.append(int(entry_id.split(b"-")[0]) + 1 - int(made_ns) / 1e6)
    return took


def _relay_s(supervisor: int) -> float:
    return sum(cpu_s(pid) for pid in workers_of(supervisor))


def quantiles(took: list[float]) -> str:
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
    return ", ".join(f"{name} {took[int(len(took) * q)]:.1f}" for name, q in at.items()) + f", worst {took[-1]:.1f} ms"
