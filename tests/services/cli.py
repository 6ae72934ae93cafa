"""`outboxd` as a person or a script runs it: a program of its own, in a pipe or on a terminal."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services.daemon import ROOT

LIMIT_S = 60.0


@dataclass(frozen=True)
class Done:
    """What a command left: exit status, standard output, standard error."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output, one JSON document."""
        return json.loads(self.out)

    def failed(self, status: int = 1) -> str:
        """It ended with that status, no traceback and one line on standard error: that line."""
        lines = self.err.splitlines()
        assert (self.status, len(lines)) == (status, 1), self
        assert lines[0].startswith("outboxd: "), self
        return lines[0]

    def ok(self) -> str:
        """It ended with 0 and nothing on standard error: its output."""
        assert (self.status, self.err) == (0, ""), self
        return self.out


class Cli:
    """Runs commands in a directory; `config` is given as $OUTBOXD_CONFIG if it is there. environ: added to the rest."""

    def __init__(self, directory: Path, config: Path | None = None, **environ: str) -> None:
        self.directory = directory
        self.config = config
        self.environ = environ

    def start(self, *arguments: str, **how: Any) -> "subprocess.Popen[str]":
        """A command that runs on; its streams are the caller's business."""
        return subprocess.Popen(self._command(arguments), cwd=self.directory, env=self._environ(), text=True, **how)

    def __call__(self, *arguments: str, stdin: str | bytes = b"") -> Done:
        """Run it to its end, in pipes."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        run = subprocess.run(
            self._command(arguments),
            cwd=self.directory,
            env=self._environ(),
            input=given,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        return Done(run.returncode, run.stdout.decode(), run.stderr.decode())

    def on_terminal(self, *arguments: str, typed: str = "", columns: int = 80) -> Done:
        """Run it to its end on a terminal that is so wide; typed: what its user writes. Both streams come as `out`."""
        ours, theirs = pty.openpty()
        environ = self._environ() | {"COLUMNS": str(columns), "TERM": "xterm"}
        process = subprocess.Popen(
            self._command(arguments), cwd=self.directory, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        os.write(ours, typed.encode())
        shown, until_s = b"", time.monotonic() + LIMIT_S
        try:
            while select.select([ours], [], [], max(0.0, until_s - time.monotonic()))[0]:
                shown += os.read(ours, 65536)
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        return Done(process.wait(LIMIT_S), shown.decode(errors="replace").replace("\r\n", "\n"), "")

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "outboxd", *arguments]

    def _environ(self) -> dict[str, str]:
        usual = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOXD_")}
        named = {"OUTBOXD_CONFIG": str(self.config)} if self.config else {}
        return {**usual, **named, "PYTHONPATH": f"{ROOT}{os.pathsep}{self.directory}", **self.environ}
