"""The supervisor under a service manager: what it tells, from start to end, with real processes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lifecycle.supervised import Start, Supervised, is_sleeping
from tests.services.service_manager import ServiceManager
from tests.services.wait import wait_for

WATCHDOG = {"WATCHDOG_USEC": "600000"}
"""Fed every 0.3 s."""


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ServiceManager]:
    """What listens at $NOTIFY_SOCKET."""
    with ServiceManager(str(tmp_path / "notify")) as listening:
        yield listening


def test_a_life_is_told_from_start_to_end(start: Start, manager: ServiceManager) -> None:
    """READY, RELOADING and READY again, STOPPING; by the supervisor only, for only its word counts."""
    daemon = start(NOTIFY_SOCKET=manager.address, **WATCHDOG)
    manager.wait_for("READY=1")
    manager.wait_for("STATUS=3 of 3 workers run")
    manager.wait_for("WATCHDOG=1", 3)
    daemon.reload()
    manager.wait_for("READY=1", 2)
    daemon.signal()
    manager.wait_for("STOPPING=1")
    assert daemon.end()[0] == 0
    assert manager.told() == ["READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]
    assert {message.pid for message in manager.receive()} == {daemon.pid}


@pytest.mark.parametrize("file", [["bad\nno"], ["--check", "finds_something"], ["--behaviour", "crash_at_boot"]])
def test_a_reload_that_is_refused_or_stops_is_followed_by_ready_all_the_same(
    start: Start, manager: ServiceManager, file: list[str]
) -> None:
    """The manager waits for it: what runs goes on running."""
    daemon = start(NOTIFY_SOCKET=manager.address)
    manager.wait_for("READY=1")
    daemon.reload(*file)
    manager.wait_for("READY=1", 2)
    assert manager.told() == ["READY=1", "RELOADING=1", "READY=1"]


def test_ready_waits_for_the_first_worker_of_every_lane(start: Start, manager: ServiceManager) -> None:
    """A daemon that relays one of its two lanes has not started."""
    lanes = ("--lanes", "2", "--workers", "4")
    daemon = start(*lanes, "--behaviour", "idle,crash_at_boot,idle,crash_at_boot", NOTIFY_SOCKET=manager.address)
    daemon.wait_for("worker_restarting", 4)
    manager.wait_for("STATUS=2 of 4 workers run")
    assert manager.told() == []
    daemon.reload(*lanes, "--behaviour", "idle,idle,idle,crash_at_boot")
    daemon.wait_for("reload_stopped")
    manager.wait_for("READY=1")
    assert manager.told() == ["READY=1"], "one worker of each lane is up"


def test_a_supervisor_that_hangs_does_not_feed_the_watchdog(start: Start, manager: ServiceManager) -> None:
    """Nor do its workers for it: that is what the watchdog is for."""
    daemon = start(NOTIFY_SOCKET=manager.address, **WATCHDOG)
    manager.wait_for("WATCHDOG=1", 2)
    os.kill(daemon.pid, signal.SIGSTOP)
    fed = len(manager.wait_for("WATCHDOG=1"))
    with pytest.raises(AssertionError):
        manager.wait_for("WATCHDOG=1", fed + 2, timeout_s=0.9)
    os.kill(daemon.pid, signal.SIGCONT)
    manager.wait_for("WATCHDOG=1", fed + 2)


def test_the_watchdog_is_fed_by_the_process_that_it_names_only(tmp_path: Path, manager: ServiceManager) -> None:
    """Started by a shell that is watched itself, or as it should be: $WATCHDOG_PID is the test's, then its own."""
    other = Supervised(tmp_path / "log", NOTIFY_SOCKET=manager.address, WATCHDOG_PID=str(os.getpid()), **WATCHDOG)
    try:
        manager.wait_for("READY=1")
        with pytest.raises(AssertionError):
            manager.wait_for("WATCHDOG=1", timeout_s=0.7)
    finally:
        other.stop()


def test_children_do_not_inherit_the_managers_variables(start: Start, manager: ServiceManager) -> None:
    """A program that a worker starts and that knows systemd would speak for the whole service."""
    daemon = start("--behaviour", "shows_environment", NOTIFY_SOCKET=manager.address, WATCHDOG_PID="1", **WATCHDOG)
    assert {line["message"] for line in daemon.wait_for("config_warning", 3)} == {""}


def test_a_manager_that_goes_harms_nobody(start: Start, manager: ServiceManager) -> None:
    """And one that comes back is told again."""
    daemon = start(NOTIFY_SOCKET=manager.address, **WATCHDOG)
    manager.wait_for("READY=1")
    manager.close()
    daemon.reload()
    daemon.wait_for("reload_finished")
    os.unlink(manager.address)
    daemon.reload()
    daemon.wait_for("reload_finished", 2)
    with ServiceManager(manager.address) as successor:
        successor.wait_for("WATCHDOG=1", 2)
    daemon.signal()
    assert daemon.end()[0] == 0


def test_without_a_manager_an_idle_supervisor_sleeps(start: Start) -> None:
    """No tick, no poll: nothing to do is no work."""
    daemon = start()
    daemon.workers()
    wait_for(lambda: is_sleeping(daemon.pid), 5.0, "the supervisor to sleep")
    daemon.signal(signal.SIGUSR1)
    daemon.wait_for("worker_status", 3)

    def times_it_slept() -> int:
        lines = Path(f"/proc/{daemon.pid}/status").read_text("ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:"))

    wait_for(lambda: is_sleeping(daemon.pid), 5.0, "the supervisor to sleep again")
    before = times_it_slept()
    with pytest.raises(AssertionError):
        wait_for(lambda: times_it_slept() > before + 1, 1.0, "it to wake up")
