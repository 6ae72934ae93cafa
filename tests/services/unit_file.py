"""systemd/outboxd.service, and the daemon as systemd would start it from that file."""

import os
import shlex
import sys
from pathlib import Path

from outboxd.config.durations import parse_duration_s
from tests.services.daemon import ROOT, Daemon
from tests.services.service_manager import ServiceManager

UNIT = ROOT / "systemd" / "outboxd.service"
DROP_INS = ROOT / "systemd" / "outboxd.service.d"
PROGRAM, SETTINGS = "/opt/outboxd/bin/outboxd", "/etc/outboxd"


def assignments() -> list[tuple[str, str]]:
    """`Name=value` of all sections, in order; systemd takes a name that comes again as more of the same, or anew."""
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#;[")
    return [(name, value) for name, _, value in pairs]


def value(name: str) -> str:
    """Of a name that stands there once."""
    (found,) = (text for key, text in assignments() if key == name)
    return found


def seconds(name: str) -> float:
    """A time span that stands there once."""
    return parse_duration_s(value(name).replace("min", "m")) or 0.0


class Service:
    """The daemon by the unit's ExecStart, environment and directories, under a manager that listens.

    The machine is `folder`: etc/outboxd, var/lib/outboxd, run/outboxd and run/credentials are there.
    """

    def __init__(self, folder: Path, manager: ServiceManager) -> None:
        self.settings = folder / "etc/outboxd"
        self.state = folder / "var/lib" / value("StateDirectory")
        self.runtime = folder / "run" / value("RuntimeDirectory")
        self.credentials = folder / "run/credentials/outboxd.service"
        self._log, self._manager = folder / "log", manager
        for directory in (self.settings, self.state, self.runtime, self.credentials):
            directory.mkdir(parents=True)
        self.state.chmod(int(value("StateDirectoryMode"), 8))
        self.runtime.chmod(int(value("RuntimeDirectoryMode"), 8))

    def start(self) -> Daemon:
        """As process 1 does it: an environment that holds what the unit says and no more, its umask and directory."""
        program, *arguments = shlex.split(value("ExecStart"))
        assert program == PROGRAM
        variables = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),  # the only thing that no service has: it runs from the tree
            "RUNTIME_DIRECTORY": str(self.runtime),
            "STATE_DIRECTORY": str(self.state),
            "CREDENTIALS_DIRECTORY": str(self.credentials),
            "NOTIFY_SOCKET": self._manager.address,
            "WATCHDOG_USEC": str(int(seconds("WatchdogSec") * 1e6)),
            **dict(self._place(text).split("=", 1) for key, text in assignments() if key == "Environment"),
        }
        environment = [f"{name}={text}" for name, text in variables.items()]
        begin = f"umask {value('UMask')}; cd {shlex.quote(self._place(value('WorkingDirectory')))}"
        shell = ["sh", "-c", f'{begin}; WATCHDOG_PID=$$ exec "$@"', "sh", sys.executable, "-m", "outboxd"]
        arguments = [text.replace(SETTINGS, str(self.settings)) for text in arguments]
        return Daemon.of(["env", "-i", *environment, *shell, *arguments], self._log)

    def _place(self, text: str) -> str:
        return text.replace("%S/outboxd", str(self.state))
