"""A soak at half of capacity over HTTP, with failures sprinkled in: nothing of the daemon may grow, nothing be lost.

What is sampled: proportional memory, open files and threads of all of the daemon's processes together, and the metric
series that it shows. Flat means: the median of the last fifth of the time against that of the second fifth (the first
one fills caches and buckets) has grown by 5 % at the most in memory, by 10 % in files (sockets come and go with
failures), and threads and series not at all.
"""

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from outboxd.config.schema import Config
from tests.bench import lane
from tests.bench.faulty import faulty_receiver
from tests.bench.measure import proportional_mib
from tests.services.admin import Client
from tests.services.mariadb import connect
from tests.services.processes import descendants_of, descriptors_of
from tests.services.wait import wait_for

GOALS = {
    "soak_memory": ("<=", 1.05),
    "soak_descriptors": ("<=", 1.1),
    "soak_threads": ("<=", 1.0),
    "soak_series": ("<=", 1.0),
    "soak_undelivered": ("<=", 0.0),
}
TABLE = "room_outbox"
CAPACITY_EVENTS = 30_000
SAMPLES = 240
PART_S = 0.1
"""The producer's commits are so far apart."""
LAST_S = 180.0
"""After the producer's end: the backlog, and what is being tried again."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The daemon at one moment: all of its processes."""

    memory_mib: float
    descriptors: int
    threads: int
    series: int


class Producer(threading.Thread):
    """Commits a steady number of events a second until it is told to stop."""

    def __init__(self, url: str, rate: float) -> None:
        super().__init__(name="producer", daemon=True)
        self._url = url
        self._rate = rate
        self._ends = threading.Event()
        self.written = 0

    def run(self) -> None:
        """Each part has what the clock says is owed, so that a slow moment is made up for."""
        start_s = time.monotonic()
        with closing(connect(self._url)) as connection:
            cursor = connection.cursor()
            while not self._ends.wait(PART_S):
                until = int((time.monotonic() - start_s) * self._rate)
                if until > self.written:
                    cursor.execute(
                        f"INSERT INTO {TABLE} (event_id, event_type, room_id, envelope) SELECT CONCAT('soak', seq), "
                        f"'RoomChanged', CONCAT('room-', MOD(seq, 1000)), %s FROM seq_{self.written + 1}_to_{until}",
                        (lane.ENVELOPE,),
                    )
                    self.written = until

    def end(self) -> None:
        """Nothing more is written."""
        self._ends.set()
        self.join(30)


def measure(url: str, minutes: float, workers: int) -> dict[str, float]:
    """What has become of the daemon's size, and how many events were not delivered at the end."""
    directory = Path(tempfile.mkdtemp(prefix="outboxd-bench-soak-"))
    try:
        with faulty_receiver(directory) as receiver:
            settings = lane.config(url, "webhook", receiver, workers, log_level="error")
            capacity = _capacity(settings)
            print(f"soak: capacity {capacity:,.0f}/s", flush=True)
            return {"soak_capacity_per_s": capacity, **_soak(settings, capacity / 2, minutes * 60)}
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _capacity(settings: Config) -> float:
    """Events per second of a backlog, up to the point where only those are left that are tried again."""
    url = settings.database.url
    lane.make(settings)
    lane.fill(url, CAPACITY_EVENTS)
    with lane.daemon(settings):
        wait_for(lambda: _delivered(url) > 0, 60, "the first event to be delivered")
        start_s, first = time.monotonic(), _delivered(url)
        wanted = int(0.95 * CAPACITY_EVENTS)
        wait_for(lambda: _delivered(url) >= wanted, 600, "the events to be delivered")
        return (wanted - first) / (time.monotonic() - start_s)


def _soak(settings: Config, rate: float, duration_s: float) -> dict[str, float]:
    url = settings.database.url
    lane.make(settings)
    with lane.daemon(settings) as supervisor:
        client = Client(Path(lane.SOCKET))
        wait_for(lambda: Path(lane.SOCKET).exists() and client.get("/healthz").status == 200, 20, "the admin role")
        producer = Producer(url, rate)
        producer.start()
        samples = _sampled(supervisor, client, duration_s)
        producer.end()
        ends_s = time.monotonic() + LAST_S
        while _count(url, "FORCE INDEX (due) WHERE due_at_ms >= 0") and time.monotonic() < ends_s:
            time.sleep(0.5)
        undelivered = producer.written - _delivered(url)
        tried_again = _count(url, "WHERE next_retry_at_ms > 0")
    assert tried_again, "no failure was met: the soak has shown nothing"
    print(f"soak: {producer.written:,} events at {rate:,.0f}/s, {tried_again:,} of them tried again", flush=True)
    return {**_growth(samples), "soak_per_s": rate, "soak_undelivered": float(undelivered)}


def _sampled(supervisor: int, client: Client, duration_s: float) -> list[Sample]:
    start_s, samples = time.monotonic(), list[Sample]()
    while (passed_s := time.monotonic() - start_s) < duration_s:
        time.sleep(max(0.0, len(samples) * duration_s / SAMPLES - passed_s))
        samples.append(_sample(supervisor, client))
        if len(samples) % (SAMPLES // 10) == 1:
            print(f"soak: after {time.monotonic() - start_s:,.0f} s: {samples[-1]}", flush=True)
    return samples


def _sample(supervisor: int, client: Client) -> Sample:
    pids = [supervisor, *descendants_of(supervisor)]
    text = client.get("/metrics").body.decode()
    return Sample(
        memory_mib=sum(proportional_mib(pids)),
        descriptors=sum(len(descriptors_of(pid)) for pid in pids),
        threads=sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in pids),
        series=sum(bool(line) and not line.startswith("#") for line in text.splitlines()),
    )


def _growth(samples: Sequence[Sample]) -> dict[str, float]:
    fifth = len(samples) // 5
    early, late = samples[fifth : 2 * fifth], samples[-fifth:]
    sizes: Mapping[str, tuple[list[float], list[float]]] = {
        "memory": ([one.memory_mib for one in early], [one.memory_mib for one in late]),
        "descriptors": ([one.descriptors for one in early], [one.descriptors for one in late]),
        "threads": ([one.threads for one in early], [one.threads for one in late]),
        "series": ([one.series for one in early], [one.series for one in late]),
    }
    report: dict[str, float] = {}
    for name, (before, after) in sizes.items():
        report[f"soak_{name}_at_end"] = statistics.median(after)
        report[f"soak_{name}"] = statistics.median(after) / statistics.median(before)
    return report


def _delivered(url: str) -> int:
    return _count(url, "FORCE INDEX (due) WHERE due_at_ms = -1")


def _count(url: str, condition: str) -> int:
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT COUNT(*) FROM {TABLE} {condition}")
        return int(cursor.fetchone()[0])
