"""sd_notify, over real datagram sockets and given times."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outboxd.supervisor.systemd import Notifier, Phase
from tests.services.service_manager import ServiceManager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ServiceManager]:
    """What listens at $NOTIFY_SOCKET."""
    with ServiceManager(str(tmp_path / "notify")) as listening:
        yield listening


def notifier(manager: ServiceManager, **environ: str) -> Notifier:
    """Ours, as the manager starts it."""
    return Notifier({"NOTIFY_SOCKET": manager.address, **environ})


def always(text: str) -> Callable[[], str]:
    """A status that does not change."""
    return lambda: text


def test_each_phase_is_told_once(manager: ServiceManager) -> None:
    """The manager waits for READY, also after a reload, and RELOADING says when it began."""
    ours = notifier(manager)
    before_us = time.monotonic_ns() // 1000
    phases = [Phase.STARTING, Phase.READY, Phase.READY, Phase.RELOADING, Phase.RELOADING, Phase.READY, Phase.STOPPING]
    for now_s, phase in enumerate(phases):
        ours.turn(float(now_s), phase, always("x"))
    assert manager.told() == ["READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]
    (reloading,) = manager.wait_for("RELOADING=1")
    assert before_us <= int(reloading.fields["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert {message.pid for message in manager.receive()} == {os.getpid()}, "of others the manager takes no word"


def test_a_reload_before_the_first_ready_is_not_told(manager: ServiceManager) -> None:
    """The READY that ends it would be taken for the end of the start."""
    ours = notifier(manager)
    ours.tell(Phase.RELOADING)
    ours.turn(1.0, Phase.STARTING, always("x"))
    assert manager.told() == []
    ours.turn(2.0, Phase.READY, always("x"))
    assert manager.told() == ["READY=1"]


def test_the_status_is_told_when_it_changes_and_once_a_second_at_most(manager: ServiceManager) -> None:
    """A daemon that relays thousands of events a second does not write to the manager for each."""
    ours = notifier(manager)
    for tenth in range(100):  # ten seconds
        ours.turn(100 + tenth / 10, Phase.READY, always(f"{tenth} delivered" if tenth < 50 else "50 delivered"))
    assert 5 <= len(manager.told("STATUS")) <= 7
    assert manager.told("STATUS")[-1] == "STATUS=50 delivered"
    assert ours.wake_at() <= 111.0


@pytest.mark.parametrize("pid", ["", str(os.getpid())])
def test_the_watchdog_is_fed_at_half_its_time(manager: ServiceManager, pid: str) -> None:
    """From the loop's turns alone: one that hangs feeds nobody."""
    ours = notifier(manager, WATCHDOG_USEC="4000000", WATCHDOG_PID=pid)
    fed_s: list[float] = []
    for tenth in range(100):
        ours.turn(100 + tenth / 10, Phase.READY, always("x"))
        if len(manager.told("WATCHDOG")) > len(fed_s):
            fed_s.append(tenth / 10)
    assert fed_s == pytest.approx([0.0, 2.0, 4.0, 6.0, 8.0], abs=0.11)


@pytest.mark.parametrize(
    "environ",
    [{"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "0"}, {}],
)
def test_a_watchdog_that_is_not_ours_is_not_fed(manager: ServiceManager, environ: dict[str, str]) -> None:
    """Whoever started us may be the one that is watched."""
    ours = notifier(manager, **environ)
    for now_s in range(10):
        ours.turn(float(now_s), Phase.READY, always("x"))
    assert manager.told("WATCHDOG") == []


def test_an_abstract_socket_is_found(tmp_path: Path) -> None:
    """A name that begins with @ is no path."""
    with ServiceManager(f"@outboxd-test-{os.getpid()}-{tmp_path.name}") as listening:
        notifier(listening).tell(Phase.READY)
        assert listening.told() == ["READY=1"]


def test_the_variables_are_taken_out_of_the_environment(manager: ServiceManager) -> None:
    """A child that inherited them could end the start, or keep the watchdog quiet, on our behalf."""
    environ = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "HOME": "/"}
    Notifier(environ)
    assert environ == {"HOME": "/"}


@pytest.mark.parametrize("address", ["", "/nonexistent/notify", "@" + "x" * 300, "vsock:2:1234", "@"])
def test_a_socket_that_is_not_there_harms_nothing(address: str) -> None:
    """Not every manager speaks this, and one that does may go."""
    ours = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "2000000"})
    for now_s, phase in enumerate(Phase):
        ours.turn(float(now_s), phase, always("x"))


def test_without_a_manager_nothing_wakes_the_loop() -> None:
    """An idle daemon sleeps."""
    ours = Notifier({"WATCHDOG_USEC": "2000000"})
    ours.turn(1.0, Phase.READY, always("x"))
    assert ours.wake_at() == float("inf")


def test_a_manager_that_does_not_read_is_not_waited_for(manager: ServiceManager) -> None:
    """Its queue is full after some messages; the loop must go on."""
    ours = notifier(manager, WATCHDOG_USEC="2")
    since_s = time.monotonic()
    for now_s in range(2000):
        ours.turn(float(now_s), Phase.READY, always(str(now_s)))
    assert time.monotonic() - since_s < 2.0


def test_what_found_no_room_is_said_again(manager: ServiceManager) -> None:
    """A manager that is busy for a moment must not miss that we are ready: it would end us as one that never was."""
    ours = notifier(manager, WATCHDOG_USEC="2000000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as others:
        others.setblocking(False)
        with pytest.raises(BlockingIOError):
            [others.sendto(b"X=1", manager.address) for _ in range(10_000)]
    ours.turn(1.0, Phase.READY, always("x"))
    assert ours.wake_at() == pytest.approx(1.1)
    assert manager.told("READY", "STATUS", "WATCHDOG") == []
    ours.turn(1.1, Phase.READY, always("x"))
    assert manager.told("READY", "WATCHDOG") == ["READY=1", "WATCHDOG=1"]
    assert ours.wake_at() == pytest.approx(2.1)
