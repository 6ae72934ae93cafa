"""What does order cost? Redis Streams: ordered against unordered, one hot room, and rooms that wait in front."""

import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from outboxd.config.schema import Config
from tests.bench import contestants, lane
from tests.bench.contestants import Run
from tests.services.mariadb import PrivateServer, connect, execute
from tests.services.redis_server import RedisServer, redis_binary

UNORDERED, ORDERED = "room_outbox", "room_history"
HOT_ROOM = 50_000
BLOCKED_ROOMS = 10_000
FOLLOWERS = 10
"""Behind each head, waiting."""

HEADS: Mapping[str, Mapping[str, str]] = {
    "blocked": {"status": "'failed'", "retry_count": "8", "last_error": "'refused'"},
    "retrying": {
        "status": "'retryable'",
        "retry_count": "1",
        "last_error": "'refused'",
        "next_retry_at_ms": "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) + 3600000",
    },
}
"""What a head is, whose room waits for it."""


def compare(
    server: PrivateServer, url: str, scale: float, count: int, rounds: int, workers: int, batch: int
) -> dict[str, float]:
    """Medians of rounds in turn. scale: of the number of rooms that wait."""
    directory = Path(tempfile.mkdtemp(prefix="outboxd-bench-order-"))
    bus = RedisServer(directory, redis_binary(), "--appendfsync", "everysec")
    bus.start()
    try:
        return _compare(server, url, bus.url, scale, count, rounds, workers, batch)
    finally:
        bus.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _compare(
    server: PrivateServer, url: str, bus: str, scale: float, count: int, rounds: int, workers: int, batch: int
) -> dict[str, float]:
    settings = lane.config(
        url, "bus", workers=workers, batch=batch, history="ordering: room, on_dead: block",
        more=f'  bus: {{type: redis_streams, url: "{bus}", max_length: 100000}}',
    )  # fmt: skip
    lane.make(settings)
    rooms = round(BLOCKED_ROOMS * scale)
    contests: dict[str, Callable[[], Run]] = {
        "unordered": lambda: _fresh(server, settings, UNORDERED, count),
        "ordered": lambda: _fresh(server, settings, ORDERED, count),
        "one_room": lambda: _fresh(server, settings, ORDERED, HOT_ROOM, "'hot'"),
        "with_blocked": lambda: _behind(server, settings, "blocked", rooms, count),
        "with_retrying": lambda: _behind(server, settings, "retrying", rooms, count),
    }
    runs: dict[str, list[Run]] = {name: [] for name in contests}
    for number in range(rounds + 1):
        for name in sorted(runs, reverse=bool(number % 2)):
            run = contests[name]()
            runs[name] += [run] if number else []  # the first round warms up
        if number:
            rates = ", ".join(f"{name} {found[-1].rate:,.0f}/s" for name, found in runs.items())
            print(f"order, round {number}: {rates}", flush=True)
    return _report(runs)


def _report(runs: Mapping[str, Sequence[Run]]) -> dict[str, float]:
    report: dict[str, float] = {}
    for name, found in runs.items():
        report[f"{name}_per_s"] = statistics.median(run.rate for run in found)
        report[f"{name}_relay_us"] = statistics.median(run.relay_us for run in found)
        report[f"{name}_database_us"] = statistics.median(run.database_us for run in found)
    for name, to in {
        "ordered": "unordered", "one_room": "unordered", "with_blocked": "ordered", "with_retrying": "ordered",
    }.items():  # fmt: skip
        pairs = zip(runs[name], runs[to], strict=True)
        report[name] = statistics.median(ours.rate / theirs.rate for ours, theirs in pairs)
    return report


def _fresh(server: PrivateServer, settings: Config, table: str, count: int, room: str | None = None) -> Run:
    """Events of a thousand rooms, or of one, in an empty table."""
    execute(settings.database.url, f"TRUNCATE {table}")
    columns = {} if room is None else {"room_id": room}
    return contestants.drained(server, [settings], count, "e", table, columns)


def _behind(server: PrivateServer, settings: Config, head: str, rooms: int, count: int) -> Run:
    """Events of a thousand rooms behind those of many that wait for their head."""
    url = settings.database.url
    execute(url, f"TRUNCATE {ORDERED}")
    room = {"room_id": f"CONCAT('waiting-', MOD(seq, {rooms}))"}
    lane.fill(url, rooms, {**room, **HEADS[head]}, "head", ORDERED)
    lane.fill(url, rooms * FOLLOWERS, room, "follower", ORDERED)
    execute(url, f"ANALYZE TABLE {ORDERED}")
    run = contestants.drained(server, [settings], count, "e", ORDERED)
    assert _waiting(url) == rooms * FOLLOWERS, "an event overtook its head"
    return run


def _waiting(url: str) -> int:
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT COUNT(*) FROM {ORDERED} WHERE event_id LIKE 'follower%' AND status = 'pending'")
        return int(cursor.fetchone()[0])
