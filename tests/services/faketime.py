"""Clocks that are wrong: libfaketime in a program of ours, which reads its offset from a file while it runs."""

import os
import time
from pathlib import Path

from tests.services.daemon import ROOT
from tests.services.find import require


def library() -> str:
    """The library that is loaded before the C library's clock: the one for programs with threads. With the other one a
    thread now and then sees the true time while its neighbour reads the file.
    """
    found = [str(path) for root in ("/usr/lib", "/usr/lib64") for path in Path(root).glob("**/libfaketimeMT.so.1")]
    return require("faketime", found[0] if found else None, "there is no libfaketime (Debian's package faketime)")


_SLEEP = """
import select
import time


def sleep(time_s: float) -> None:
    select.select((), (), (), time_s)


time.sleep = sleep
"""
"""Python's own sleep names the end of its sleep, by the monotonic clock; libfaketime (0.9.10) takes it for a date."""


class Clock:
    """The clock of one program, `offset_s` from the true one. Give it `environ`, or `python_environ` if it is one in
    Python; its monotonic clock, and so how long it waits, stays as it is.
    """

    def __init__(self, directory: Path, offset_s: float = 0.0) -> None:
        self._file = directory / "clock"
        self.step(offset_s)
        self.environ = {
            "LD_PRELOAD": library(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    @property
    def python_environ(self) -> dict[str, str]:
        """With a sleep that works."""
        site = self._file.parent / "site"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(_SLEEP, encoding="utf-8")
        return {**self.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(site)))}

    def step(self, offset_s: float) -> None:
        """So far from the true time it is from now on. Replaced as a whole: a file half written would be no offset."""
        self.offset_s = offset_s
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset_s:+.3f}\n", encoding="ascii")
        os.replace(new, self._file)

    def now_ms(self) -> int:
        """What it shows."""
        return round((time.time() + self.offset_s) * 1000)
