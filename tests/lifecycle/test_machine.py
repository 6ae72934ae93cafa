"""What `make install` has installed, run by a real systemd in a machine of its own."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator

import pytest

from tests.services.machine import Machine, machine
from tests.services.packages import Installation, Packages
from tests.services.unit_file import DROP_INS
from tests.services.wait import wait_for

WAIT_S = 30.0
EMBEDDED = """
database: {url: "sqlite:////var/lib/outboxd/outboxd.db"}
outbox_worker: {direct: [console], concurrency: CONCURRENCY, poll_interval: 100ms}
lanes: {room_outbox: {}}
publishers: {console: {type: console}}
"""
HOMES = ("/root/", "/home/")
SOON = "[Service]\nRestartSec=100ms\n"
"""A crash is not waited for as long as in life."""


@pytest.fixture(scope="module")
def booted(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """The machine, with outboxd as it is after `make install`."""
    with machine(tmp_path_factory.mktemp("machine"), installation.root) as running:
        if (python := os.path.realpath(sys.base_prefix)).startswith(HOMES):
            # Which make install refuses, save for DESTDIR. The service sees of the homes what it needs.
            running.add("python.conf", f"[Service]\nProtectHome=tmpfs\nBindReadOnlyPaths={python}\n")
        running.add("soon.conf", SOON)
        yield running


@pytest.fixture
def host(booted: Machine) -> Iterator[Machine]:
    """The machine with the embedded database configured, and outboxd not running."""
    configure(booted)
    yield booted
    booted.systemctl("stop", "outboxd")
    booted.run("systemctl", "reset-failed", "outboxd")


def configure(host: Machine, workers: int = 2, text: str = EMBEDDED) -> None:
    path = host.root / "etc/outboxd/outbox.yaml"
    path.write_text(text.replace("CONCURRENCY", str(workers)), encoding="utf-8")


def wait_for_status(host: Machine, text: str) -> None:
    """What `systemctl status` shows."""
    wait_for(lambda: text in host.shown("StatusText"), WAIT_S, f"the status to say {text!r}")


def journal(host: Machine) -> str:
    return host.run("journalctl", "--unit=outboxd", "--no-pager", "--output=cat").stdout


def command(host: Machine, *arguments: str) -> str:
    """What root types, whatever the directory."""
    done = host.run("outboxd", "--config", "/etc/outboxd/outbox.yaml", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def main_pid(host: Machine) -> int:
    """Of the supervisor, inside."""
    return int(host.shown("MainPID"))


def test_it_starts_relays_reloads_and_stops(host: Machine) -> None:
    """G5: with everything that the unit forbids; what it says and publishes to standard output is in the journal."""
    host.systemctl("start", "outboxd")
    assert host.shown("ActiveState") == "active"
    wait_for_status(host, "2 of 2 workers run")
    command(host, "enqueue", "--type", "RoomCreated", "--room", "room-42", "--event-id", "first", "{}")
    wait_for_status(host, "1 delivered")
    wait_for(lambda: '"event_id":"first"' in journal(host), WAIT_S, "the event to be in the journal")

    pid = main_pid(host)
    configure(host, workers=3)
    host.systemctl("reload", "outboxd")
    wait_for_status(host, "3 of 3 workers run")
    assert (main_pid(host), host.shown("NRestarts")) == (pid, "0")

    runtime = host.root / "run/outboxd"
    assert (runtime / "outboxd.sock").stat().st_uid == runtime.stat().st_uid != 0
    host.systemctl("stop", "outboxd")
    assert (host.shown("ActiveState"), host.shown("ExecMainStatus")) == ("inactive", "0")
    assert not runtime.exists()
    assert '"event":"drain_finished"' in journal(host)


def test_it_is_started_again_after_a_crash(host: Machine) -> None:
    """kill -9 of the supervisor; its workers are gone before their successors come."""
    host.systemctl("start", "outboxd")
    before = main_pid(host)
    host.run("kill", "-KILL", str(before))
    wait_for(lambda: main_pid(host) not in (0, before), WAIT_S, "a new supervisor")
    host.wait_until("ActiveState", "active")
    wait_for_status(host, "2 of 2 workers run")
    assert host.shown("NRestarts") == "1"


def test_a_supervisor_that_hangs_is_replaced_by_the_watchdog(host: Machine) -> None:
    """It shows where it hung: SIGABRT makes Python dump its stacks."""
    host.add("watchdog.conf", "[Service]\nWatchdogSec=2s\n")
    try:
        host.systemctl("start", "outboxd")
        before = main_pid(host)
        host.run("kill", f"-{signal.SIGSTOP.name}", str(before))
        wait_for(lambda: main_pid(host) not in (0, before), WAIT_S, "a new supervisor")
        host.wait_until("ActiveState", "active")
        assert host.shown("NRestarts") == "1"
        assert "Watchdog timeout" in journal(host)
    finally:
        (host.root / "run/units/outboxd.service.d/watchdog.conf").unlink()
        host.systemctl("daemon-reload")


def test_a_configuration_that_cannot_be_used_is_not_tried_again(host: Machine) -> None:
    """RestartPreventExitStatus: `systemctl start` fails, and the journal says why."""
    configure(host, text="nonsense: true")
    assert host.run("systemctl", "start", "outboxd").returncode != 0
    assert (host.shown("ActiveState"), host.shown("ExecMainStatus")) == ("failed", "2")
    assert host.shown("NRestarts") == "0"
    assert "nonsense: unknown key" in journal(host)


def test_the_installed_example_starts_with_credentials_that_only_root_may_read(host: Machine) -> None:
    """G11, G10: its database is away, which is waited for; the password is handed over by systemd."""
    example = (host.root / "etc/outboxd/outbox.yaml.example").read_text(encoding="utf-8")
    configure(host, text=example.replace("db.internal", "127.0.0.1"))
    secret = host.root / "etc/outboxd/database_password"
    secret.write_text("of-the-database", encoding="utf-8")
    secret.chmod(0o600)
    assert host.run("systemctl", "start", "outboxd").returncode != 0, "without the drop-in there is no password"
    drop_in = DROP_INS / "credentials.conf.example"
    host.add(drop_in.stem, drop_in.read_text(encoding="utf-8"))
    try:
        host.systemctl("start", "outboxd")
        wait_for(lambda: "database_unavailable" in journal(host), WAIT_S, "it to look for its database")
        assert host.shown("ActiveState") == "active"
        assert "of-the-database" not in journal(host)
    finally:
        (host.root / "run/units/outboxd.service.d" / drop_in.stem).unlink()
        host.systemctl("daemon-reload")


def test_uninstalling_refuses_while_it_runs_and_then_removes_it(host: Machine, packages: Packages) -> None:
    """The last test here: a daemon whose program is gone could replace no worker. Configuration and data stay."""
    tree = host.root / "opt/tree"
    shutil.copytree(packages.unpacked / "systemd", tree / "systemd")
    shutil.copy(packages.unpacked / "Makefile", tree)
    host.systemctl("start", "outboxd")
    refused = host.run("make", "-C", "/opt/tree", "uninstall")
    assert refused.returncode != 0
    assert "systemctl disable --now outboxd" in refused.stderr
    assert (host.root / "opt/outboxd/bin/outboxd").exists()
    host.systemctl("stop", "outboxd")
    done = host.run("make", "-C", "/opt/tree", "uninstall")
    assert done.returncode == 0, done.stderr
    gone = ("opt/outboxd", "usr/local/bin/outboxd", "etc/systemd/system/outboxd.service")
    assert [name for name in gone if os.path.lexists(host.root / name)] == []
    assert (host.root / "etc/outboxd/outbox.yaml").exists()
    assert (host.root / "var/lib/private/outboxd/outboxd.db").exists()
