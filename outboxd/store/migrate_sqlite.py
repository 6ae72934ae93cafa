"""Creates what is missing in an SQLite file, in one transaction. Columns are added, never changed."""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence

from outboxd.config.schema import COLUMNS, PARTITIONS, ROOM_PARTITION, Lane
from outboxd.errors import StoreRefused
from outboxd.store import statements
from outboxd.store.connection import Connection
from outboxd.store.migrations import (
    BOOKKEEPING,
    ORDER_STATEMENTS,
    PARTITION_TABLE,
    VERSION,
    definition,
    load,
    make_beside,
    plan_beside,
    refuse_newer,
    statement,
    theirs,
    without_status,
)

OLDEST = (3, 35, 0)
_REQUIRED = ("id", "event_id", "event_type", "room_id", "envelope")


def check_library() -> None:
    """Raises StoreRefused when the SQLite library is too old."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise StoreRefused(f"SQLite {sqlite3.sqlite_version} is too old: 3.35 is the oldest that will do")


def columns_of(connection: Connection, table: str) -> frozenset[str]:
    """Names of a table's columns in lower case; none: there is no such table."""
    rows = connection.query("SELECT LOWER(name) FROM pragma_table_xinfo(:table)", {"table": table})
    return frozenset(str(row[0]) for row in rows)


def index_of(connection: Connection, table: str, columns: Sequence[str], *, unique: bool) -> str | None:
    """The name of an index, unique or not, of exactly these columns over all rows."""
    indexes = connection.query(
        'SELECT name, "unique" FROM pragma_index_list(:table) WHERE NOT partial', {"table": table}
    )
    for name, is_unique in indexes:
        rows = connection.query("SELECT LOWER(name) FROM pragma_index_info(:name) ORDER BY seqno", {"name": name})
        if bool(is_unique) == unique and [row[0] for row in rows] == [column.lower() for column in columns]:
            return str(name)
    return None


def version_of(connection: Connection, lane: Lane) -> int | None:
    """The version of the lane's table as written down."""
    if not columns_of(connection, "outboxd_schema"):
        return None
    rows = connection.query("SELECT version FROM outboxd_schema WHERE lane = :lane", {"lane": lane.name})
    return int(rows[0][0]) if rows else None


def missing_bookkeeping(connection: Connection) -> list[str]:
    """Tables beside the lanes that are not there, by the names of their statements."""
    return [name for name, table in BOOKKEEPING.items() if not columns_of(connection, table)]


def plan_sqlite(connection: Connection, lanes: Sequence[Lane]) -> list[str]:
    """The statements that create what is missing now."""
    sql = plan_beside(connection, missing_bookkeeping(connection))
    return sql + [step for lane in lanes for step in _steps(connection, lane)]


def fresh_sqlite(lane: Lane) -> list[str]:
    """The statements that create a lane's table where there is none."""
    return [
        statement("lane", "sqlite", lane),
        statement("event", "sqlite", lane, f"{lane.name}_event"),
        statement("due", "sqlite", lane, f"{lane.name}_due"),
        *(_order_statement(name, lane) for name in (ORDER_STATEMENTS if lane.is_ordered else ())),
    ]


def partition_index(lane: Lane) -> list[str]:
    """The columns of the index that an ordered lane has, too."""
    return [theirs(lane, ROOM_PARTITION), theirs(lane, "due_at_ms")]


def has_partitions(connection: Connection, lane: Lane) -> bool:
    """Are all rows of an ordered lane's in outboxd_partition?"""
    if not columns_of(connection, PARTITION_TABLE):
        return False
    rows = connection.query(f"SELECT COUNT(*) FROM {PARTITION_TABLE} WHERE lane = :lane", {"lane": lane.name})
    return bool(rows[0][0] >= PARTITIONS)


def _order_statement(name: str, lane: Lane) -> str:
    return statement(name, "sqlite", lane, f"{lane.name}_rooms")


def _steps(connection: Connection, lane: Lane) -> Iterator[str]:
    found = columns_of(connection, lane.name)
    table = statements.quoted(lane.name, "sqlite")
    if not found:
        yield statement("lane", "sqlite", lane)
    else:
        missing = [ours for ours in COLUMNS if theirs(lane, ours).lower() not in found]
        wrong = [theirs(lane, ours) for ours in missing if ours in _REQUIRED or ours in lane.columns]
        if wrong:
            raise StoreRefused(f"{lane.name} has no column {', '.join(wrong)}: name what holds it under `columns`")
        for ours in missing:
            yield f"ALTER TABLE {table} ADD COLUMN {definition(ours, 'sqlite', lane)}"
    if not index_of(connection, lane.name, [theirs(lane, "app_code"), theirs(lane, "event_id")], unique=True):
        yield statement("event", "sqlite", lane, f"{lane.name}_event")
    if not index_of(connection, lane.name, [theirs(lane, "due_at_ms")], unique=False):
        yield statement("due", "sqlite", lane, f"{lane.name}_due")
    if lane.is_ordered:
        yield from _order_steps(connection, lane, found)


def _order_steps(connection: Connection, lane: Lane, found: Collection[str]) -> Iterator[str]:
    column, index, rows = ORDER_STATEMENTS
    if theirs(lane, ROOM_PARTITION).lower() not in found:
        yield _order_statement(column, lane)
    if not index_of(connection, lane.name, partition_index(lane), unique=False):
        yield _order_statement(index, lane)
    if not has_partitions(connection, lane):
        yield _order_statement(rows, lane)


def init_sqlite(connection: Connection, lanes: Sequence[Lane], report: Callable[[str], None]) -> None:
    """Create what is missing: all of it or nothing. A second one waits for the first, and finds nothing to do."""
    check_library()
    connection.begin()
    try:
        said = [*make_beside(connection, missing_bookkeeping(connection))]
        for lane in lanes:
            said += _init_lane(connection, lane)
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
    for line in said:
        report(line)


def _init_lane(connection: Connection, lane: Lane) -> Iterator[str]:
    """What is told of it, line by line."""
    known = version_of(connection, lane)
    refuse_newer(lane, known)
    found = columns_of(connection, lane.name)
    steps = list(_steps(connection, lane))
    if found and theirs(lane, "status").lower() not in found:
        table = statements.quoted(lane.name, "sqlite")
        rows = int(connection.query(f"SELECT COUNT(*) FROM {table}")[0][0])
        if rows:
            yield without_status(lane, rows)
    for sql in steps:
        connection.execute(sql)
    if known != VERSION:
        connection.execute(load("sqlite")["write_version"], {"lane": lane.name, "version": VERSION})
    connection.execute(load("sqlite")["write_lane"], {"lane": lane.name})
    if known == VERSION and not steps:
        yield f"{lane.name}: nothing to do, it has version {VERSION}"
    else:
        yield f"{lane.name}: {'migrated' if found else 'created'}, it has version {VERSION}"
