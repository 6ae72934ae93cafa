"""Workers are killed while they throw events away: what was to go goes, and nothing else does."""

import os
import random
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.services.chaos import SEED, scaled
from tests.services.daemon import LANE, Daemon, write_config
from tests.services.lanes import Table, lanes_of
from tests.services.nodes import SHORT_LEASE
from tests.services.sinks import VARIABLE, published

ROBOTS = "room_robot_outbox"
STALE = scaled(20_000, 4_000)
LIVE = scaled(2_000, 400)
OLD = scaled(20_000, 3_000)
KILLS = scaled(30, 4)
AN_HOUR_MS = 3_600_000
ROBOT = {
    "stale_discard_after": "30m", "cleanup_interval": "300ms", "cleanup_terminal_after": "10m",
    "cleanup_active_after": "30m", "cleanup_batch_size": 500,
}  # fmt: skip


def is_clean(robots: Table) -> bool:
    """Is nothing left but what was published just now?"""
    before_ms = robots.now_ms() - AN_HOUR_MS // 2
    old = robots.connection.query(f"SELECT COUNT(*) FROM {ROBOTS} WHERE created_at_ms BETWEEN 1 AND {before_ms}")
    return not int(old[0][0]) and robots.is_done()


@pytest.mark.parametrize("kind", ["mysql", "sqlite"])
def test_workers_that_die_while_they_throw_events_away_lose_no_others(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, sink: Path
) -> None:
    """G1: display events that are not stale, those of unknown age, and the main lane's, however old, are all published;
    stale ones never are; old rows go, over however many rounds."""
    url: str = request.getfixturevalue(f"{kind}_url")
    lingering = {"sink": {"type": "python", "target": "tests.services.sinks:Lingering"}}
    lanes = {LANE: {}, ROBOTS: ROBOT}
    config = write_config(
        tmp_path / "node.yaml", url, lingering, lanes=lanes, concurrency=2, batch_size=40,
        lease="4s", publish_timeout=SHORT_LEASE["publish_timeout"],
    )  # fmt: skip
    chance = random.Random(SEED)
    with lanes_of(config) as tables:
        main, robots = tables[LANE], tables[ROBOTS]
        then_ms = robots.now_ms() - AN_HOUR_MS
        robots.fill(OLD, status="delivered", created_at_ms=then_ms, delivered_at_ms=then_ms)
        stale = robots.fill(STALE, created_at_ms=then_ms)
        live = [*robots.fill(LIVE), *robots.fill(LIVE // 4, created_at_ms=0), *main.fill(LIVE, created_at_ms=then_ms)]
        with Daemon(tmp_path / "node.yaml", tmp_path / "node.log", **{VARIABLE: str(sink)}) as daemon:
            for _ in range(KILLS):
                count = remaining(robots, then_ms)
                if not count:
                    break
                wanted = max(0, count - chance.randrange(1, 200))
                daemon.wait_until(partial(_is_down_to, robots, then_ms, wanted), "some to go", timeout_s=40)
                pids = [pid for name, pid in daemon.workers(4).items() if name.startswith(ROBOTS)]
                with suppress(ProcessLookupError):  # the one that was killed last, and is just being replaced
                    os.kill(chance.choice(pids), signal.SIGKILL)
            daemon.wait_until(lambda: is_clean(robots) and main.is_done(), "the end", timeout_s=120)
            assert daemon.lines("outbox_dead_letter") == daemon.lines("event_gone") == []
        assert main.by_status() == {"delivered": LIVE}
        assert robots.by_status() == {"delivered": LIVE + LIVE // 4}
    arrived = set(published(sink))
    assert arrived == set(live)
    assert arrived.isdisjoint(stale)


def _is_down_to(robots: Table, created_at_ms: int, wanted: int) -> bool:
    return remaining(robots, created_at_ms) <= wanted


def remaining(robots: Table, created_at_ms: int) -> int:
    """Rows that were created then."""
    rows = robots.connection.query(f"SELECT COUNT(*) FROM {ROBOTS} WHERE created_at_ms = {created_at_ms}")
    return int(rows[0][0])
