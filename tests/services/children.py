"""Programs that run beside the tests and end with them."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services.find import program


def start(
    command: Sequence[str], log: Path, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program with its output appended to `log`. environ: all of it; None: the test's own.

    It is in a session of its own, so that Ctrl-C reaches the tests only, and it is told to end when they are killed.
    """
    setpriv = program("setpriv")
    guard = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
    with log.open("ab") as output:
        return subprocess.Popen(
            [*guard, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            cwd=cwd, env=environ,
        )  # fmt: skip


def stop(child: subprocess.Popen[bytes], signum: int = signal.SIGTERM, timeout_s: float = 30) -> None:
    """End a program and wait for it; it is killed if it takes longer than that. Nothing happens if it has ended."""
    if child.poll() is None:
        os.kill(child.pid, signum)
    try:
        child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(10)


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log, to be shown with a failure."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""
