"""What callers hand in, and how each kind of it runs a statement. No library is imported for it: a kind is known by
what it can do, so that nothing is needed but the driver that the caller has already.

Kinds: connections and cursors of DB-API drivers (mysqlclient, PyMySQL, sqlite3), SQLAlchemy's Connection, Session and
scoped_session, Django's connections and cursors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from outboxd.errors import ProducerMisused

MYSQL, SQLITE = "mysql", "sqlite"
_DIALECTS = {"mysql": MYSQL, "mariadb": MYSQL, "sqlite": SQLITE}
_LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, since Python 3.12
CHANGES_NOTHING_INSIDE = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
INSIDE = 1568
"""ER_CANT_CHANGE_TX_CHARACTERISTICS, the answer to that statement within a transaction: the one way to ask that MySQL
and MariaDB share, and that needs no rights."""


@dataclass(slots=True)
class Handle:
    """One session with a database, as it was handed in.

    dialect: MYSQL or SQLITE. mark: how a statement's parameters are written. raw: the driver's own connection, where it
    is known. session: SQLAlchemy's, if it is one. is_django: so `raw` is Django's wrapper. run: a statement, and what
    is wanted of it: "" nothing, or what `execute`, `insert` and `query` ask for.
    """

    dialect: str
    mark: str
    run: Callable[[str, tuple[object, ...], str], Any]
    raw: Any
    session: Any = None
    is_django: bool = False

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> int:
        """How many rows a statement has changed."""
        return int(self.run(sql, parameters, "rowcount"))

    def insert(self, sql: str, parameters: tuple[object, ...] = ()) -> int:
        """The id of the one row that was inserted."""
        return int(self.run(sql, parameters, "lastrowid") or 0)

    def query(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement that reads; a caller's cursors may give them as dicts."""
        rows: Sequence[Any] = self.run(sql, parameters, "fetchall")()
        return [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows]


def handle_of(given: Any) -> Handle:
    """How to use what a caller handed in. Raises TypeError for what is none of the kinds."""
    kind = type(given)
    make = _makers.get(kind)
    if make is None:
        make = _maker(given)
        if len(_makers) < MOST_KINDS:
            _makers[kind] = make
    return make(given)


MOST_KINDS = 100
_makers: dict[type, Callable[[Any], Handle]] = {}
"""What was found out about a type: looking takes longer than all the rest."""


def _maker(given: Any) -> Callable[[Any], Handle]:
    if hasattr(given, "sync_session") or hasattr(given, "sync_connection"):
        raise TypeError(f"{_kind(given)} is asynchronous: write `await session.run_sync(record, event)`")
    if callable(getattr(given, "exec_driver_sql", None)):
        return _sqlalchemy
    if is_session(given):
        # the thread's own one, of a scoped_session
        return _scoped if hasattr(given, "registry") else _session
    if isinstance(getattr(given, "vendor", None), str):
        return _django
    if hasattr(given, "db") and isinstance(getattr(given.db, "vendor", None), str):
        return _django_cursor
    if callable(getattr(given, "cursor", None)):
        return _pooled if hasattr(given, "dbapi_connection") else partial(_dbapi, _is_sqlite(given))
    if callable(getattr(given, "execute", None)) and hasattr(given, "rowcount"):
        return partial(_dbapi_cursor, _is_sqlite(given))
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


def _sqlalchemy(connection: Any, session: Any = None) -> Handle:
    dialect = _dialect(connection.dialect.name)

    def run(sql: str, parameters: tuple[object, ...], wanted: str) -> Any:
        result = connection.exec_driver_sql(sql, parameters)
        return getattr(result, wanted) if wanted else None

    mark = "?" if connection.dialect.paramstyle == "qmark" or dialect == SQLITE else "%s"
    return Handle(dialect, mark, run, connection.connection.dbapi_connection, session)


def _session(session: Any) -> Handle:
    return _sqlalchemy(session.connection(), session)


def _scoped(scoped: Any) -> Handle:
    return _session(scoped.registry())


def _django(wrapper: Any, cursor: Any = None) -> Handle:
    # Its cursors take %s everywhere.
    return Handle(_dialect(wrapper.vendor), "%s", _through(wrapper, cursor), wrapper, is_django=True)


def _django_cursor(cursor: Any) -> Handle:
    return _django(cursor.db, cursor)


def _is_sqlite(raw: object) -> bool:
    return any("sqlite" in kind.__module__ for kind in type(raw).__mro__)


def _dbapi(is_sqlite: bool, connection: Any, cursor: Any = None) -> Handle:
    dialect, mark = (SQLITE, "?") if is_sqlite else (MYSQL, "%s")
    return Handle(dialect, mark, _through(connection, cursor), connection)


def _pooled(connection: Any) -> Handle:
    """As SQLAlchemy's pool hands it out (`Engine.raw_connection`): of one type for every driver."""
    raw = connection.dbapi_connection
    return _dbapi(_is_sqlite(raw), raw)


def _dbapi_cursor(is_sqlite: bool, cursor: Any) -> Handle:
    return _dbapi(is_sqlite, getattr(cursor, "connection", None), cursor)


def _through(connection: Any, cursor: Any) -> Callable[[str, tuple[object, ...], str], Any]:
    """Statements over a cursor that was given, else over one for each."""

    def run(sql: str, parameters: tuple[object, ...], wanted: str) -> Any:
        if cursor is not None:
            cursor.execute(sql, parameters)
            return _of(cursor, wanted)
        own = connection.cursor()
        try:
            own.execute(sql, parameters)
            return _of(own, wanted)
        finally:
            own.close()

    return run


def _of(cursor: Any, wanted: str) -> Any:
    if not wanted:
        return None
    if wanted == "fetchall":  # now: the cursor is closed next
        rows = cursor.fetchall()
        return lambda: rows
    return getattr(cursor, wanted)


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
        handle.run(CHANGES_NOTHING_INSIDE, (), "")
    except Exception as error:
        if _number(error) != INSIDE:
            raise
        return True
    return False


def _number(error: BaseException) -> object:
    """The server's number of an error; SQLAlchemy keeps the driver's own beside."""
    error = getattr(error, "orig", None) or error
    return error.args[0] if error.args else None
