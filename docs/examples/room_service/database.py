"""Sessions with MySQL or MariaDB: one for each thread, and transactions that end."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import MySQLdb
from MySQLdb.connections import Connection
from MySQLdb.cursors import Cursor

TIMEOUT_S = 5
IDLE_S = 4.0
"""A session that nobody has used for so long is made anew: the server may have ended it."""
TIMES = 3
"""A transaction is tried: deadlocks and lock waits end one of two, which then has its turn."""
DUPLICATE = 1062
_AGAIN = (1205, 1213)
# A node that is frozen in the midst of a transaction holds its rows for wait_timeout seconds at the most.
_SESSION = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION wait_timeout = 8, innodb_lock_wait_timeout = 3",
)

Value = TypeVar("Value")


class Unavailable(Exception):
    """The database cannot be asked, or nobody knows whether it did what it was asked for."""


class Database:
    """Where a URL mysql://user:password@host:port/name leads."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._of_thread = threading.local()

    def connect(self) -> Connection:
        """A session of the caller's own, not in autocommit. Raises MySQLdb.Error."""
        connection = MySQLdb.connect(
            host=self._url.hostname or "127.0.0.1",
            port=self._url.port or 3306,
            user=unquote(self._url.username or "root"),
            password=unquote(self._url.password or ""),
            database=self._url.path.strip("/"),
            charset="utf8mb4",
            connect_timeout=TIMEOUT_S,
            read_timeout=TIMEOUT_S,
            write_timeout=TIMEOUT_S,
        )
        for statement in _SESSION:
            connection.cursor().execute(statement)
        return connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Cursor]:
        """A cursor of this thread's session; committed at the end of the block, rolled back if the block raises.

        Raises Unavailable where the database is away. If that was at the commit, it may have been done or not.
        """
        try:
            connection = self._session()
            with contextlib.closing(connection.cursor()) as cursor:
                yield cursor
            connection.commit()
            self._of_thread.used_s = time.monotonic()
        except (MySQLdb.OperationalError, MySQLdb.InterfaceError) as error:
            self._forget()
            raise Unavailable(f"the database: {error}") from error
        except BaseException:
            self._forget()  # its end rolls it back, whatever state it is in
            raise

    def run(self, work: Callable[[Cursor], Value]) -> Value:
        """What the work returns, in a transaction of its own; again from its beginning after a deadlock."""
        for attempt in range(1, TIMES + 1):
            try:
                with self.transaction() as cursor:
                    return work(cursor)
            except Unavailable as error:
                cause = error.__cause__
                if attempt == TIMES or cause is None or cause.args[:1] not in [(number,) for number in _AGAIN]:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _session(self) -> Connection:
        connection: Connection | None = getattr(self._of_thread, "connection", None)
        if connection is not None and time.monotonic() - self._of_thread.used_s > IDLE_S:
            self._forget()
            connection = None
        if connection is None:
            connection = self.connect()
            self._of_thread.connection = connection
        self._of_thread.used_s = time.monotonic()
        return connection

    def _forget(self) -> None:
        connection: Connection | None = getattr(self._of_thread, "connection", None)
        self._of_thread.connection = None
        if connection is not None:
            with contextlib.suppress(MySQLdb.Error):
                connection.close()


def is_duplicate(error: MySQLdb.IntegrityError) -> bool:
    """Is the row there already?"""
    return bool(error.args[0] == DUPLICATE)
