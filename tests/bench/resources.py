"""Memory of a worker under load, and what an idle one asks of the database."""

import os
import signal
import time
from contextlib import closing

from tests.bench import lane
from tests.bench.measure import proportional_mib, statements, workers_of
from tests.services.mariadb import PrivateServer, connect
from tests.services.wait import wait_for

IDLE_S = 10.0


def measure(server: PrivateServer, url: str, receiver: str, workers: int) -> dict[str, float]:
    """The largest worker's proportional memory while it relays over HTTP; statements a second of an idle one."""
    settings = lane.config(url, "webhook", receiver, workers)
    lane.make(settings)
    lane.fill(url, 60_000)
    supervisor = lane.start(settings)
    try:
        largest = 0.0

        def done() -> bool:
            nonlocal largest
            largest = max(largest, *proportional_mib(workers_of(supervisor)), 0.0)
            return _delivered(url) >= 60_000

        wait_for(done, 120, "the events to be delivered")
        time.sleep(3)  # the last sweeps over what was just relayed
        before, start_s = statements(server.url), time.perf_counter()
        time.sleep(IDLE_S)
        asked, took_s = statements(server.url) - before - 1, time.perf_counter() - start_s
    finally:
        os.kill(supervisor, signal.SIGTERM)
        os.waitpid(supervisor, 0)
    return {"worker_mib": largest, "idle_statements_per_s": asked / took_s / workers}


def _delivered(url: str) -> int:
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*) FROM room_outbox FORCE INDEX (due) WHERE due_at_ms = -1")
        return int(cursor.fetchone()[0])
