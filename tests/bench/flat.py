"""Is the relay as fast beside a large table? Delivered, future and failed rows, each against an empty table in turn."""

import statistics
from collections.abc import Mapping

from outboxd.config.schema import Config
from tests.bench import contestants, lane
from tests.bench.contestants import Run
from tests.services.mariadb import PrivateServer, execute

EMPTY, FULL = "room_outbox", "room_history"

CASES: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "delivered": (5_000_000, {"status": "'delivered'", "delivered_at_ms": "1", "updated_at_ms": "1"}),
    "future": (1_000_000, {"next_retry_at_ms": "4102444800000 + seq"}),
    "failed": (500_000, {"status": "'failed'", "retry_count": "8", "last_error": "'refused'"}),
}
"""How many rows, and what makes them what they are. Their payload is short: nothing of the relay's reads it."""


def compare(
    server: PrivateServer, url: str, scale: float, events: int, rounds: int, workers: int, batch: int
) -> dict[str, float]:
    """The median ratio, full to empty, of the rates and of the database's CPU per event. scale: of the rows' number."""
    settings = lane.config(url, "nothing", workers=workers, batch=batch)
    report: dict[str, float] = {}
    for name, (rows, columns) in CASES.items():
        lane.make(settings)
        lane.fill(url, round(rows * scale), columns, "old", FULL, envelope=b"{}")
        execute(url, f"ANALYZE TABLE {FULL}")
        runs = _in_turn(server, settings, events, rounds, name)
        full, empty = runs[FULL], runs[EMPTY]
        report |= {
            f"flat_{name}_per_s": statistics.median(run.rate for run in full),
            f"flat_{name}": _ratio([run.rate for run in full], [run.rate for run in empty]),
            f"flat_{name}_relay_us": _ratio([run.relay_us for run in full], [run.relay_us for run in empty]),
            f"flat_{name}_database_us": _ratio([run.database_us for run in full], [run.database_us for run in empty]),
        }
    return report


def _in_turn(server: PrivateServer, settings: Config, events: int, rounds: int, name: str) -> dict[str, list[Run]]:
    url, runs = settings.database.url, dict[str, list[Run]]({EMPTY: [], FULL: []})
    for number in range(rounds + 1):
        # Ids of as many digits: lists of them are a part of the statements' length.
        following = lane.last_id(url, FULL) + 1
        execute(url, f"TRUNCATE {EMPTY}", f"ALTER TABLE {EMPTY} AUTO_INCREMENT = {following}")
        # In turns: what the server still has to do for one falls on the other.
        for table in sorted(runs, reverse=bool(number % 2)):
            run = contestants.drained(server, [settings], events, f"new{number}-", table)
            runs[table] += [run] if number else []  # the first round warms up
        if number:
            rates = ", ".join(f"{table} {found[-1].rate:,.0f}/s" for table, found in runs.items())
            print(f"{name}, round {number}: {rates}", flush=True)
    return runs


def _ratio(full: list[float], empty: list[float]) -> float:
    return statistics.median(ours / theirs for ours, theirs in zip(full, empty, strict=True))
