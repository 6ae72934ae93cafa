"""How far the demo is: a bar on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from outboxd.cli import show

LINE_EVERY_S = 1.0


class Progress(Protocol):
    """Where it is shown."""

    def show(self, arrived: int) -> None:
        """So many events have arrived."""


class Lines:
    """One line a second, at the most."""

    def __init__(self, events: int) -> None:
        self._events = events
        self._shown = 0
        self._next_s = time.monotonic() + LINE_EVERY_S

    def show(self, arrived: int) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s and arrived != self._shown:
            self._shown, self._next_s = arrived, now_s + LINE_EVERY_S
            show.line(f"  {arrived:,} of {self._events:,} arrived")


@contextmanager
def open_progress(events: int) -> Iterator[Progress]:
    """The progress, until the block ends."""
    if not show.is_terminal():
        yield Lines(events)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("arrived"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # No refreshing in the background: that would be a thread, and there are forks to come.
    with Bars(*columns, auto_refresh=False) as bars:
        task = bars.add_task("", total=events)

        class Bar:
            def show(self, arrived: int) -> None:
                bars.update(task, completed=arrived, refresh=True)

        yield Bar()
