"""A dump or a report keeps an old snapshot open, so the server may forget nothing of what was relayed since."""

import statistics
import sys
from contextlib import closing
from pathlib import Path

from tests.services import children
from tests.services.chaos import scaled
from tests.services.daemon import LANE, ROOT, write_config
from tests.services.lanes import table_of
from tests.services.load import LIMITS, WORKERS, own_server, prepare
from tests.services.mariadb import connect
from tests.services.timed_worker import Call, read
from tests.services.wait import wait_for

EVENTS = scaled(200_000, 20_000)
RELAYED_S = 240.0
DEARER = 2.0
"""What a neighbour on the same core may cost (1.5 was seen). Where every claim reads again what was relayed, the last
ones of the smaller amount cost three times as much as the first ones already.
"""
SWEEPS_SHARE = 0.02
"""Of a worker's time."""


def relay(directory: Path, config: Path, server_pid: int) -> list[list[Call]]:
    """Let workers empty the lane; what each of them asked of its store."""
    outputs = [directory / f"calls-{number}" for number in range(1, WORKERS + 1)]
    command = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.services.timed_worker", str(config)]
    log = directory / "workers.log"
    started = [
        children.start([*command, f"{number:02d}", str(path), str(server_pid)], log)
        for number, path in enumerate(outputs, 1)
    ]
    try:
        wait_for(lambda: all(worker.poll() is not None for worker in started), RELAYED_S, "the lane to be empty")
    finally:
        for worker in started:
            children.stop(worker)
    assert [worker.returncode for worker in started] == [0] * WORKERS, children.tail(log)
    return [read(path) for path in outputs]


def costs_s(calls: list[list[Call]]) -> list[float]:
    """Of each quarter of the claims, in the order of time: what a usual one costs the server. Sweeps are left out."""
    claims = sorted((call.at_s, call.server_s) for worker in calls for call in worker if call.rows and not call.sweep)
    part = len(claims) // 4
    return [statistics.median(cost_s for _, cost_s in claims[n * part : (n + 1) * part]) for n in range(4)]


def test_claims_stay_cheap_and_sweeps_rare_under_an_open_snapshot(tmp_path: Path) -> None:
    """Speed: a claim never reads again what was relayed; a sweep has to, and is the rarer the longer it takes."""
    with own_server(innodb_buffer_pool_size="256M") as server:
        admin = prepare(server, tmp_path)
        write_config(tmp_path / "outbox.yaml", admin.database.url, {"nothing": {"type": "null"}}, database=LIMITS)
        with table_of(admin) as table:
            table.fill(EVENTS)
        with closing(connect(admin.database.url)) as report:
            report.cursor().execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            report.cursor().execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            calls = relay(tmp_path, tmp_path / "outbox.yaml", server.pid)
            seen = report.cursor()
            seen.execute(f"SELECT COUNT(*) FROM {LANE} WHERE status = 'pending'")
            assert seen.fetchall() == ((EVENTS,),), "the snapshot is as old as it was"
        with table_of(admin) as table:
            assert table.by_status() == {"delivered": EVENTS}
    first_s, *_, last_s = costs_s(calls)
    assert last_s <= DEARER * first_s
    for worker in calls:
        looks = [call for call in worker if call.sweep and not call.rows]
        # The last one has not had its rest, which follows it; and single slow ones are forgiven.
        sweeps_s = [call.took_s for call in worker if call.sweep and call.at_s < looks[-1].at_s]
        assert sum(sorted(sweeps_s)[:-2]) <= SWEEPS_SHARE * (looks[-1].at_s - worker[0].at_s)
