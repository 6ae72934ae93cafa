"""What the daemon inherits from whoever starts it: signals, limits, streams, a directory. It works, or says why not."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.services.daemon import Daemon, write_config
from tests.services.find import free_port, program, require
from tests.services.lanes import table_of
from tests.services.wait import let_pass

WORKERS = 2
NOTHING = {"nothing": {"type": "null"}}

ALL_BLOCKED = "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())"
ALL_IGNORED = "[signal.signal(n, signal.SIG_IGN) for n in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}]"


def after(code: str) -> tuple[str, ...]:
    """A Python program that does this and becomes the daemon."""
    return sys.executable, "-c", f"import os, signal, sys; {code}; os.execvp(sys.argv[1], sys.argv[1:])"


INHERITED = {
    "signals blocked": after(ALL_BLOCKED),
    "signals ignored": after(ALL_IGNORED),
    "no standard input": ("sh", "-c", 'exec "$@" <&-', "sh"),
    "no rights for new files": ("sh", "-c", 'umask 0777; exec "$@"', "sh"),
    "a directory that is gone": ("sh", "-c", 'cd "$(mktemp -d)" && rmdir "$PWD"; exec "$@"', "sh"),
    "few files": ("prlimit", "--nofile=16"),
}


@pytest.mark.parametrize("within", INHERITED.values(), ids=list(INHERITED))
def test_it_works_whatever_it_inherits(sqlite_url: str, tmp_path: Path, within: tuple[str, ...]) -> None:
    """G5, G9: it relays, shows a worker that hangs, replaces it and drains."""
    require(within[0], program(within[0]), f"{within[0]} is not installed")
    config = write_config(tmp_path / "outbox.yaml", sqlite_url, NOTHING, concurrency=WORKERS)
    with table_of(config) as table, started(tmp_path, within) as daemon:
        before = daemon.workers(WORKERS)
        table.fill(20)
        daemon.wait_until(table.is_done, "the events to be delivered")
        os.kill(before["room_outbox-01"], signal.SIGABRT)
        daemon.wait_for("worker_started", WORKERS + 1)
        assert [line["how"] for line in daemon.lines("worker_exited")] == ["SIGABRT"]
        assert "Fatal Python error: Aborted" in daemon.text()
        daemon.drain(3.0)


@contextmanager
def started(tmp_path: Path, within: tuple[str, ...], *arguments: str) -> Iterator[Daemon]:
    """A run of the daemon that is configured there."""
    with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log", *arguments, within=within) as daemon:
        yield daemon


def test_a_system_that_grants_no_process_is_one_plain_line(sqlite_url: str, tmp_path: Path) -> None:
    """A person learns which limits to look at, not where in the program it was noticed."""
    prlimit = require("prlimit", program("prlimit"), "prlimit is not installed")
    nobody: tuple[str, ...] = ()
    if os.getuid() == 0:  # whom the limit does not hold; without its rights Python could not be read everywhere
        rights = "+dac_override,+dac_read_search"
        setpriv = require("setpriv", program("setpriv"), "setpriv is not installed")
        nobody = (setpriv, "--reuid=54321", "--clear-groups", f"--inh-caps={rights}", f"--ambient-caps={rights}")
    write_config(tmp_path / "outbox.yaml", sqlite_url, NOTHING)
    with started(tmp_path, (*nobody, prlimit, "--nproc=0")) as daemon:
        assert daemon.end()[0] == 1
        (line,) = daemon.text().splitlines()
        assert line.startswith("outboxd: the system grants no more: Resource temporarily unavailable; look at the ")


def test_under_nohup_a_run_that_ends_by_itself_outlives_its_terminal(sqlite_url: str, tmp_path: Path) -> None:
    """`nohup outboxd run --until-empty`: SIGHUP was to be ignored. What asks it to end still does."""
    nohup = require("nohup", program("nohup"), "nohup is not installed")
    away = {"web": {"type": "http", "url": f"http://127.0.0.1:{free_port()}/"}}
    config = write_config(tmp_path / "outbox.yaml", sqlite_url, away, concurrency=WORKERS)
    with table_of(config) as table, started(tmp_path, (nohup,), "run", "--until-empty") as daemon:
        table.fill(1)
        daemon.workers(WORKERS)
        daemon.signal(signal.SIGHUP)
        let_pass(0.1)
        daemon.signal(signal.SIGUSR1)
        daemon.wait_for("worker_status", WORKERS)
        assert daemon.lines("drain_started") == []
        daemon.drain(3.0)


def test_a_log_that_nobody_reads_holds_up_neither_the_relay_nor_the_drain(sqlite_url: str, tmp_path: Path) -> None:
    """G5, G9: standard error is a pipe that is full: lines are lost, and nothing else."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    config = write_config(tmp_path / "outbox.yaml", sqlite_url, NOTHING, concurrency=WORKERS, log_level="debug")
    reader = os.open(pipe, os.O_RDWR)  # both ends, so that opening it waits for nobody
    try:
        with table_of(config) as table, started(tmp_path, ("sh", "-c", 'exec "$@" 2>"$0"', str(pipe))) as daemon:
            table.fill(2000)  # a line each: several times what a pipe holds
            daemon.wait_until(table.is_done, "the events to be delivered")
            table.fill(100)
            daemon.wait_until(table.is_done, "those that came later")
            daemon.drain(3.0)
    finally:
        os.close(reader)
