"""One database connection, as the rest of the store sees it: named statements in, rows out, our own errors.

Implementations: mysql_connection.py, sqlite_connection.py; `outboxd.store.connect` chooses by the URL.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Row = tuple[Any, ...]
Params = Mapping[str, object]

NO_PARAMS: Params = {}


def no_beat() -> None:
    """Of a session whose process nobody watches."""


class Connection(Protocol):
    """A session. Transactions are explicit: outside begin/commit every statement is one of its own.

    Statements name their parameters `:like_this`. Raises StoreUnavailable, StoreConflict or StoreRefused (errors.py);
    after StoreConflict the transaction has been rolled back, after StoreUnavailable the connection is of no use.
    """

    @property
    def dialect(self) -> str:
        """`mysql` (MariaDB too) or `sqlite`."""

    def query(self, sql: str, params: Params = NO_PARAMS) -> Sequence[Row]:
        """The rows of a statement that reads."""

    def execute(self, sql: str, params: Params = NO_PARAMS) -> int:
        """Rows that a statement matched, whether it changed them or not."""

    def begin(self) -> None:
        """Start a transaction (SQLite: IMMEDIATE)."""

    def commit(self) -> None:
        """Commit. Raises CommitInDoubt when the connection breaks while the answer is awaited."""

    def rollback(self) -> None:
        """Roll back; never raises."""

    def ping(self) -> None:
        """Keep the session alive."""

    def close(self) -> None:
        """Close; never raises."""
