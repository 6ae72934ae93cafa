"""The daemon as PID 1, as in a container without an init: strangers are its children, and signals may be dropped."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.services.chaos import SEED, scaled
from tests.services.daemon import Daemon, write_config
from tests.services.find import program, require
from tests.services.lanes import table_of
from tests.services.processes import children_of, keeps, state_of
from tests.services.sinks import VARIABLE
from tests.services.wait import let_pass, wait_for

WORKERS = 2
BOOTS = scaled(60, 3)

STRANGERS = (0, 1, 70, 78, 255, -9, -11, -15)
"""How they end: with a status, two of which mean something in a worker, or by a signal."""

BEFORE = """
for status in 0 70 78; do (sleep 0.3; exit $status) & done
sh -c 'sleep 0.3; kill -9 $$' &
exec "$@"
"""
"""A shell that is PID 1 starts four processes and becomes the daemon."""
LEFT_BY_THE_SHELL = 4

TERMINATED_WHILE_LOADING = """
import os, runpy, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Finder())
sys.argv = ["outboxd", *sys.argv[sys.argv.index("--config"):]]
runpy.run_module("outboxd", run_name="__main__")
"""

Start = Callable[..., Daemon]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start the daemon as PID 1; its `pid` is the one that we know it by."""
    unshare = program("unshare")
    inside = [unshare or "", "--pid", "--fork", "--kill-child", "--mount-proc"]
    inside += [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    works = unshare is not None and subprocess.run([*inside, "true"], capture_output=True, check=False).returncode == 0
    require("pid-namespace", works or None, "no PID namespace can be made here")

    def start_one(*within: str, **environ: str) -> Daemon:
        daemon = Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log", within=[*inside, *within], **environ)
        (daemon.pid,) = wait_for(lambda: children_of(daemon.pid), 10.0, "PID 1")
        return daemon

    return start_one


def test_strangers_are_reaped_and_confuse_nobody(mysql_url: str, tmp_path: Path, start: Start) -> None:
    """G5: whatever they end with, before the daemon has forked anything and while it relays; SIGTERM drains."""
    sink = tmp_path / "published"
    sink.mkdir()
    config = write_config(
        tmp_path / "outbox.yaml",
        mysql_url,
        {"mine": {"type": "python", "target": "tests.services.sinks:Parting"}},
        concurrency=WORKERS,
        log_level="debug",
    )
    with table_of(config) as table, start("sh", "-c", BEFORE, "sh", **{VARIABLE: str(sink)}) as daemon:
        for how in STRANGERS:
            table.fill(3, event_type=f"Leaves{how}")
        daemon.wait_until(table.is_done, "the events to be delivered")
        daemon.wait_for("stranger_reaped", LEFT_BY_THE_SHELL + 3 * len(STRANGERS))
        family = children_of(daemon.pid)
        assert len(family) == WORKERS + 1, "the workers and the admin role"
        assert "Z" not in [state_of(pid) for pid in family]
        assert len(daemon.lines("worker_started")) == WORKERS
        assert daemon.lines("worker_exited") == []
        assert {(row["status"], row["retry_count"]) for row in table.rows()} == {("delivered", 0)}
        daemon.signal()
        assert daemon.end()[0] == 0
        assert {line["how"] for line in daemon.lines("worker_exited")} == {"exit status 0"}
        assert daemon.lines("drain_finished")[-1]["worker"] == "supervisor"
        assert [state_of(pid) for pid in family] == [""] * len(family)


@pytest.mark.parametrize("module", ["click", "outboxd.supervisor.loop"])
def test_sigterm_while_pid_1_is_still_being_loaded_is_not_lost(
    sqlite_url: str, tmp_path: Path, start: Start, module: str
) -> None:
    """G5: the kernel drops a signal that PID 1 has no handler for, and the container would have to be killed."""
    write_config(tmp_path / "outbox.yaml", sqlite_url, {"nothing": {"type": "null"}}, concurrency=WORKERS)
    with start(sys.executable, "-c", TERMINATED_WHILE_LOADING.format(module=module)) as daemon:
        assert daemon.end(10)[0] == 0, daemon.text()


def test_sigterm_during_the_boot_of_pid_1_ends_it_at_any_moment(sqlite_url: str, tmp_path: Path, start: Start) -> None:
    """G5: until the first worker runs, and while it comes up."""
    chance = random.Random(SEED)
    write_config(tmp_path / "outbox.yaml", sqlite_url, {"nothing": {"type": "null"}}, concurrency=WORKERS)
    for _ in range(BOOTS):
        with start() as daemon:
            wait_for(lambda pid=daemon.pid: is_our_code(pid), 10.0, "Python to come to it")  # type: ignore[misc]
            let_pass(chance.random() * 0.5)
            daemon.signal()
            assert daemon.end(10)[0] == 0, daemon.text()


def is_our_code(pid: int) -> bool:
    """Has Python started, and come to the first line of ours? Before that nobody can help."""
    return os.readlink(f"/proc/{pid}/exe") == os.path.realpath(sys.executable) and keeps(pid, signal.SIGTERM)
