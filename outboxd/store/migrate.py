"""Creates, migrates and verifies the tables. On MySQL only `outboxd init-db` does; on SQLite the daemon may, too.

Running it twice changes nothing the second time; killed at any point and run again, it ends well.
"""

import dataclasses
from collections.abc import Callable, Sequence

from outboxd.config.schema import Database, Lane
from outboxd.errors import StoreRefused
from outboxd.store.connection import Connection
from outboxd.store.migrate_adopt import Adoption, may_be_added, refuse_sqlite
from outboxd.store.migrate_mysql import Patience, init_mysql, plan_mysql, stored_version
from outboxd.store.migrate_plan import fresh_mysql
from outboxd.store.migrate_sqlite import (
    check_library,
    columns_of,
    fresh_sqlite,
    has_partitions,
    index_of,
    init_sqlite,
    missing_bookkeeping,
    partition_index,
    plan_sqlite,
    version_of,
)
from outboxd.store.migrate_table import indexes_for, inspect, lacks_order, server_of
from outboxd.store.migrations import (
    BOOKKEEPING,
    PARTITION_TABLE,
    VERSION,
    columns_for,
    first_jobs,
    load,
    refuse_newer,
    theirs,
)

REMEDY = "run `outboxd init-db`"
ADOPT = "run `outboxd init-db`, with `--adopt` where the table is of another make"
LONGEST_STATEMENT_S = 86400.0

PATIENCE = Patience()

_NO_PARTITIONS = "has not all of its rows in outboxd_partition"


def _silent(_: str) -> None:
    """Says nothing."""


def patient(database: Database) -> Database:
    """The same database for init-db: a table may take long to rewrite, and a limit would cut the connection."""
    return dataclasses.replace(database, statement_timeout_s=LONGEST_STATEMENT_S)


def init_db(
    connection: Connection,
    lanes: Sequence[Lane],
    report: Callable[[str], None] = _silent,
    patience: Patience = PATIENCE,
    adoption: Adoption | None = None,
) -> None:
    """Create and migrate what the lanes need; `report` gets one line at a time, for a person.

    connection: to `patient(database)`. adoption: tables of another make may be given what they lack. Raises
    StoreRefused, naming everything that is in the way and with nothing changed, when an older table holds what only a
    person can decide about; and when the table's lock is not to be had.
    """
    if not lanes:
        return
    if connection.dialect == "sqlite":
        if adoption is not None:
            raise refuse_sqlite()
        init_sqlite(connection, lanes, report)
    else:
        init_mysql(connection, lanes, report, patience, adoption)


def create_missing(connection: Connection, lanes: Sequence[Lane]) -> None:
    """At the daemon's start: on SQLite creates what is missing, writing only if it must; on MySQL does nothing."""
    if connection.dialect == "sqlite" and _lacking_sqlite(connection, lanes):
        init_sqlite(connection, lanes, _silent)


def print_sql(
    dialect: str, lanes: Sequence[Lane], connection: Connection | None = None, adoption: Adoption | None = None
) -> str:
    """The SQL that init_db would run: for what the connection's database needs, else for an empty database.

    A script for people to read or to run by their own means (gh-ost, pt-online-schema-change): init_db itself updates
    in chunks and says how each ALTER is to be done.
    """
    if connection is not None:
        if connection.dialect == "sqlite":
            if adoption is not None:
                raise refuse_sqlite()
            found = plan_sqlite(connection, lanes)
        else:
            found = plan_mysql(connection, lanes, adoption)
        notes = [] if found else [f"-- nothing to create or change for {', '.join(lane.name for lane in lanes)}"]
    else:
        found, notes = [*(load(dialect)[name] for name in BOOKKEEPING), first_jobs(dialect)], []
        for lane in lanes:
            found += fresh_sqlite(lane) if dialect == "sqlite" else fresh_mysql(lane)
    for lane in lanes:
        for name in ("write_version", "write_lane"):
            found.append(load(dialect)[name].replace(":lane", f"'{lane.name}'").replace(":version", str(VERSION)))
    return "\n".join([*notes, *(f"{sql};" for sql in found)]) + "\n"


def verify(connection: Connection, lane: Lane) -> None:
    """Raises StoreRefused, with the remedy, when the server is too old or the lane's table is missing or older."""
    if connection.dialect == "sqlite":
        check_library()
        lacks, version, remedy = _lacks_sqlite(connection, lane), version_of(connection, lane), REMEDY
    else:
        server_of(connection)
        lacks, version = _lacks_mysql(connection, lane), stored_version(connection, lane)
        remedy = ADOPT if lacks and _needs_adopt(connection, lane) else REMEDY
    refuse_newer(lane, version)
    if lacks:
        raise StoreRefused(f"the table {lane.name} {lacks}: {remedy}")
    if version != VERSION:
        found = "an init-db that did not end" if version is None else f"version {version}"
        raise StoreRefused(f"the table {lane.name} is of {found} and version {VERSION} is needed: {REMEDY}")


def _lacks_mysql(connection: Connection, lane: Lane) -> str:
    table = inspect(connection, lane.name)
    if table is None:
        return "does not exist"
    missing = [theirs(lane, ours) for ours in columns_for(lane) if table.column(lane, ours) is None]
    if missing:
        return f"has no column {', '.join(missing)}"
    for name, columns in indexes_for(lane).items():
        index = table.indexes.get(name)
        if index is None or [column.lower() for column in index.columns] != columns:
            return f"has no index {name}"
    if not table.has_unique(theirs(lane, "app_code"), theirs(lane, "event_id")):
        return f"has no unique index of {theirs(lane, 'app_code')} and {theirs(lane, 'event_id')}"
    if lane.is_ordered and lacks_order(connection, table, lane):
        # Who has no right on it does not see it in information_schema. A look at it tells which of both is missing.
        connection.query(f"SELECT number FROM {PARTITION_TABLE} LIMIT 1")
        return _NO_PARTITIONS
    return "" if inspect(connection, "outboxd_lane") else "has no outboxd_lane beside it"


def _needs_adopt(connection: Connection, lane: Lane) -> bool:
    """Is a column missing that init-db adds with `--adopt` only?"""
    table = inspect(connection, lane.name)
    return table is not None and any(table.column(lane, ours) is None for ours in {"id", *may_be_added(lane)})


def _lacks_sqlite(connection: Connection, lane: Lane) -> str:
    found = columns_of(connection, lane.name)
    if not found:
        return "does not exist"
    missing = [theirs(lane, ours) for ours in columns_for(lane) if theirs(lane, ours).lower() not in found]
    if missing:
        return f"has no column {', '.join(missing)}"
    if not index_of(connection, lane.name, [theirs(lane, "due_at_ms")], unique=False):
        return f"has no index of {theirs(lane, 'due_at_ms')}"
    if lane.is_ordered and not index_of(connection, lane.name, partition_index(lane), unique=False):
        return f"has no index of {' and '.join(partition_index(lane))}"
    if not index_of(connection, lane.name, [theirs(lane, "app_code"), theirs(lane, "event_id")], unique=True):
        return f"has no unique index of {theirs(lane, 'app_code')} and {theirs(lane, 'event_id')}"
    if lane.is_ordered and not has_partitions(connection, lane):
        return _NO_PARTITIONS
    return "" if columns_of(connection, "outboxd_lane") else "has no outboxd_lane beside it"


def _lacking_sqlite(connection: Connection, lanes: Sequence[Lane]) -> bool:
    is_older = any(_lacks_sqlite(connection, lane) or version_of(connection, lane) is None for lane in lanes)
    return is_older or bool(missing_bookkeeping(connection))
