"""outboxd in front of a Kafka broker on the same machine, against the bare database loop of the same round."""

import shutil
import statistics
import tempfile
from pathlib import Path

from tests.bench import contestants, lane
from tests.bench.contestants import Run
from tests.services.find import program
from tests.services.kafka import MISSING, PrivateKafka, classes, make_topic, read_topic
from tests.services.mariadb import PrivateServer

TOPIC = "room_outbox"


def relay(server: PrivateServer, url: str, servers: str, count: int, workers: int, batch: int) -> Run:
    """outboxd itself, every event acknowledged by the broker."""
    more = f'  mq: {{type: kafka, bootstrap_servers: "{servers}", topic: {TOPIC}}}'
    return contestants.relay(server, lane.config(url, "mq", workers=workers, batch=batch, more=more), count)


def compare(server: PrivateServer, url: str, count: int, rounds: int, workers: int, batch: int) -> dict[str, float]:
    """Events per second, the CPU that the relay spends on one, and the median of its ratios to the bare loop."""
    java = program("java")
    assert java is not None, MISSING
    assert classes().is_dir(), MISSING
    directory = Path(tempfile.mkdtemp(prefix="outboxd-bench-kafka-"))
    broker = PrivateKafka(directory, java)
    try:
        make_topic(broker.servers, TOPIC)
        contestants.bare(server, url, count, workers, batch)  # warms the database up
        relay(server, url, broker.servers, count, workers, batch)  # and the broker
        bare, runs = [], []
        for number in range(1, rounds + 1):
            bare.append(contestants.bare(server, url, count, workers, batch))
            runs.append(relay(server, url, broker.servers, count, workers, batch))
            print(f"round {number}: bare {bare[-1].rate:,.0f}/s, kafka {runs[-1].rate:,.0f}/s", flush=True)
        read_topic(broker.servers, TOPIC, count * (rounds + 1), timeout_s=120)
    finally:
        broker.stop()
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "kafka_per_s": statistics.median(run.rate for run in runs),
        "kafka_relay_us": statistics.median(run.relay_us for run in runs),
        "kafka_to_bare": statistics.median(ours.rate / theirs.rate for ours, theirs in zip(runs, bare, strict=True)),
    }
