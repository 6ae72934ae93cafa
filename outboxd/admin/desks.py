"""Database sessions for requests: few at once, so that a database that hangs takes no thread from health and metrics.

Each statement has its time limit in the database's settings, so a request ends, however late.
"""

import contextlib
import threading
from collections.abc import Iterator

from outboxd.admin.access import Refused
from outboxd.config.schema import Database
from outboxd.store import connect
from outboxd.store.connection import Connection

AT_ONCE = 2
MOST_WAITING = 2
WAIT_S = 2.0


class Desks:
    """One for all listeners. A session is made for each request and closed with it."""

    def __init__(self) -> None:
        self._admitted = threading.BoundedSemaphore(AT_ONCE + MOST_WAITING)
        self._seated = threading.BoundedSemaphore(AT_ONCE)

    @contextlib.contextmanager
    def session(self, database: Database) -> Iterator[Connection]:
        """Raises Refused when too much is asked at once, and StoreError."""
        if not self._admitted.acquire(blocking=False):
            raise _busy()
        try:
            if not self._seated.acquire(timeout=WAIT_S):
                raise _busy()
            try:
                connection = connect(database)
                try:
                    yield connection
                finally:
                    connection.close()
            finally:
                self._seated.release()
        finally:
            self._admitted.release()


def _busy() -> Refused:
    return Refused(503, "too many questions to the database at once", "ask again", {"Retry-After": "2"})
