"""What do parked rows cost? A lane with a healthy and a broken publisher, with and without a million of them."""

import statistics
import time
from contextlib import closing

from outboxd.config.load import parse
from outboxd.config.schema import Config
from tests.bench import lane
from tests.services.find import free_port
from tests.services.mariadb import connect, execute
from tests.services.wait import wait_for

WITHOUT, WITH = "room_outbox", "room_history"
"""Two lanes that differ in their parked rows only."""

CONFIG = """
node_id: bench
database: {{url: "{url}"}}
admin: {{listen: "", socket: "{socket}"}}
lanes: {{room_outbox: {{}}, room_history: {{}}}}
outbox_worker: {{direct: [healthy, broken], concurrency: {workers}, batch_size: {batch}}}
publishers:
  healthy: {{type: http, url: "{receiver}", events: ["RoomChanged"]}}
  broken: {{type: http, url: "http://127.0.0.1:{port}/", events: ["RoomParked"]}}
log: {{level: error, format: console}}
"""

PARKED = {
    "event_type": "'RoomParked'",
    "status": "'retryable'",
    "claim_token": "seq",
    "worker_id": "'bench/room_history-01'",
    "last_error": "'broken: waiting for broken, which is failing'",
    # Due between a minute ago and in four minutes.
    "next_retry_at_ms": "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) - 60000 + MOD(seq, 3000) * 100",
}


def compare(
    url: str, receiver: str, parked: int, events: int, rounds: int, workers: int, batch: int
) -> dict[str, float]:
    """Events per second of the healthy publisher without and with parked rows of the broken one, and their ratio: the
    medians of rounds in turn."""
    text = CONFIG.format(url=url, receiver=receiver, port=free_port(), workers=workers, batch=batch, socket=lane.SOCKET)
    settings = parse(text, {}, "the benchmark's configuration")
    lane.make(settings)
    lane.fill(url, parked, PARKED, "parked", WITH)
    execute(url, f"ANALYZE TABLE {WITH}")
    rates: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    for number in range(rounds + 1):
        # In turns: what the server still has to do for one falls on the other.
        for name in sorted(rates, reverse=bool(number % 2)):
            rate = _rate(settings, name, events, f"round{number}-")
            rates[name] += [rate] if number else []  # the first round warms up
    ratios = (with_ / without for without, with_ in zip(rates[WITHOUT], rates[WITH], strict=True))
    return {
        "without_parked_per_s": statistics.median(rates[WITHOUT]),
        "with_parked_per_s": statistics.median(rates[WITH]),
        "with_parked": statistics.median(ratios),
        "parked_again": float(_parked_again(url)),
    }


def _rate(settings: Config, name: str, events: int, prefix: str) -> float:
    """Of a daemon that finds them all waiting, from before its fork to its last settle."""
    url = settings.database.url
    lane.fill(url, events, prefix=prefix, table=name)
    start_s = time.time()
    with lane.daemon(settings, name), closing(connect(url)) as connection:
        cursor = connection.cursor()

        def is_done() -> bool:
            cursor.execute(f"SELECT COUNT(*) FROM {name} FORCE INDEX (due) WHERE due_at_ms = 9007199254740991")
            return not cursor.fetchone()[0]

        wait_for(is_done, 300, "the events to be delivered")
        cursor.execute(f"SELECT MAX(delivered_at_ms) FROM {name}")
        return events / (int(cursor.fetchone()[0]) / 1000 - start_s)


def _parked_again(url: str) -> int:
    """How many parked rows came due and were parked once more: that none was touched would measure nothing."""
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT COUNT(*) FROM {WITH} WHERE event_type = 'RoomParked' AND updated_at_ms > 0")
        return int(cursor.fetchone()[0])
