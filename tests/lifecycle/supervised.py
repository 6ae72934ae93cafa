"""A supervisor over tiny real roles (roles.py), started as a program, with what it has logged so far."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.services import children
from tests.services.daemon import parsed
from tests.services.wait import Value, wait_for

ROOT = Path(__file__).parents[2]
WAIT_S = 10.0

Start = Callable[..., "Supervised"]


class Supervised:
    """Started with the arguments of roles.py; `stop` ends it whatever state it is in."""

    def __init__(self, log: Path, *arguments: str, **environ: str) -> None:
        self.log = log
        self.plan = log.with_suffix(".plan")  # read on SIGHUP
        arguments = (*arguments, "--reload", str(self.plan))
        program = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {_RUN}", *arguments]
        variables = [f"{name}={value}" for name, value in environ.items()]
        self.process = children.start(["env", *variables, *program], log)
        self.pid = self.process.pid

    def lines(self, event: str | None = None, worker: str | None = None) -> list[dict[str, Any]]:
        """The lines of the log so far: of an event, of a worker."""
        lines = parsed(self.log.read_text(encoding="utf-8"))
        return [line for line in lines if event in (None, line["event"]) and worker in (None, line["worker"])]

    def wait_for(
        self, event: str, count: int = 1, worker: str | None = None, timeout_s: float = WAIT_S
    ) -> list[dict[str, Any]]:
        """The lines of an event, once there are so many."""

        def found() -> list[dict[str, Any]] | None:
            lines = self.lines(event, worker)
            return lines if len(lines) >= count else None

        return self._wait_for(found, f"{count} × {event}", timeout_s)

    def workers(self, count: int = 3) -> dict[str, int]:
        """Name → pid of each worker's latest process, once so many workers are there and up."""

        def up() -> dict[str, int] | None:
            pids = {line["worker"]: line["pid"] for line in self.starts()}
            return pids if len(pids) >= count and all(is_sleeping(pid) for pid in pids.values()) else None

        return self._wait_for(up, f"{count} workers to run")

    def running(self) -> dict[str, int]:
        """Name → pid of the workers that run now."""
        return {line["worker"]: line["pid"] for line in self.starts() if is_running(line["pid"])}

    def starts(self) -> list[dict[str, Any]]:
        """Of workers; those of errands are no news."""
        return [line for line in self.lines("worker_started") if line["level"] == "info"]

    def _wait_for(self, condition: Callable[[], Value | None], what: str, timeout_s: float = WAIT_S) -> Value:
        try:
            return wait_for(condition, timeout_s, what)
        except AssertionError as failure:
            raise AssertionError(f"{failure}; the log ends with:\n{children.tail(self.log)}") from None

    def children(self) -> set[int]:
        """Its children, as the kernel knows them."""
        return {int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text("ascii").split()}

    def totals(self) -> dict[int, tuple[str, int, int]]:
        """Slot → state, starts, delivered: the last tick's (--tick totals)."""
        ticks = [text.split() for text in self.log.read_text(encoding="utf-8").splitlines() if text[:1].isdigit()]
        return {int(slot): (state, int(starts), int(delivered)) for slot, state, starts, delivered in ticks}

    def reload(self, *arguments: str) -> None:
        """Have it go over to these arguments (see roles.load_again)."""
        self.plan.write_text(" ".join(arguments), encoding="utf-8")
        self.signal(signal.SIGHUP)

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

    def left_behind(self) -> list[int]:
        """Workers of any time that still run."""
        return [line["pid"] for line in self.lines("worker_started") if is_running(line["pid"])]

    def stop(self) -> None:
        """End it and its workers by force."""
        for pid in [self.pid, *self.left_behind()]:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(WAIT_S)


_RUN = "from tests.lifecycle import roles; sys.exit(roles.main())"


def process_state(pid: int) -> str:
    """R, S, T, Z and so on, as ps shows it; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_running(pid: int) -> bool:
    """Is it there and no zombie, which waits for its parent only."""
    return process_state(pid) not in ("", "Z")


def is_sleeping(pid: int) -> bool:
    """Has it come so far that it waits for something."""
    return process_state(pid) == "S"
