"""SIGUSR1: every slot in the log, and nobody disturbed."""

import os
import signal

import pytest

from outboxd.vitals import TOTALS
from tests.lifecycle.supervised import Start


def test_usr1_logs_every_slot(start: Start) -> None:
    """What a person without a dashboard needs: who runs since when, when it last beat, what it has and has done."""
    daemon = start("--behaviour", "crash_once,crash_at_boot,idle", "--backoff", "5", "--workers", "3")
    daemon.wait_for("worker_exited", 2)
    workers = daemon.wait_for("worker_started", 1, "lane-03")
    daemon.signal(signal.SIGUSR1)
    lines = {line["worker"]: line for line in daemon.wait_for("worker_status", 3)}
    assert list(lines) == ["lane-01", "lane-02", "lane-03"]
    waiting, idle = lines["lane-01"], lines["lane-03"]
    assert (waiting["state"], waiting["pid"], waiting["starts"], waiting["delivered"]) == ("backoff", None, 1, 1)
    assert (waiting["age_s"], waiting["heartbeat_age_s"]) == (None, None)
    assert (idle["state"], idle["pid"], idle["starts"], idle["in_flight"]) == ("running", workers[0]["pid"], 1, 0)
    assert 0 <= idle["heartbeat_age_s"] < 2
    assert 0 <= idle["age_s"] < 10
    assert set(TOTALS) <= idle.keys()


def test_usr1_shows_what_a_removed_worker_had_done(start: Start) -> None:
    """Else the sums of a lane would fall when it is made smaller."""
    daemon = start("--behaviour", "busy", "--workers", "2")
    daemon.workers(2)
    daemon.reload("--workers", "1")
    daemon.wait_for("reload_finished")
    daemon.signal(signal.SIGUSR1)
    _, removed = daemon.wait_for("worker_status", 2)
    assert (removed["worker"], removed["state"], removed["pid"], removed["delivered"]) == ("lane-02", "done", None, 1)


def test_usr1_shows_a_drain_and_a_worker_that_is_given_up(start: Start) -> None:
    """When it is most wanted: something does not end."""
    daemon = start("--behaviour", "slow,stubborn", "--workers", "2", "--drain-limit", "60")
    workers = daemon.workers(2)
    os.kill(workers["lane-02"], signal.SIGSTOP)
    daemon.signal()
    daemon.wait_for("drain_started")
    daemon.signal(signal.SIGUSR1)
    states = [line["state"] for line in daemon.wait_for("worker_status", 2)]
    assert states == ["stopping", "stopping"]


@pytest.mark.parametrize("times", [50])
def test_usr1_often_disturbs_nobody(start: Start, times: int) -> None:
    """It is a question, not an order."""
    daemon = start()
    before = daemon.workers()
    for _ in range(times):
        daemon.signal(signal.SIGUSR1)
    daemon.wait_for("worker_status", 3)
    assert daemon.running() == before
    daemon.signal()
    assert daemon.end()[0] == 0
