"""`make bench`: outboxd against the bare database loop of the same run. Ratios count, absolute rates are the machine's.

A private MariaDB with durable commits left as they are by default, a private nginx that answers 204. Every contestant
runs `--rounds` times in turn after a warm-up; the medians are compared. Exit status 1 if a goal is missed.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from outboxd.config.schema import Config
from tests.bench import (
    cleanup,
    contestants,
    flat,
    grpc,
    history,
    kafka,
    lane,
    latency,
    nodes,
    order,
    parked,
    record,
    redis_streams,
    resources,
    robot,
    rocketmq,
    scrape,
    soak,
)
from tests.bench.contestants import Run
from tests.services.mariadb import PrivateServer, execute, start_mariadb
from tests.services.nginx import start_nginx

GOALS = {
    "null_to_bare": (">=", 0.75),
    "http_to_bare": (">=", 0.3),
    "http_to_naive": (">=", 10.0),
    "claim_with_history": ("<=", 1.2),
    "with_parked": (">=", 0.9),
    "redis_to_bare": (">=", 0.5),
    "kafka_to_bare": (">=", 0.35),
    "rocketmq_own_to_client": ("<=", 1.0),
    "grpc_own_to_client": ("<=", 1.0),
    "scrape_slowest_ms": ("<=", 50.0),
    "lanes_slowest_ms": ("<=", 50.0),
    "flat_delivered": (">=", 0.9),
    "flat_future": (">=", 0.9),
    "flat_failed": (">=", 0.9),
    "two_nodes": (">=", 0.95),
    "ordered": (">=", 0.9),
    "one_room": (">=", 0.25),
    "with_blocked": (">=", 0.9),
    "with_retrying": (">=", 0.9),
    "first_ms": ("<=", 10.0),
    "first_worst_ms": ("<=", 10.0),
    "rung_p50_ms": ("<=", 5.0),
    "rung_p99_ms": ("<=", 25.0),
    "polled_p99_ms": ("<=", 1050.0),
    "record_mysqlclient_us": ("<=", 60.0),
    "record_pymysql_us": ("<=", 60.0),
    "record_sqlalchemy_us": ("<=", 60.0),
    "worker_mib": ("<=", 40.0),
    "idle_statements_per_s": ("<=", 2.0),
    "robot_p99": ("<=", 1.5),
    **cleanup.GOALS,
    **soak.GOALS,
}
PARTS = (
    "speed", "redis", "kafka", "rocketmq", "grpc", "history", "parked", "flat", "nodes", "order", "scrape", "resources",
    "latency", "record",
)  # fmt: skip
LONG_PARTS = ("soak", "robot", "cleanup")
"""Made only when asked for by name."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--events", type=int, default=60_000, help="in each run of the fast ones (default 60,000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--history", type=int, default=1_000_000, help="delivered rows; a tenth failed, a tenth future")
    parser.add_argument("--parked", type=int, default=1_000_000, help="rows that wait for a broken publisher")
    parser.add_argument("--pending", type=int, default=200_000, help="rows that wait while /metrics is asked for")
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows that stand in a lane's way (default 1)")
    parser.add_argument("--minutes", type=float, default=20.0, help="of the soak (default 20)")
    parser.add_argument("--seconds", type=float, default=60, help="of 500 events a second each, for latencies")
    parser.add_argument("--old", type=int, default=2_000_000, help="rows to be deleted while producers insert")
    parser.add_argument("--inserts", type=int, default=30_000, help="beside that, and as many without")
    parser.add_argument("--stale", type=int, default=1_000_000, help="display events to drop beside the main lane")
    parser.add_argument("--only", choices=(*PARTS, *LONG_PARTS), default=None)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="outboxd-bench-"))
    server = start_mariadb(directory / "mariadb", innodb_buffer_pool_size="2G", innodb_log_file_size="1G")
    receiver = start_nginx(directory)
    try:
        url = f"{server.url}/bench"
        execute(server.url, "CREATE DATABASE bench")
        report = _measure(arguments, server, url, receiver.url)
    finally:
        receiver.stop()
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)
    return _judge(report)


