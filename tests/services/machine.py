"""A small machine with a real systemd as its process 1, where this one lets us have it: as root, with namespaces.

It sees this machine's files, and over them those of a folder, as `make install DESTDIR=...` fills it. What it writes is
in memory and goes with it. Its only units are `outboxd.service`, what that names, and the journal.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services import children
from tests.services.find import program, require
from tests.services.wait import wait_for

SYSTEMD = Path("/lib/systemd/systemd")
BOOT_S = 30.0
WAIT_S = 30.0
NAMESPACES = ("--mount", "--pid", "--fork", "--ipc", "--uts", "--net", "--cgroup")


class Machine:
    """One that runs. root: its files, as they are seen from here."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.root = Path(f"/proc/{pid}/root")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program in it, as root."""
        inside = ["nsenter", "--target", str(self._pid), *(name for name in NAMESPACES if name != "--fork"), "--"]
        return subprocess.run([*inside, *command], capture_output=True, text=True, timeout=60, check=False)

    def systemctl(self, *arguments: str) -> str:
        """What it prints; it must succeed."""
        done = self.run("systemctl", "--no-pager", *arguments)
        assert done.returncode == 0, f"systemctl {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout

    def shown(self, name: str) -> str:
        """A property of outboxd.service."""
        return self.systemctl("show", "--value", "--property", name, "outboxd").strip()

    def wait_until(self, name: str, value: str) -> None:
        """Until the property has the value."""
        wait_for(lambda: self.shown(name) == value, WAIT_S, f"{name} of outboxd.service to be {value}")

    def add(self, drop_in: str, text: str) -> None:
        """A drop-in of outboxd.service; systemd reads it at once."""
        (self.root / "run/units/outboxd.service.d" / drop_in).write_text(text, encoding="utf-8")
        self.systemctl("daemon-reload")


@contextmanager
def machine(folder: Path, layer: Path) -> Iterator[Machine]:
    """It has booted; it ends, and all that runs in it, with the context. Skipped where there can be none."""
    has_all = SYSTEMD.exists() and all(map(program, ("unshare", "nsenter")))
    cgroups = next((Path(line.split()[1]) for line in _mounts() if line.split()[2] == "cgroup2"), None)
    is_possible = has_all and os.geteuid() == 0
    cgroups = require("systemd", cgroups if is_possible else None, "a machine in a namespace needs root and systemd")
    (group := cgroups / f"outboxd-test-{os.getpid()}").mkdir()
    (folder / "machine").mkdir()
    log = folder / "machine.log"
    enter = f'echo $$ >"{group}/cgroup.procs" && exec "$@"'
    inner = [str(Path(__file__).with_suffix(".sh")), str(folder / "machine"), str(layer)]
    unshare = children.start(["sh", "-c", enter, "sh", "unshare", *NAMESPACES, "--kill-child", *inner], log)
    try:
        yield require("systemd", _booted(unshare), f"systemd does not start in a namespace: {children.tail(log)}")
    finally:
        children.stop(unshare, signal.SIGKILL)  # it heeds no other; its --kill-child ends the machine
        wait_for(lambda: _is_empty(group), WAIT_S, "everything in the machine to be gone")
        for path, _, _ in os.walk(group, topdown=False):
            os.rmdir(path)


def _mounts() -> list[str]:
    return Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()


def _is_empty(group: Path) -> bool:
    return "populated 0" in (group / "cgroup.events").read_text(encoding="ascii")


def _booted(unshare: subprocess.Popen[bytes]) -> Machine | None:
    """The machine, once its systemd answers; None if it ends before."""

    def answers() -> Machine | bool | None:
        if unshare.poll() is not None:
            return True
        pids = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text(encoding="ascii").split()
        if not pids:
            return None
        booted = Machine(int(pids[0]))
        return booted if booted.run("systemctl", "is-active", "basic.target").returncode == 0 else None

    found = wait_for(answers, BOOT_S, "systemd to start in a namespace")
    return found if isinstance(found, Machine) else None
