"""How long a scrape and /api/lanes take beside a large table, while nobody may wait for the database."""

import os
import signal
import statistics
import time
from pathlib import Path

from tests.bench import lane
from tests.services.admin import Client
from tests.services.mariadb import execute
from tests.services.wait import wait_for

TIMES = 20


def measure(url: str, pending: int) -> dict[str, float]:
    """Milliseconds of the slowest of some scrapes and of looks at the lanes, each as a new connection: 5 times as many
    delivered rows as pending ones, half as many failed ones. The lane is paused, so that it stays as it is.
    """
    settings = lane.config(url, "nothing")
    lane.make(settings)
    lane.fill(url, 5 * pending, {"status": "'delivered'", "delivered_at_ms": "1"}, "old")
    lane.fill(url, pending // 2, {"status": "'failed'", "last_error": "'refused'"}, "bad")
    lane.fill(url, pending, None, "new")
    execute(url, "UPDATE outboxd_lane SET paused = 1, paused_by = 'the benchmark'", "ANALYZE TABLE room_outbox")
    supervisor = lane.start(settings)
    try:
        client = Client(Path(lane.SOCKET))
        wait_for(lambda: Path(lane.SOCKET).exists() and client.get("/healthz").status == 200, 20, "the admin role")
        start_s = time.perf_counter()
        wait_for(lambda: b"outboxd_failed_events{" in client.get("/metrics").body, 60, "the first numbers")
        report = {"first_numbers_ms": (time.perf_counter() - start_s) * 1000}
        for name, target in (("scrape", "/metrics"), ("lanes", "/api/lanes")):
            taken = [_timed(client, target) for _ in range(TIMES)]
            report |= {f"{name}_ms": statistics.median(taken), f"{name}_slowest_ms": max(taken)}
    finally:
        os.kill(supervisor, signal.SIGTERM)
        os.waitpid(supervisor, 0)
    return report


def _timed(client: Client, target: str) -> float:
    time.sleep(0.7)  # so that the looks at the tables fall among them
    start_s = time.perf_counter()
    assert client.get(target).status == 200
    return (time.perf_counter() - start_s) * 1000
