"""outboxd in front of a Redis server on the same machine, against the bare database loop of the same round."""

import shutil
import statistics
import tempfile
from pathlib import Path

from tests.bench import contestants, lane
from tests.bench.contestants import Run
from tests.services.mariadb import PrivateServer
from tests.services.redis_server import RedisServer, client, redis_binary


def relay(server: PrivateServer, url: str, redis_url: str, count: int, workers: int, batch: int) -> Run:
    """outboxd itself, every event acknowledged by the server."""
    more = f'  bus: {{type: redis_streams, url: "{redis_url}"}}'
    return contestants.relay(server, lane.config(url, "bus", workers=workers, batch=batch, more=more), count)


def compare(server: PrivateServer, url: str, count: int, rounds: int, workers: int, batch: int) -> dict[str, float]:
    """Events per second, the CPU that the relay spends on one, and the median of its ratios to the bare loop. Redis
    keeps a log of what it writes, synced every second, as it does by default where it keeps one."""
    directory = Path(tempfile.mkdtemp(prefix="outboxd-bench-redis-"))
    bus = RedisServer(directory, redis_binary(), "--appendfsync", "everysec")
    bus.start()
    try:
        contestants.bare(server, url, count, workers, batch)  # warms the database up
        bare, runs = [], []
        for number in range(1, rounds + 1):
            bare.append(contestants.bare(server, url, count, workers, batch))
            runs.append(relay(server, url, bus.url, count, workers, batch))
            print(f"round {number}: bare {bare[-1].rate:,.0f}/s, redis {runs[-1].rate:,.0f}/s", flush=True)
        assert client(bus.url).xlen("room_outbox") >= count * rounds
    finally:
        bus.stop()
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "redis_per_s": statistics.median(run.rate for run in runs),
        "redis_relay_us": statistics.median(run.relay_us for run in runs),
        "redis_to_bare": statistics.median(ours.rate / theirs.rate for ours, theirs in zip(runs, bare, strict=True)),
    }
