"""What callers hand in, and how each kind of it runs a statement. No library is imported for it: a kind is known by
what it can do, so that nothing is needed but the driver that the caller has already.

Kinds: connections and cursors of DB-API drivers (mysqlclient, PyMySQL, sqlite3), SQLAlchemy's Connection, Session and
scoped_session, Django's connections and cursors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from outboxd.errors import ProducerMisused

MYSQL, SQLITE = "mysql", "sqlite"
_DIALECTS = {"mysql": MYSQL, "mariadb": MYSQL, "sqlite": SQLITE}
_LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, since Python 3.12
CHANGES_NOTHING_INSIDE = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
INSIDE = 1568
"""ER_CANT_CHANGE_TX_CHARACTERISTICS, the answer to that statement within a transaction: the one way to ask that MySQL
and MariaDB share, and that needs no rights."""


@dataclass(frozen=True, slots=True)
class Result:
    """Of a statement. row_id: that of the one row that it inserted."""

    rowcount: int
    row_id: int


@dataclass(frozen=True, slots=True)
class Handle:
    """One session with a database, as it was handed in.

    dialect: MYSQL or SQLITE. mark: how a statement's parameters are written. raw: the driver's own connection, where it
    is known. session: SQLAlchemy's, if it is one. is_django: so `raw` is Django's wrapper.
    """

    dialect: str
    mark: str
    run: Callable[[str, tuple[object, ...], bool], Any]
    raw: Any
    session: Any = None
    is_django: bool = False

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> Result:
        """Run a statement that writes."""
        result: Result = self.run(sql, parameters, False)
        return result

    def query(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """The rows of one that reads; a caller's cursors may give them as dicts."""
        rows: Sequence[Any] = self.run(sql, parameters, True)
        return [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows]


def handle_of(given: Any) -> Handle:
    """How to use what a caller handed in. Raises TypeError for what is none of the kinds."""
    if hasattr(given, "sync_session") or hasattr(given, "sync_connection"):
        raise TypeError(f"{_kind(given)} is asynchronous: write `await session.run_sync(record, event)`")
    if callable(getattr(given, "exec_driver_sql", None)):
        return _sqlalchemy(given, None)
    if is_session(given):
        session = given.registry() if hasattr(given, "registry") else given  # the thread's, of a scoped_session
        return _sqlalchemy(session.connection(), session)
    if isinstance(getattr(given, "vendor", None), str):
        return _django(given, None)
    if hasattr(given, "db") and isinstance(getattr(given.db, "vendor", None), str):
        return _django(given.db, given)
    if callable(getattr(given, "cursor", None)):
        return _dbapi(given, None)
    if callable(getattr(given, "execute", None)) and hasattr(given, "rowcount"):
        return _dbapi(getattr(given, "connection", None), given)
    raise TypeError(
        f"{_kind(given)} is no connection, cursor or session: give one of mysqlclient, PyMySQL, sqlite3, SQLAlchemy or "
        "Django"
    )


def is_session(given: Any) -> bool:
    """Is it SQLAlchemy's Session or scoped_session?"""
    return callable(getattr(given, "get_bind", None)) and callable(getattr(given, "connection", None))


def _kind(given: object) -> str:
    return f"{type(given).__module__}.{type(given).__qualname__}"


def _dialect(name: str) -> str:
    if name not in _DIALECTS:
        raise TypeError(f"outboxd relays MySQL, MariaDB and SQLite; this is {name}")
    return _DIALECTS[name]


def _sqlalchemy(connection: Any, session: Any) -> Handle:
    dialect = _dialect(connection.dialect.name)

    def run(sql: str, parameters: tuple[object, ...], is_query: bool) -> Any:
        result = connection.exec_driver_sql(sql, parameters)
        return result.fetchall() if is_query else Result(result.rowcount, result.lastrowid or 0)

    mark = "?" if connection.dialect.paramstyle == "qmark" or dialect == SQLITE else "%s"
    return Handle(dialect, mark, run, connection.connection.dbapi_connection, session)


def _django(wrapper: Any, cursor: Any) -> Handle:
    # Its cursors take %s everywhere.
    return Handle(_dialect(wrapper.vendor), "%s", _through(wrapper, cursor), wrapper, is_django=True)


def _dbapi(connection: Any, cursor: Any) -> Handle:
    raw = getattr(connection, "dbapi_connection", connection)  # within one that SQLAlchemy's pool hands out
    kinds = type(raw if cursor is None else cursor).__mro__
    is_sqlite = any("sqlite" in kind.__module__ for kind in kinds)
    dialect, mark = (SQLITE, "?") if is_sqlite else (MYSQL, "%s")
    return Handle(dialect, mark, _through(connection, cursor), raw)


def _through(connection: Any, cursor: Any) -> Callable[[str, tuple[object, ...], bool], Any]:
    """Statements over a cursor that was given, else over one for each."""

    def run(sql: str, parameters: tuple[object, ...], is_query: bool) -> Any:
        own = connection.cursor() if cursor is None else cursor
        try:
            own.execute(sql, parameters)
            return own.fetchall() if is_query else Result(own.rowcount, own.lastrowid or 0)
        finally:
            if cursor is None:
                own.close()

    return run


def require_transaction(handle: Handle) -> None:
    """Raises ProducerMisused where the caller's statements are known to commit themselves: an event that is written so
    stays when the change that it tells of does not. A connection in autocommit that is within a transaction serves.
    """
    if is_autocommit(handle) and not is_inside(handle):
        how = "`with transaction.atomic():`" if handle.is_django else "autocommit off, or BEGIN"
        raise ProducerMisused(f"no transaction is open, the event would be committed without your change: use {how}")


def is_autocommit(handle: Handle) -> bool:
    """Does every statement commit itself, unless a transaction was begun? False where the driver does not tell."""
    raw = handle.raw
    if handle.dialect == SQLITE and not handle.is_django:
        mode = getattr(raw, "autocommit", _LEGACY)
        return bool(mode is True or (mode == _LEGACY and getattr(raw, "isolation_level", "") is None))
    asked = getattr(raw, "get_autocommit", None)
    return bool(asked()) if callable(asked) else False


def is_inside(handle: Handle) -> bool:
    """Is a transaction open in it?"""
    if handle.is_django:
        return bool(handle.raw.in_atomic_block)
    if handle.dialect == SQLITE:
        return bool(getattr(handle.raw, "in_transaction", False))
    try:
        handle.run(CHANGES_NOTHING_INSIDE, (), False)
    except Exception as error:
        if _number(error) != INSIDE:
            raise
        return True
    return False


def _number(error: BaseException) -> object:
    """The server's number of an error; SQLAlchemy keeps the driver's own beside."""
    error = getattr(error, "orig", None) or error
    return error.args[0] if error.args else None
