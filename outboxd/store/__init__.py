"""The outbox tables. `open_store` for the relay, `connect` for commands; drivers are imported when first needed."""

from collections.abc import Callable
from typing import TypeVar

from outboxd.config.schema import Database, Lane
from outboxd.store.api import Store
from outboxd.store.connection import Connection, no_beat

Made = TypeVar("Made")


def connect(database: Database, beat: Callable[[], None] = no_beat) -> Connection:
    """A new session. Raises StoreUnavailable (try again later) or StoreRefused (a person must act).

    beat: called before every statement, each of which may take long.
    """
    if database.scheme == "sqlite":
        from outboxd.store.sqlite_connection import SqliteConnection  # noqa: PLC0415 - a driver is loaded where used

        return SqliteConnection(database, beat)
    from outboxd.store.mysql_connection import MysqlConnection  # noqa: PLC0415 - a driver is loaded where it is used

    return MysqlConnection(database, beat=beat)


def open_store(database: Database, lane: Lane, beat: Callable[[], None] = no_beat) -> Store:
    """One lane's store over a new session, its table verified (SQLite: created if missing). `beat`, and what it raises:
    as `connect`.
    """
    if database.scheme == "sqlite":
        from outboxd.store.sqlite import SqliteStore  # noqa: PLC0415 - a driver is loaded where it is used

        connection = connect(database, beat)
        return _or_closed(connection, lambda: SqliteStore(connection, lane))
    from outboxd.store.migrate import verify  # noqa: PLC0415 - with the driver
    from outboxd.store.mysql import MysqlStore  # noqa: PLC0415 - a driver is loaded where it is used
    from outboxd.store.mysql_connection import MysqlConnection  # noqa: PLC0415 - a driver is loaded where it is used

    session = MysqlConnection(database, strict=False, beat=beat)
    _or_closed(session, lambda: verify(session, lane))
    return MysqlStore(session, lane)


def _or_closed(connection: Connection, make: Callable[[], Made]) -> Made:
    """What `make` makes; a connection of which nothing comes is closed."""
    try:
        return make()
    except BaseException:
        connection.close()
        raise
