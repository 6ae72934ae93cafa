"""What becomes of the ticks of a job that takes longer than its pause, under each policy, on one node and on three."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.job_nodes import check_single, check_skips, end, enough, make_tables, mounted, running
from tests.services.chaos import FULL, scaled
from tests.services.jobs import Table, open_table, overlaps
from tests.services.redis_server import RedisServer

NAP_S = scaled(5.0, 2.5)
"""Of a job that is due every second."""
RUNS = scaled(6, 2)
"""One after the other."""


@pytest.fixture
def table(database_url: str, tmp_path: Path) -> Iterator[Table]:
    """Of each kind of database, empty."""
    make_tables(database_url)
    yield from open_table(database_url, tmp_path / "marks")


@pytest.fixture
def shared(mysql_url: str, tmp_path: Path) -> Iterator[Table]:
    """Of nodes on different machines."""
    make_tables(mysql_url)
    yield from open_table(mysql_url, tmp_path / "marks")


def test_what_is_sync_is_skipped_while_it_runs_on_one_node(table: Table, database_url: str, tmp_path: Path) -> None:
    """All three policies: one run after the other, ticks in between are skipped, logged and counted, none is queued."""
    ids = {policy: table.add(f"job {policy}", execute_policy=policy, nap_s=NAP_S) for policy in (1, 2, 3)}
    with running(tmp_path, database_url) as (daemon,):
        enough(lambda: min(len(table.runs(job_id, "succeeded")) for job_id in ids.values()), RUNS, "runs of each job")
        end([daemon])
    for policy, job_id in ids.items():
        runs, lives = table.runs(job_id), table.lives(f"job {policy}")
        assert overlaps(lives) == 0
        assert len(lives) == len([run for run in runs if run.status != "skipped"])
        check_skips(runs)
        assert {run.message for run in runs if run.status == "skipped"} == {"the last run goes on"}
        assert {run.tick_ms for run in runs} == ({None} if policy == 1 else {run.fire_at_ms for run in runs})


def test_what_is_not_sync_overlaps_under_policy_1_alone(table: Table, database_url: str, tmp_path: Path) -> None:
    """Policy 1: every tick starts. 2 and 3: the lock is taken, and the tick gives up."""
    ids = {policy: table.add(f"job {policy}", execute_policy=policy, is_sync=0, nap_s=NAP_S) for policy in (1, 2, 3)}
    with running(tmp_path, database_url) as (daemon,):
        enough(lambda: min(len(table.runs(job_id, "succeeded")) for job_id in ids.values()), RUNS, "runs of each job")
        end([daemon])
    runs, lives = table.runs(ids[1]), table.lives("job 1")
    assert [run for run in runs if run.status == "skipped"] == []
    assert sorted(life.fire_ms for life in lives) == sorted(run.fire_at_ms for run in runs)
    ticks = sorted(life.fire_ms for life in lives)
    assert ticks == list(range(ticks[0], ticks[-1] + 1, 1000)), "every second's"
    assert overlaps(lives) == len(lives) - 1
    for policy in (2, 3):
        runs = table.runs(ids[policy])
        check_single(runs, table.lives(f"job {policy}"))
        assert {run.message for run in runs if run.status == "skipped"} == {"another run has the job's lock"}


@pytest.mark.parametrize("is_sync", [1, 0], ids=["sync", "async"])
def test_a_tick_runs_once_over_three_nodes(
    shared: Table, mysql_url: str, own_redis: RedisServer, tmp_path: Path, is_sync: int
) -> None:
    """Policies 2 and 3: one line for each tick over all nodes, one run at a time, the rest skipped. Policy 1: each node
    for itself, as if the others were not there.
    """
    ids = {
        policy: shared.add(f"job {policy}", execute_policy=policy, is_sync=is_sync, nap_s=NAP_S)
        for policy in (1, 2, 3)
    }
    with running(tmp_path, mysql_url, 3, own_redis.url) as daemons:
        mounted(daemons, 3)
        enough(lambda: min(len(shared.runs(job_id, "succeeded")) for job_id in ids.values()), RUNS + 1, "runs of each")
        end(daemons)
        assert not [line for daemon in daemons for line in daemon.lines("job_lock_local")]
    for policy in (2, 3):
        check_single(shared.runs(ids[policy]), shared.lives(f"job {policy}"))
    for node_id in ("node", "node-2", "node-3"):
        runs = [run for run in shared.runs(ids[1]) if run.node_id == node_id]
        lives = [life for life in shared.lives("job 1") if life.node_id == node_id]
        begun = [run for run in runs if run.status != "skipped"]
        assert sorted(life.fire_ms for life in lives) == sorted(run.fire_at_ms for run in begun)
        if is_sync:
            assert overlaps(lives) == 0
            check_skips(runs)
        else:
            assert overlaps(lives) == len(lives) - 1
            assert [run for run in runs if run.status == "skipped"] == []


def test_policy_1_once_per_tick_runs_on_the_node_that_comes_first(
    shared: Table, mysql_url: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    """jobs.once_per_tick: overlap is allowed, a second run of the same tick is not."""
    job_id = shared.add("job", is_sync=0, nap_s=1.5)
    with running(tmp_path, mysql_url, 3, own_redis.url, once_per_tick=True) as daemons:
        mounted(daemons)
        enough(lambda: len(shared.runs(job_id, "succeeded")), 5, "runs")
        end(daemons)
    runs, lives = shared.runs(job_id), shared.lives()
    ticks = sorted(run.fire_at_ms for run in runs)
    assert ticks == list(range(ticks[0], ticks[-1] + 1, 1000))
    assert sorted(life.fire_ms for life in lives) == ticks
    assert overlaps(lives) > 0


def test_the_sample_is_the_scene_itself_when_all_is_asked_for() -> None:
    """A 5 s job on a 1 s schedule."""
    assert (NAP_S == 5.0) == FULL
