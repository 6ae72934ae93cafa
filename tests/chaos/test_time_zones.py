"""Daylight saving begins or ends while events flow (G12): on the database's server, in sessions, on the node."""

import time
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tests.services.chaos import scaled
from tests.services.faketime import Clock
from tests.services.find import require
from tests.services.lanes import event, table_of
from tests.services.load import Load, leases_ms, own_server, prepare, under_load

ZONE = "Europe/Berlin"
SWITCHES = {
    "autumn": datetime(2026, 10, 25, 1, tzinfo=UTC),  # from 02:00 to 03:00 o'clock twice
    "spring": datetime(2026, 3, 29, 1, tzinfo=UTC),  # and not at all
}
BEFORE_S = scaled(8.0, 4.0)
SLACK_S = 8.0
"""What a busy machine may be late by; nothing beside an error of an hour."""
LEASE_MS = 5000


@pytest.mark.parametrize("season", scaled(list(SWITCHES), ["autumn"]))
def test_nothing_is_wrong_by_an_hour_when_the_clocks_change(tmp_path: Path, season: str) -> None:
    """G2, G12: leases, delays, retries and the time of creation that the table itself writes. The server and the
    producer's session are in a zone that changes, the node in another one.
    """
    zone = Path("/usr/share/zoneinfo", ZONE)
    require("tzdata", zone if zone.exists() else None, "there is no tzdata")
    switch_s = SWITCHES[season].timestamp()
    clock = Clock(tmp_path)
    with ExitStack() as stack:
        server = stack.enter_context(own_server(None, {**clock.environ, "TZ": ZONE}, default_time_zone="SYSTEM"))
        config = prepare(server, tmp_path)
        table = stack.enter_context(table_of(config))
        clock.step(switch_s - BEFORE_S - time.time())
        start_ms, start_s = clock.now_ms(), time.monotonic()
        due_ms = round(switch_s * 1000) + 1000
        table.insert([event(event_id="delayed", next_retry_at_ms=due_ms)])
        session = ("SET SESSION time_zone = 'SYSTEM'",)
        load = stack.enter_context(
            under_load(config, tmp_path, 0, {"TZ": "America/New_York"}, session, initial_backoff="2s")
        )
        load.receiver.answer(event_id="fails-once", times=1, status=500)
        table.insert([event(event_id="fails-once")])
        left_ms: list[int] = []

        def is_over() -> bool:
            left_ms.extend(leases_ms(table).values())
            return {table.row(name)["status"] for name in ("delayed", "fails-once")} == {"delivered"}

        load.daemon.wait_until(is_over, "the switch to be over")
        load.flows()
        rows = load.finish()
        load.drain()
    assert left_ms, "nothing was held"
    assert all(0 < left <= LEASE_MS for left in left_ms)
    (delayed_s,) = arrivals(load, "delayed")
    assert BEFORE_S + 0.9 <= delayed_s - start_s <= BEFORE_S + 1 + SLACK_S
    first_s, second_s = arrivals(load, "fails-once")
    assert 1.7 <= second_s - first_s <= 2.3 + SLACK_S
    assert set(load.twice()) == {"fails-once"}
    check_creation(rows, start_ms, clock.now_ms())


def arrivals(load: Load, event_id: str) -> list[float]:
    """When the event arrived, each time; time.monotonic()."""
    return [request.received_s for request in load.receiver.requests if request.event_id == event_id]


def check_creation(rows: list[dict[str, object]], start_ms: int, end_ms: int) -> None:
    """The time of creation goes on over the switch, one row after the other, and is the database's own."""
    created = [int(str(row["created_at_ms"])) for row in rows]
    assert all(start_ms - 1000 <= created_ms <= end_ms for created_ms in created)
    assert all(after - before >= -1000 for before, after in pairwise(created)), "two sessions write, hardly apart"
    waits = [int(str(row["delivered_at_ms"])) - int(str(row["created_at_ms"])) for row in rows]
    assert min(waits) >= 0
    assert max(waits) <= (BEFORE_S + 2 * SLACK_S) * 1000
