"""The database as the role uses it: one session, one call at a time, and the lines of the job log that wait for it.

Invariants:
- Calls may come from any thread; each is short. While the database is away, calls fail at once until it is tried again.
- A state is told once, when it begins: away, refused (with the remedy; looked at again every minute), available.
- What waits is bounded, in number and so in memory. A line that began and ended while the database was away becomes one
  row. Only `flush` writes lines, and only the keeper's thread calls it.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from outboxd import log
from outboxd.backoff import exponential, jittered
from outboxd.errors import StoreConflict, StoreError, StoreRefused, StoreUnavailable
from outboxd.jobs.line import Line
from outboxd.schedule import runs
from outboxd.schedule.records import Run
from outboxd.store.connection import Connection

Answer = TypeVar("Answer")

REPEATS = 5
CONFLICT_PAUSE_S = 0.05
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
JITTER = 0.5
LOOK_AGAIN_S = 60.0
"""After a refusal."""
MOST_LINES = 5000
AT_ONCE = 100
"""Lines in one transaction."""


class Journal:
    """open_connection: makes a session, and raises what `store.connect` raises; it is made where it is used first."""

    def __init__(self, open_connection: Callable[[], Connection], node_id: str) -> None:
        self.node_id = node_id
        self._open = open_connection
        self._session = threading.Lock()
        self._connection: Connection | None = None
        self._trouble: StoreError | None = None
        self._since_s = self._retry_at_s = 0.0
        self._failures = 0
        self._changed = threading.Condition()
        self._waiting: dict[Line, None] = {}  # in the order in which they changed
        self._is_writing = False
        self._lost = 0

    # the database

    def call(self, work: Callable[[Connection], Answer]) -> Answer:
        """What `work` makes of the session; a transaction that was rolled back is made again. Raises StoreError."""
        with self._session:
            if self._trouble is not None and time.monotonic() < self._retry_at_s:
                raise type(self._trouble)(str(self._trouble))
            try:
                answer = self._repeated(work, self._connected())
            except StoreConflict:
                raise
            except StoreError as error:
                self._fail(error)
                raise
            self._succeed()
            return answer

    def _connected(self) -> Connection:
        if self._connection is None:
            connection = self._open()
            try:
                runs.check(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _repeated(self, work: Callable[[Connection], Answer], connection: Connection) -> Answer:
        for _ in range(REPEATS - 1):
            try:
                return work(connection)
            except StoreConflict:
                time.sleep(CONFLICT_PAUSE_S * random.random())
        return work(connection)

    def _fail(self, error: StoreError) -> None:
        now_s = time.monotonic()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._failures += 1
        if isinstance(error, StoreRefused):
            self._retry_at_s = now_s + LOOK_AGAIN_S
            if not isinstance(self._trouble, StoreRefused):
                log.error(log.JOBS_REFUSED, error=str(error), again_s=LOOK_AGAIN_S)
        else:
            pause_s = exponential(self._failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
            self._retry_at_s = now_s + jittered(pause_s, JITTER, random.random)
            if not isinstance(self._trouble, StoreUnavailable):
                log.warning(log.DATABASE_UNAVAILABLE, error=str(error))
        if self._trouble is None:
            self._since_s = now_s
        self._trouble = error

    def _succeed(self) -> None:
        self._failures = 0
        if self._trouble is not None:
            self._trouble = None
            log.info(log.DATABASE_AVAILABLE, after_s=round(time.monotonic() - self._since_s, 1))

    def close(self) -> None:
        """End the session, if nobody is using it."""
        if self._session.acquire(blocking=False):
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._session.release()

    # lines

    def claim(self, line: Line) -> bool:
        """Write the line's row now; True if its tick is this node's. Raises StoreError: then it is not, or not surely,
        and must not be run.
        """
        run = line.run(self.node_id)
        line.row_id = self.call(lambda connection: runs.add(connection, run, _age_ms(line)))
        return line.row_id != 0

    def note(self, line: Line) -> None:
        """Let the line's row become what the line says now, as soon as the database is there."""
        with self._changed:
            if not line.row_id and line not in self._waiting and len(self._waiting) >= MOST_LINES:
                self._lost += 1
                return
            self._waiting[line] = None
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Until there is a line to be written, or the time is over."""
        with self._changed:
            if not self._waiting:
                self._changed.wait(max(0.0, timeout_s))

    @property
    def is_written(self) -> bool:
        """Is every line in the table?"""
        with self._changed:
            return not (self._waiting or self._is_writing)

    def flush(self) -> list[Line]:
        """Write lines that wait, in one transaction; those that are now in the table, and were not before. Raises
        StoreError: they wait on, unless it was them that the database refused.
        """
        with self._changed:
            lines = list(self._waiting)[:AT_ONCE]
            taken = [(line, line.run(self.node_id)) for line in lines]
            for line in lines:
                del self._waiting[line]
            self._is_writing = bool(lines)
        if not lines:
            return []
        is_tried = False

        def write(connection: Connection) -> list[int]:
            nonlocal is_tried
            is_tried = True
            return _write(connection, taken)

        try:
            ids = self.call(write)
        except StoreError as error:
            with self._changed:
                self._is_writing = False
                if is_tried and isinstance(error, StoreRefused):  # they would be refused again, and all behind them
                    self._lost += len(lines)
                else:
                    self._waiting = {**dict.fromkeys(lines), **self._waiting}
            raise
        new = [line for line, row_id in zip(lines, ids, strict=True) if row_id and not line.row_id]
        for line, row_id in zip(lines, ids, strict=True):
            line.row_id = row_id or line.row_id
        with self._changed:
            self._is_writing = False
            lost, self._lost = self._lost, 0
        if lost:
            log.warning(log.JOB_LINES_LOST, count=lost)
        return new


def _write(connection: Connection, taken: list[tuple[Line, Run]]) -> list[int]:
    connection.begin()
    try:
        ids = [_write_one(connection, line, run) for line, run in taken]
        connection.commit()
    except StoreError:
        connection.rollback()
        raise
    return ids


def _write_one(connection: Connection, line: Line, run: Run) -> int:
    if not line.row_id:
        return runs.add(connection, run, _age_ms(line))
    runs.finish(connection, replace(run, id=line.row_id))
    return line.row_id


def _age_ms(line: Line) -> int:
    return round((time.monotonic() - line.began_s) * 1000)
