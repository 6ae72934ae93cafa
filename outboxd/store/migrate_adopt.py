"""Taking over a table of another make (`init-db --adopt`) on MySQL: the key that it lacks, columns of ours under names
that it leaves free, and what becomes of the rows that stand in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from outboxd.config.schema import Lane
from outboxd.errors import StoreRefused
from outboxd.store import statements
from outboxd.store.connection import Connection
from outboxd.store.migrate_checks import REQUIRED
from outboxd.store.migrate_table import Column, Index, Table
from outboxd.store.migrations import definition, theirs

FORMER_KEY = "outboxd_former_key"
"""The unique index of what was the primary key: foreign keys and look-ups go on by it."""
ASK = "ask"
DELIVERED, PENDING = "delivered", "pending"
EXISTING = (DELIVERED, PENDING)
"""What the rows that stand there already are, where the table has no status."""
_ID = "bigint unsigned"


@dataclass(frozen=True, slots=True)
class Adoption:
    """How a table becomes a lane's. existing: one of EXISTING, ASK where nobody has said."""

    existing: str = ASK


def may_be_added(lane: Lane) -> frozenset[str]:
    """Our names of columns that may be named under `columns` without being there: they are made under those names."""
    return frozenset(ours for ours in lane.columns if ours == "id" or ours not in REQUIRED)


def lacks_id(table: Table, lane: Lane) -> bool:
    """Has the table no column that stands for our id?"""
    return table.column(lane, "id") is None


def id_sql(table: Table, lane: Lane) -> tuple[str, str]:
    """(the ALTER that gives the table a numeric key, what is told before)."""
    key = statements.quoted(theirs(lane, "id"), "mysql")
    primary = table.indexes.get("PRIMARY")
    parts = [f"ADD COLUMN {definition('id', 'mysql', lane)} FIRST"]
    if primary is not None:
        columns = ", ".join(statements.quoted(name, "mysql") for name in primary.columns)
        parts = ["DROP PRIMARY KEY", *parts, f"ADD UNIQUE KEY {FORMER_KEY} ({columns})"]
    parts.append(f"ADD PRIMARY KEY ({key})")
    says = f"{lane.name}: the table has no numeric key, it gets one ({theirs(lane, 'id')}) and is rebuilt; "
    says += (
        f"its primary key becomes the unique key {FORMER_KEY}, and rows that stand there are numbered by it"
        if primary is not None
        else "rows that stand there are numbered in no order, on replicas perhaps otherwise"
    )
    return f"ALTER TABLE {statements.quoted(lane.name, 'mysql')} {', '.join(parts)}", says


def with_id(table: Table, lane: Lane) -> Table:
    """The table as it will be then, for the steps that follow."""
    name = theirs(lane, "id")
    column = Column(name, "bigint", _ID, False, None, 0, "", "", "AUTO_INCREMENT")
    indexes = {**table.indexes, "PRIMARY": Index(True, (name,))}
    if "PRIMARY" in table.indexes:
        indexes[FORMER_KEY] = table.indexes["PRIMARY"]
    return replace(table, columns={**table.columns, name.lower(): column}, indexes=indexes)


def obstacles(table: Table, lane: Lane) -> Iterator[str]:
    """What keeps a table without id from getting one."""
    if not lacks_id(table, lane):
        return
    for column in table.columns.values():
        if "AUTO_INCREMENT" in column.extra:
            yield (
                f"its column {column.name} counts already, and a table has one such column: make it the primary key "
                f"alone and name it for id under `columns`"
            )


def undecided(connection: Connection, table: Table, lane: Lane, adoption: Adoption) -> Iterator[str]:
    """Rows that another relay may have published: whether they are to be published is for a person to say."""
    if table.column(lane, "status") is not None or adoption.existing != ASK:
        return
    if connection.query(f"SELECT EXISTS (SELECT 1 FROM {statements.quoted(lane.name, 'mysql')})")[0][0]:
        yield (
            "it holds rows and has no status, so nobody can tell whether they were published: say `--existing "
            "delivered` if they were, `--existing pending` to have all of them published"
        )


def mark_sql(lane: Lane) -> tuple[str, str]:
    """(remember the last id that stands there, mark what stands up to it as delivered). A session that breaks in
    between marks nothing more: what is left is published, perhaps once more.
    """
    table, key = statements.quoted(lane.name, "mysql"), statements.quoted(theirs(lane, "id"), "mysql")
    sql = (
        "UPDATE {table} SET status = 'delivered', delivered_at_ms = {now}, updated_at_ms = {now} "
        "WHERE id <= @outboxd_last AND status = 'pending' AND retry_count = 0"
    )
    remember = f"SET @outboxd_last = (SELECT COALESCE(MAX({key}), 0) FROM {table})"
    return remember, statements.render(sql, "mysql", lane.name, lane.columns)


def refuse_sqlite() -> StoreRefused:
    """On SQLite a table keeps its key."""
    return StoreRefused(
        "--adopt is for MySQL and MariaDB: on SQLite a table must have an INTEGER PRIMARY KEY, which `columns` names "
        "for id, and init-db without --adopt adds the rest"
    )
