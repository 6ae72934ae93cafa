"""The real daemon as a program: a configuration is written, `outboxd --config FILE` started, watched and ended."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from outboxd.config.load import load
from outboxd.config.schema import Config
from tests.services import children
from tests.services.wait import Value, wait_for

ROOT = Path(__file__).parents[2]
WAIT_S = 20.0
DRAIN_MARGIN_S = 2.0
"""G5: a drain ends within publish_timeout and this."""

LANE = "room_outbox"
ADMIN = "admin"

Section = Mapping[str, Any]


def write_config(
    path: Path,
    database_url: str,
    publishers: Section,
    *,
    lanes: Section | None = None,
    node_id: str = "node",
    log_level: str = "info",
    database: Section | None = None,
    supervisor: Section | None = None,
    admin: Section | None = None,
    sections: Section | None = None,
    **worker: object,
) -> Config:
    """Write a configuration and read it as the daemon does. worker: keys of `outbox_worker`; without `direct` every
    publisher is a direct one. lanes: room_outbox alone unless given. admin: a socket beside the file, no TCP listener,
    unless it says otherwise. sections: further ones, as they are; no jobs run unless they say so.
    """
    document = {
        "jobs": {"enabled": False},
        **(sections or {}),
        "node_id": node_id,
        "database": {"url": database_url, **(database or {})},
        "admin": {"listen": "", "socket": str(path.with_suffix(".sock")), **(admin or {})},
        "supervisor": {"restart_backoff": "50ms", "restart_backoff_max": "200ms", **(supervisor or {})},
        "outbox_worker": {"direct": list(publishers), "poll_interval": "100ms", **worker},
        "lanes": lanes or {LANE: {}},
        "publishers": publishers,
        "log": {"level": log_level, "format": "json"},
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return load(str(path), {})


class Daemon:
    """One run of the daemon; `stop` ends it whatever state it is in. `environ`: added to the test's own.

    within: a program, and its arguments, that becomes the daemon: `("nohup",)`.
    """

    def __init__(
        self, config: Path, log: Path, *arguments: str, within: Sequence[str] = (), **environ: str
    ) -> None:
        variables = [f"{name}={value}" for name, value in {"PYTHONPATH": str(ROOT), **environ}.items()]
        program = [sys.executable, "-m", "outboxd", "--config", str(config), *arguments]
        self._start(["env", *variables, *within, *program], log)

    @classmethod
    def of(cls, command: Sequence[str], log: Path) -> "Daemon":
        """One that a command starts which becomes it."""
        daemon = cls.__new__(cls)
        daemon._start(command, log)
        return daemon

    def _start(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        self._skip_bytes = log.stat().st_size if log.exists() else 0
        self.process = children.start(command, log)
        self.pid = self.process.pid

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def text(self) -> str:
        """What this run has written to standard output and error."""
        return self.log.read_bytes()[self._skip_bytes :].decode(errors="replace")

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """The lines of the log so far: all, or those of one event, without those about the admin role."""
        found = parsed(self.text())
        return [line for line in found if event is None or (event == line["event"] and line["worker"] != ADMIN)]

    def admin_lines(self, event: str) -> list[dict[str, Any]]:
        """The lines of one event about the admin role."""
        return [line for line in self.lines() if event == line["event"] and line["worker"] == ADMIN]

    def admin_pid(self, count: int = 1) -> int:
        """The admin role's latest process, once it answers; count: of how many so far."""

        def answering() -> int | None:
            listening = self.admin_lines("admin_listens")
            return self.admin_lines("worker_started")[-1]["pid"] if len(listening) >= count else None

        return self.wait_until(answering, f"admin role number {count} to answer")

    def wait_for(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """The lines of an event, once there are so many."""

        def found() -> list[dict[str, Any]] | None:
            lines = self.lines(event)
            return lines if len(lines) >= count else None

        return self.wait_until(found, f"{count} x {event}")

    def wait_until(self, condition: Callable[[], Value | None], what: str, timeout_s: float = WAIT_S) -> Value:
        """The first true value of a condition; the end of the log is shown if it never comes."""
        try:
            return wait_for(condition, timeout_s, what)
        except AssertionError as failure:
            raise AssertionError(f"{failure}; the log ends with:\n{children.tail(self.log)}") from None

    def workers(self, count: int = 1) -> dict[str, int]:
        """Name -> pid of each worker's latest process, once there are so many."""

        def up() -> dict[str, int] | None:
            pids = {line["worker"]: line["pid"] for line in self.lines("worker_started")}
            return pids if len(pids) >= count and all(is_running(pid) for pid in pids.values()) else None

        return self.wait_until(up, f"{count} workers to run")

    def signal(self, signum: int = signal.SIGTERM) -> None:
        """Send it to the supervisor."""
        os.kill(self.pid, signum)

    def end(self, timeout_s: float = WAIT_S) -> tuple[int, float]:
        """The exit status, once it has ended, and how long that took."""
        since_s = time.monotonic()
        try:
            return self.process.wait(timeout_s), time.monotonic() - since_s
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended:\n{children.tail(self.log)}") from None

    def end_after(self, signum: int) -> int:
        """Send it, and wait; the exit status."""
        self.signal(signum)
        return self.end()[0]

    def drain(self, publish_timeout_s: float) -> float:
        """G5: SIGTERM, and it ends in time with 0 and leaves no process behind; how long that took."""
        self.signal()
        status, took_s = self.end(publish_timeout_s + 2 * DRAIN_MARGIN_S)
        assert (status, self.left_behind()) == (0, []), children.tail(self.log)
        assert took_s <= publish_timeout_s + DRAIN_MARGIN_S, children.tail(self.log)
        return took_s

    def left_behind(self) -> list[int]:
        """Workers of any time that still run."""
        started = [line["pid"] for line in self.lines() if line["event"] == "worker_started"]
        return [pid for pid in started if is_running(pid)]

    def stop(self) -> None:
        """End it and its workers by force."""
        for pid in [self.pid, *self.left_behind()]:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(WAIT_S)


def parsed(log: str) -> list[dict[str, Any]]:
    """The lines of a log in JSON. SIGKILL may cut a write to a file short: what follows half a line counts."""
    begin = '{"time":'
    texts = [text[text.rindex(begin) :] for text in log.splitlines() if begin in text and text.endswith("}")]
    return [json.loads(text) for text in texts]


def is_running(pid: int) -> bool:
    """Is the process there, and no zombie that waits for its parent only?"""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def most_memory_bytes(pid: int) -> int:
    """The most memory that the process has had resident at once."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