def _measure(arguments: argparse.Namespace, server: PrivateServer, url: str, receiver: str) -> dict[str, float]:
    count, rounds, workers, batch = arguments.events, arguments.rounds, arguments.workers, arguments.batch
    scale = arguments.scale
    parts: dict[str, Callable[[], dict[str, float]]] = {
        "speed": lambda: _speed(arguments, server, url, receiver),
        "redis": lambda: redis_streams.compare(server, url, count, rounds, workers, batch),
        "rocketmq": lambda: rocketmq.measure(server, url, count // 6, rounds),
        "kafka": lambda: kafka.compare(server, url, count, rounds, workers, batch),
        "grpc": lambda: grpc.compare(server, url, count // 10, rounds, workers, batch),
        "history": lambda: history.compare(url, arguments.history, batch),
        "parked": lambda: parked.compare(url, receiver, arguments.parked, count, rounds, workers, batch),
        "flat": lambda: flat.compare(server, url, scale, 2 * count, rounds, workers, batch),
        "nodes": lambda: nodes.compare(server, url, 2 * count, rounds, workers, batch),
        "order": lambda: order.compare(server, url, scale, count, rounds, workers, batch),
        "scrape": lambda: scrape.measure(url, arguments.pending),
        "resources": lambda: resources.measure(server, url, receiver, workers),
        "latency": lambda: latency.measure(server, url, workers, arguments.seconds),
        "robot": lambda: robot.measure(server, url, workers, arguments.stale, rounds),
        "cleanup": lambda: cleanup.measure(server, url, workers, arguments.old, arguments.inserts),
        "record": lambda: record.measure(url, rounds),
        "soak": lambda: soak.measure(url, arguments.minutes, workers),
    }
    report: dict[str, float] = {}
    for name in (arguments.only,) if arguments.only else PARTS:
        report |= parts[name]()
    return report


def _speed(arguments: argparse.Namespace, server: PrivateServer, url: str, receiver: str) -> dict[str, float]:
    count, workers, batch = arguments.events, arguments.workers, arguments.batch
    null, http = (_config(url, name, receiver, arguments) for name in ("nothing", "webhook"))
    contestants.bare(server, url, count, workers, batch)  # warms the server up
    runs: dict[str, list[Run]] = {"bare": [], "null": [], "http": [], "naive": []}
    for number in range(1, arguments.rounds + 1):
        runs["bare"].append(contestants.bare(server, url, count, workers, batch))
        runs["null"].append(contestants.relay(server, null, count))
        runs["http"].append(contestants.relay(server, http, count // 2))
        runs["naive"].append(contestants.naive(server, http, 1500, receiver))
        rates = ", ".join(f"{name} {found[-1].rate:,.0f}/s" for name, found in runs.items())
        print(f"round {number}: {rates}", flush=True)
    report: dict[str, float] = {}
    for name, found in runs.items():
        report[f"{name}_per_s"] = statistics.median(run.rate for run in found)
        report[f"{name}_relay_us"] = statistics.median(run.relay_us for run in found)
        report[f"{name}_database_us"] = statistics.median(run.database_us for run in found)
    for name, (above, below) in {
        "null_to_bare": ("null", "bare"), "http_to_bare": ("http", "bare"), "http_to_naive": ("http", "naive"),
    }.items():  # fmt: skip
        pairs = zip(runs[above], runs[below], strict=True)
        report[name] = statistics.median(upper.rate / lower.rate for upper, lower in pairs)
    return report


def _config(url: str, publisher: str, receiver: str, arguments: argparse.Namespace) -> Config:
    return lane.config(url, publisher, receiver, arguments.workers, arguments.batch)


def _judge(report: dict[str, float]) -> int:
    missed = 0
    print(f"\n{'figure':28}{'measured':>14}   goal")
    for name, value in report.items():
        goal = ""
        if name in GOALS:
            sign, limit = GOALS[name]
            kept = value >= limit if sign == ">=" else value <= limit
            missed += not kept
            goal = f"{sign} {limit:g}{'' if kept else '   MISSED'}"
        print(f"{name:28}{value:>14,.2f}   {goal}")
    print("\n" + json.dumps({name: round(value, 3) for name, value in report.items()}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
