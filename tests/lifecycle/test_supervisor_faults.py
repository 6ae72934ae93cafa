"""What the supervisor does about workers that hang, and about itself being frozen, misused or refused a process."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifecycle.supervised import Supervised, is_sleeping
from tests.services.wait import wait_for


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where a supervisor logs."""
    return tmp_path / "log"


@pytest.fixture
def daemon(log: Path, request: pytest.FixtureRequest) -> Iterator[Supervised]:
    """A supervisor with the arguments of the test's mark `arguments`."""
    supervised = Supervised(log, *request.param)
    yield supervised
    supervised.stop()


def with_arguments(*arguments: str) -> pytest.MarkDecorator:
    """The test's `daemon` runs with these."""
    return pytest.mark.parametrize("daemon", [arguments], indirect=True, ids=["-".join(arguments).replace("--", "")])


@with_arguments("--behaviour", "silent,idle", "--heartbeat-limit", "0.6")
def test_a_silent_worker_shows_its_threads_and_is_replaced(daemon: Supervised) -> None:
    """A person needs to see where it hung; the others go on."""
    daemon.wait_for("worker_started", 2, "lane-01")
    assert daemon.lines("worker_hung")[0]["silent_s"] == pytest.approx(0.6, abs=0.3)
    dump = daemon.log.read_text(encoding="utf-8")
    assert "Fatal Python error: Aborted" in dump
    assert "in silent" in dump
    assert [line["how"] for line in daemon.lines("worker_exited")] == ["SIGABRT"]
    assert {line["worker"] for line in daemon.lines("worker_hung")} == {"lane-01"}


@pytest.mark.parametrize(
    ("daemon", "how"),
    [
        (("--behaviour", "hung_in_c,idle", "--heartbeat-limit", "0.6"), "SIGABRT"),
        (("--behaviour", "deaf_in_c,idle", "--heartbeat-limit", "0.6"), "SIGKILL"),
    ],
    indirect=["daemon"],
    ids=["in-c", "in-c-and-deaf"],
)
def test_a_worker_that_hangs_in_a_c_call_is_replaced(daemon: Supervised, how: str) -> None:
    """It holds the interpreter's lock: only what needs no Python in it helps, a signal's default or SIGKILL."""
    daemon.wait_for("worker_started", 2, "lane-01")
    assert [line["how"] for line in daemon.lines("worker_exited")] == [how]
    assert {line["worker"] for line in daemon.lines("worker_hung")} == {"lane-01"}
    assert len(daemon.lines("worker_killed")) == (how == "SIGKILL")


@with_arguments("--behaviour", "hung_at_boot,idle", "--startup-timeout", "0.6")
def test_a_worker_that_does_not_come_up_is_replaced_with_backoff(daemon: Supervised) -> None:
    """A child that hangs between fork and its first beat would otherwise never be missed."""
    daemon.wait_for("worker_started", 2, "lane-01")
    assert daemon.lines("worker_restarting")[0]["failures"] == 1
    assert {line["worker"] for line in daemon.lines("worker_hung")} == {"lane-01"}


@with_arguments("--heartbeat-limit", "0.6")
def test_a_worker_that_was_stopped_is_woken_to_show_its_threads_and_replaced(daemon: Supervised) -> None:
    """A stopped process hears no SIGABRT until it goes on."""
    os.kill(daemon.workers()["lane-02"], signal.SIGSTOP)
    daemon.wait_for("worker_started", 2, "lane-02")
    (exited,) = daemon.lines("worker_exited")
    assert (exited["worker"], exited["how"]) == ("lane-02", "SIGABRT")
    assert "Fatal Python error: Aborted" in daemon.log.read_text()
    daemon.signal()
    assert daemon.end()[0] == 0, "an end before the drain is no failure of the drain"


@with_arguments("--heartbeat-limit", "0.6")
def test_a_freeze_of_all_is_not_held_against_the_workers(daemon: Supervised) -> None:
    """A container that was suspended goes on where it was; the monotonic clock had not stopped."""
    workers = daemon.workers().values()
    for pid in (daemon.pid, *workers):
        os.kill(pid, signal.SIGSTOP)
    thawed_s = time.monotonic() + 2.0
    wait_for(lambda: time.monotonic() > thawed_s, 5.0, "the freeze to pass every limit")
    os.kill(daemon.pid, signal.SIGCONT)
    wait_for(lambda: is_sleeping(daemon.pid), 5.0, "the supervisor to look at its workers first")
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    daemon.signal()
    assert daemon.end()[0] == 0
    assert daemon.lines("worker_hung") == []


@with_arguments("--behaviour", "idle,crash_once", "--backoff", "1", "--tick", "thread")
def test_no_fork_happens_beside_a_thread(daemon: Supervised) -> None:
    """A lock that a thread holds at the fork stays locked in the child for ever: better to end, with all workers."""
    status, _ = daemon.end()
    assert status != 0
    assert "2 threads in the supervisor before a fork" in daemon.log.read_text(encoding="utf-8")
    assert daemon.left_behind() == []


@with_arguments("--workers", "1", "--behaviour", "crash_at_boot", "--tick", "no_processes")
def test_a_refused_fork_is_tried_again(daemon: Supervised) -> None:
    """A machine that is out of processes or memory for a while must not cost the slot."""
    daemon.wait_for("worker_start_failed", 2)
    daemon.wait_for("worker_started", 2)
    assert all("temporarily unavailable" in line["error"] for line in daemon.lines("worker_start_failed"))
    daemon.signal()
    assert daemon.end()[0] == 0
