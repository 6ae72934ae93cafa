"""The daemon as a service: started from the unit file as systemd does it, by a test that plays systemd."""

import os
import shlex
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.daemon import Daemon, is_running
from tests.services.service_manager import ServiceManager
from tests.services.unit_file import Service, seconds, value

SETTINGS = """
node_id: node
database: {url: "sqlite:///outboxd.db"}
admin: {listen: ""}
outbox_worker: {direct: [webhook], concurrency: CONCURRENCY}
lanes: {room_outbox: {}}
publishers:
  webhook:
    type: http
    url: http://127.0.0.1:9/events
    authorization_file: ${CREDENTIALS_DIRECTORY:-/etc/outboxd}/webhook_authorization
"""
WORKERS = 2


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ServiceManager]:
    """What listens at $NOTIFY_SOCKET."""
    with ServiceManager(str(tmp_path / "notify")) as listening:
        yield listening


@pytest.fixture
def service(tmp_path: Path, manager: ServiceManager) -> Service:
    """Configured, with a secret that only systemd hands over."""
    made = Service(tmp_path, manager)
    configure(made)
    (made.credentials / "webhook_authorization").write_text("Bearer of-the-receiver", encoding="utf-8")
    return made


def configure(service: Service, workers: int = WORKERS) -> None:
    text = SETTINGS.replace("CONCURRENCY", str(workers))
    (service.settings / "outbox.yaml").write_text(text, encoding="utf-8")


def reload(daemon: Daemon) -> None:
    """What ExecReload says."""
    command = shlex.split(value("ExecReload").replace("$MAINPID", str(daemon.pid)))
    assert subprocess.run(command, check=False).returncode == 0


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_unit_starts_reloads_and_stops_the_daemon(service: Service, manager: ServiceManager) -> None:
    """G5: what systemd waits for is told: READY, RELOADING with its moment and READY again, STOPPING; the end is 0."""
    with service.start() as daemon:
        manager.wait_for("READY=1")
        manager.wait_for(f"STATUS={WORKERS} of {WORKERS} workers run")
        manager.wait_for("WATCHDOG=1")
        configure(service, WORKERS + 1)
        before_us = time.monotonic_ns() // 1000
        reload(daemon)
        manager.wait_for("READY=1", 2)
        (reloading,) = manager.wait_for("RELOADING=1")
        assert before_us <= int(reloading.fields["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        manager.wait_for(f"STATUS={WORKERS + 1} of {WORKERS + 1} workers run")
        os.kill(daemon.pid, signal.SIGTERM)  # KillMode=mixed
        status, took_s = daemon.end()
        assert (status, daemon.left_behind()) == (0, [])
        assert took_s < seconds("TimeoutStopSec")
        assert manager.told() == ["READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]
        assert {message.pid for message in manager.receive()} == {daemon.pid}, "NotifyAccess=main: of others no word"


def test_what_it_writes_is_in_its_own_directories(service: Service, manager: ServiceManager) -> None:
    """G11: state and socket where the unit has made a place for them, for its user only; and gone when it ends."""
    with service.start() as daemon:
        manager.wait_for("READY=1")
        assert mode(service.state / "outboxd.db") == 0o600
        assert mode(service.runtime / "outboxd.sock") == 0o600
        assert stat.S_ISSOCK((service.runtime / "outboxd.sock").stat().st_mode)
        os.kill(daemon.pid, signal.SIGTERM)
        assert daemon.end()[0] == 0
    assert [path.name for path in service.runtime.iterdir() if path.name.startswith("metrics")] == []


def test_a_configuration_that_cannot_be_used_is_not_started_again(service: Service, manager: ServiceManager) -> None:
    """RestartPreventExitStatus: here a credential that the unit was not told to load."""
    (service.credentials / "webhook_authorization").unlink()
    with service.start() as daemon:
        assert daemon.end()[0] == int(value("RestartPreventExitStatus"))
    assert manager.told() == []
    assert daemon.text().startswith("outboxd: publishers.webhook.authorization_file: ")


def test_a_supervisor_that_was_killed_leaves_nobody_who_would_disturb_its_successor(
    service: Service, manager: ServiceManager
) -> None:
    """Restart=on-failure starts the next one into the same directories."""
    with service.start() as daemon:
        manager.wait_for("READY=1")
        workers = daemon.workers(WORKERS)
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.end()
        with service.start() as successor:
            manager.wait_for("READY=1", 2)
            successor.wait_until(lambda: not any(map(is_running, workers.values())), "the old workers to be gone")
            os.kill(successor.pid, signal.SIGTERM)
            assert successor.end()[0] == 0
