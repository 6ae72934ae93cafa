"""What an ordered lane costs its database: statements and rows, busy and idle, whatever stands in front of it.

The numbers are what the design allows for. They may fall; a change that raises one has to say why.
"""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.services.costs import COUNTERS, counters
from tests.services.daemon import Daemon, write_config
from tests.services.lanes import Table, event, table_of
from tests.services.wait import wait_for

EVENTS = 10_000
READ = ("Handler_read_key", "Handler_read_next", "Handler_read_rnd_next")
WORKERS = 4
IDLE_S = 5.0


def cost(url: str, path: Path, fill: Callable[[Table], int]) -> dict[str, float]:
    """Counters per 1,000 events of one worker, batch 100, from its start until nothing is left that it may publish.

    fill: writes the lane, and returns how many are to stay. There is no admin role, which would ask, too.
    """
    config = write_config(
        path, url, {"nothing": {"type": "null"}}, concurrency=1, poll_interval="2s", ordering="room", on_dead="block"
    )
    with table_of(config) as table:
        stay = fill(table)
        before = counters(table)
        with Daemon(path, path.with_suffix(".log"), "run", "--until-empty") as daemon:
            daemon.workers()
            daemon.wait_until(lambda: delivered(daemon) == EVENTS, "the events to be delivered", 60)
            daemon.drain(3.0)
        after = counters(table)
        assert table.unfinished() == stay
    return {name: (after[name] - before[name]) / (EVENTS / 1000) for name in COUNTERS}


def delivered(daemon: Daemon) -> int:
    """What its worker says of itself: the database is not asked."""
    daemon.signal(signal.SIGUSR1)
    lines = daemon.lines("worker_status")
    return EVENTS if daemon.lines("worker_exited") else int(lines[-1]["delivered"]) if lines else 0


def many_rooms(table: Table) -> int:
    """A thousand rooms, ten events each, mixed."""
    table.insert(event(room_id=f"room-{number % 1000}") for number in range(EVENTS))
    return 0


def one_room(table: Table) -> int:
    """All of them in one."""
    table.fill(EVENTS, room_id="hot")
    return 0


def behind_waiting_rooms(table: Table) -> int:
    """As many_rooms, behind two thousand rooms with a dead letter in front and five events that wait for it."""
    waiting = [f"waiting-{number}" for number in range(2000)]
    table.insert(event(room_id=room, status="failed") for room in waiting)
    table.insert(event(room_id=room) for room in waiting for _ in range(5))
    many_rooms(table)
    return 10_000


LANES = {"many rooms": many_rooms, "one room": one_room, "behind waiting rooms": behind_waiting_rooms}
READS = {"many rooms": 8_000, "one room": 9_000, "behind waiting rooms": 75_000}
"""Most of the last are entries of the index alone, of events that wait: with every batch they are looked through for
what was committed late."""


@pytest.mark.parametrize("lane", LANES)
def test_a_thousand_ordered_events_cost_few_statements(lane: str, mysql_url: str, tmp_path: Path) -> None:
    """Speed: per 1,000 events, batch 100: ten exchanges of a settle, a fence and a claim, and the reads before them."""
    per_thousand = cost(mysql_url, tmp_path / "outbox.yaml", LANES[lane])
    assert per_thousand["Com_update"] <= 32
    assert per_thousand["Com_select"] <= 50
    assert per_thousand["Com_begin"] <= 11
    assert per_thousand["Com_commit"] <= 11
    assert per_thousand["Questions"] <= 110
    assert per_thousand["Com_rollback"] == 0
    assert per_thousand["Com_update_multi"] == 0
    assert per_thousand["Handler_update"] <= 2_700, "by the claim, by the settle, and the 64 partitions with each claim"
    assert sum(per_thousand[name] for name in READ) <= READS[lane]


def test_an_idle_ordered_lane_asks_three_times_a_second_at_the_most(mysql_url: str, tmp_path: Path) -> None:
    """Speed: a look, a piece of a sweep, and now and then who owns what; four workers with their shares, for five
    seconds."""
    path = tmp_path / "outbox.yaml"
    nothing = {"nothing": {"type": "null"}}
    config = write_config(path, mysql_url, nothing, concurrency=WORKERS, poll_interval="1s", ordering="room")
    with table_of(config) as table:
        many_rooms(table)
        with Daemon(path, path.with_suffix(".log")) as daemon:
            daemon.wait_until(table.is_done, "the events to be delivered")
            daemon.wait_until(lambda: len(owners(table)) == WORKERS and sum(owners(table)) == 64, "fair shares")
            up_s = time.monotonic()
            daemon.wait_until(lambda: time.monotonic() >= up_s + 1.5, "their last sweeps")
            before, since_s, own = counters(table), time.monotonic(), 1
            wait_for(lambda: time.monotonic() - since_s >= IDLE_S, 2 * IDLE_S, "some idle time")
            after, elapsed_s = counters(table), time.monotonic() - since_s
    assert after["Questions"] - before["Questions"] - own <= 3 * WORKERS * elapsed_s


def owners(table: Table) -> list[int]:
    """How many partitions each worker leases."""
    rows = table.connection.query("SELECT COUNT(*) FROM outboxd_partition WHERE worker_id <> '' GROUP BY worker_id")
    return [int(row[0]) for row in rows]
