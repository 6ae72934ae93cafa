"""An SQLite session as the store wants it: WAL, every commit on disk, bounded waits, errors translated by their code.

The file and its companions (`-wal`, `-shm`) are shared by processes of one machine: a network file system will not do.
"""

import contextlib
import functools
import os
import random
import sqlite3
import time
from collections.abc import Callable, Sequence

from outboxd.config.schema import Database
from outboxd.errors import CommitInDoubt, StoreConflict, StoreError, StoreRefused, StoreUnavailable
from outboxd.store.connection import NO_PARAMS, Params, Row, no_beat

OLDEST = (3, 35)

# Primary result codes, the low byte of https://sqlite.org/rescode.html. The driver's classes say less.
CONFLICT = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_SCHEMA})
AWAY = frozenset({
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,  # our own limit of a statement's time
    sqlite3.SQLITE_MISUSE,  # closed
})  # fmt: skip
REMEDY = {
    sqlite3.SQLITE_CORRUPT: "the file is damaged: stop outboxd, restore a backup or use `sqlite3 FILE .recover`",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database: correct database.url",
    sqlite3.SQLITE_ERROR: "run `outboxd init-db` to bring the tables up to date",
    sqlite3.SQLITE_PERM: "give the user of outboxd the right to read and write the file and its directory",
    sqlite3.SQLITE_AUTH: "give the user of outboxd the right to read and write the file and its directory",
}
_STEPS_BETWEEN_LOOKS = 100_000  # of SQLite's machine, a few milliseconds
_WAIT_S = (0.0005, 0.004)
_WAIT_SHARE = 0.8  # of a statement's time: it must end after its waiting
_WAL_BYTES = 64 * 1024 * 1024  # kept after a checkpoint; a long reader can make it grow beyond meanwhile


def translated(error: sqlite3.Error, doing: str) -> StoreError:
    """Our own error for the driver's, by its code; `doing` says what failed, and where."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF
    text = f"{doing}: {error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
    if code in CONFLICT:
        return StoreConflict(text)
    if code in AWAY:
        return StoreUnavailable(text)
    return StoreRefused(f"{text}; {REMEDY[code]}" if code in REMEDY else text)


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


class SqliteConnection:
    """Implements store.connection.Connection. beat: called before every statement."""

    dialect = "sqlite"

    def __init__(self, database: Database, beat: Callable[[], None] = no_beat) -> None:
        self._beat = beat
        if sqlite3.sqlite_version_info < OLDEST:
            raise StoreRefused(f"SQLite {sqlite3.sqlite_version} is too old: install 3.35 or newer, or use MySQL")
        path = database.path
        self._where = f"the database {path}"
        self._limit_s = database.statement_timeout_s
        self._deadline_s = 0.0
        _check_file(path)
        try:
            self._link = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise translated(error, f"cannot open {self._where}") from error
        self._link.set_progress_handler(self._is_overdue, _STEPS_BETWEEN_LOOKS)
        # A producer's text that is no UTF-8 must not make its row, and all behind it, unreadable.
        self._link.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
        try:
            if self.query("PRAGMA journal_mode")[0][0] != "wal":
                mode = self.query("PRAGMA journal_mode = WAL")[0][0]
                if mode != "wal":
                    raise StoreRefused(f"{self._where} cannot keep a write-ahead log: move it to a local disk")
            self.query("PRAGMA synchronous = FULL")  # NORMAL may lose commits when the machine stops
            self.query(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        except StoreConflict as error:
            self.close()
            raise StoreUnavailable(str(error)) from error
        except StoreError:
            self.close()
            raise

    @property
    def version(self) -> str:
        """The library's version."""
        return f"SQLite {sqlite3.sqlite_version}"

    def _is_overdue(self) -> bool:
        return time.monotonic() > self._deadline_s

    def _run(self, sql: str, params: Params) -> sqlite3.Cursor:
        """Waits for other writers by asking again at random times. SQLite's own waiting asks ever more seldom, down to
        ten times a second: beside a writer that hardly rests it would find the file free by luck only.
        """
        self._beat()
        start_s = time.monotonic()
        self._deadline_s = start_s + self._limit_s
        while True:
            try:
                return self._link.execute(sql, params)
            except sqlite3.OperationalError as error:
                waited_s = time.monotonic() - start_s
                if not _is_busy(error) or self._link.in_transaction or waited_s > self._limit_s * _WAIT_SHARE:
                    raise
            time.sleep(random.uniform(*_WAIT_S))

    def query(self, sql: str, params: Params = NO_PARAMS) -> Sequence[Row]:
        try:
            return self._run(sql, params).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def execute(self, sql: str, params: Params = NO_PARAMS) -> int:
        try:
            return self._run(sql, params).rowcount
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> StoreError:
        failure = translated(error, f"{self._where} failed")
        if not isinstance(failure, StoreRefused):
            self.rollback()
        return failure

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        try:
            self._run("COMMIT", NO_PARAMS)
        except sqlite3.Error as error:
            failure = translated(error, f"COMMIT to {self._where} failed")
            self.rollback()
            # An I/O error may have come after the commit's mark reached the log.
            raise CommitInDoubt(str(failure)) if isinstance(failure, StoreUnavailable) else failure from error

    def rollback(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # it may have rolled back by itself
            if self._link.in_transaction:
                self._link.execute("ROLLBACK")

    def ping(self) -> None:
        self.query("PRAGMA schema_version")

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # closing what is broken
            self._link.close()


def _check_file(path: str) -> None:
    """Refuse what no waiting mends, in words; SQLite says "unable to open database file" to all of it."""
    if path in ("", ":memory:"):
        raise StoreRefused("workers cannot share a database in memory: set database.url to sqlite:///path/to/file.db")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise StoreRefused(f"{folder} is no directory: create it, or correct database.url")
    if os.path.exists(path) and not os.path.isfile(path):
        raise StoreRefused(f"{path} is no file: correct database.url")
    for place in (path, folder):
        if os.path.exists(place) and not os.access(place, os.R_OK | os.W_OK):
            raise StoreRefused(f"{place} is not writable: give the user of outboxd the right to write it")
