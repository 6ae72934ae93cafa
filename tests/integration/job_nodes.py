"""Nodes of the real daemon that share jobs, and what section 9 says about the runs that they have made."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from outboxd.config.schema import Lane
from outboxd.schedule.records import Run
from outboxd.store import connect
from outboxd.store.migrate import init_db
from tests.contract.conftest import database_of
from tests.services.daemon import LANE, Daemon
from tests.services.jobs import Life, jobs_config, overlaps
from tests.services.nodes import another_node
from tests.services.wait import wait_for

SECOND_MS = 1000
EDGE_MS = 400
"""A tick so close to the end of the last run may be skipped or not: writing the log and giving back the lock take time.
"""


def make_tables(url: str) -> None:
    """As `init-db` does, without the jobs that it writes."""
    connection = connect(database_of(url))
    init_db(connection, [Lane(name=LANE, direct=("null",))])
    connection.execute("DELETE FROM outboxd_job")
    connection.close()


@contextmanager
def running(
    directory: Path, url: str, nodes: int = 1, redis_url: str | None = None, **jobs: object
) -> Iterator[list[Daemon]]:
    """So many nodes, whose names are node, node-2, node-3. jobs: keys of the section."""
    config = jobs_config(directory / "node.yaml", url, redis_url, **jobs)
    names = [f"node-{number}" for number in range(2, nodes + 1)]
    configs = [config, *(another_node(config, name) for name in names)]
    with ExitStack() as stack:
        yield [stack.enter_context(Daemon(path, path.with_suffix(".log"))) for path in configs]


def end(daemons: list[Daemon]) -> None:
    """All of them, in order."""
    for daemon in daemons:
        daemon.signal()
    for daemon in daemons:
        assert daemon.end()[0] == 0


def mounted(daemons: list[Daemon], count: int = 1) -> None:
    """Once every node has so many jobs."""
    for daemon in daemons:
        daemon.wait_for("job_mounted", count)


def shown(run: Run) -> str:
    """A line of the log, for a failure."""
    return f"{run.fire_at_ms / SECOND_MS:.0f} {run.node_id} {run.status} {run.message}"


def check_skips(runs: list[Run]) -> None:
    """Of one node, or of all where ticks are single: a tick was skipped if, and only if, a run went on then; or that of
    a later tick, of a node that was ahead. The ticks of the log follow each other without a gap.
    """
    ticks = sorted(runs, key=lambda run: run.fire_at_ms)
    lines = "\n".join(map(shown, ticks))
    assert [b.fire_at_ms - a.fire_at_ms for a, b in pairwise(ticks)] == [SECOND_MS] * (len(ticks) - 1), lines
    until_ms = 0
    for run in ticks:
        if run.status == "skipped":
            ahead = [other for other in ticks if other.status != "skipped" and other.id < run.id]
            is_beside = run.fire_at_ms < until_ms + EDGE_MS or any(run.fire_at_ms < one.fire_at_ms for one in ahead)
            assert is_beside, f"skipped although nothing ran: {shown(run)}\n{lines}"
        else:
            assert run.started_at_ms >= until_ms - EDGE_MS / 10, f"began beside another: {shown(run)}\n{lines}"
            until_ms = run.started_at_ms + run.duration_ms


def check_single(runs: list[Run], lives: list[Life]) -> None:
    """Policies 2 and 3: each tick has one line over all nodes, a run for each that was not skipped, no two at once."""
    assert len({run.tick_ms for run in runs}) == len(runs)
    assert sorted(life.fire_ms for life in lives) == sorted(run.fire_at_ms for run in runs if run.status != "skipped")
    assert overlaps(lives) == 0
    check_skips(runs)


def enough(count: Callable[[], int], wanted: int, what: str) -> None:
    """Wait until so many have happened."""
    wait_for(lambda: count() >= wanted, 60, f"{wanted} {what}")

