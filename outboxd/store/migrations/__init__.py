"""The tables as they are today, one .sql file per dialect, and how their statements and column definitions are read."""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files

from outboxd.config.schema import COLUMNS, ROOM_PARTITION, Lane
from outboxd.errors import StoreRefused
from outboxd.store import statements
from outboxd.store.connection import Connection

VERSION = 1
"""Of a lane's table, in outboxd_schema. It rises with every change here that an existing table must follow."""

PARTITION_TABLE = "outboxd_partition"
JOB_TABLE, JOB_LOG_TABLE = "outboxd_job", "outboxd_job_log"
BOOKKEEPING = {
    "schema": "outboxd_schema",
    "lanes": "outboxd_lane",
    "inbox": "outboxd_inbox",
    "partitions": PARTITION_TABLE,
    "jobs": JOB_TABLE,
    "job_log": JOB_LOG_TABLE,
}
"""Tables beside the lanes, by the names of their statements."""

FIRST_JOBS = ("LogClean", "OutboxClean")

ORDER_STATEMENTS = ("partition_column", "partition_index", "write_partitions")
"""What an ordered lane needs beside its table, in this order."""

DUE_KEY = ",\n  KEY due (due_at_ms)"

NO_EXPRESSION_DEFAULT = "0"
"""The default of created_at_ms where the server knows only constants (MySQL before 8.0.13): unknown."""


@cache
def load(dialect: str) -> Mapping[str, str]:
    """Statements of `{dialect}.sql` by their names, line by line as they stand there."""
    text = (files(__package__) / f"{dialect}.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def first_jobs(dialect: str) -> str:
    """The statement that writes the jobs which are there from the start. Jobs are deleted by a mark only, so whoever
    deleted these does not get them again.
    """
    return load(dialect)["write_jobs"].replace("{now}", statements.NOW[dialect])


def make_beside(connection: Connection, missing: Collection[str]) -> Iterator[str]:
    """Make what is missing beside the lanes; a line for a person after each. missing: tables, by the names of their
    statements.
    """
    for name in missing:
        connection.execute(load(connection.dialect)[name])
        yield f"{BOOKKEEPING[name]}: created"
    if not _has_jobs(connection):
        connection.execute(first_jobs(connection.dialect))
        yield f"{JOB_TABLE}: the jobs {' and '.join(FIRST_JOBS)} were added"


def plan_beside(connection: Connection, missing: Collection[str]) -> list[str]:
    """The statements for that. missing: tables, by the names of their statements."""
    sql = [load(connection.dialect)[name] for name in BOOKKEEPING if name in missing]
    if "jobs" in missing or not _has_jobs(connection):
        sql.append(first_jobs(connection.dialect))
    return sql


def _has_jobs(connection: Connection) -> bool:
    """Has there ever been one?"""
    return bool(connection.query(f"SELECT 1 FROM {JOB_TABLE} LIMIT 1"))


def statement(name: str, dialect: str, lane: Lane, index: str = "", *, constant_default: bool = False) -> str:
    """One statement for a lane. index: the name for {index}."""
    sql = load(dialect)[name].replace("{index}", statements.quoted(index, dialect) if index else "")
    sql = sql.replace("{lane}", lane.name).replace("{due_key}", "" if lane.is_ordered else DUE_KEY)
    if constant_default:
        sql = sql.replace("{now}", NO_EXPRESSION_DEFAULT)
    return statements.render(sql, dialect, lane.name, lane.columns)


def definition(ours: str, dialect: str, lane: Lane) -> str:
    """`name` TYPE … to add one of our columns, under the name that it has in the lane's table.

    Its default is constant: when rows that are there already were created, nobody knows.
    """
    found = re.search(rf"^  {ours} (.+?),?$", load(dialect)["lane"], flags=re.MULTILINE)
    if not found:
        raise AssertionError(f"no column {ours} in {dialect}.sql")
    text = found[1].replace("({now})", NO_EXPRESSION_DEFAULT).replace("{now}", NO_EXPRESSION_DEFAULT)
    text = statements.render(text, dialect, lane.name, lane.columns)
    return f"{statements.quoted(theirs(lane, ours), dialect)} {text}"


def without_status(lane: Lane, rows: int) -> str:
    """For a person: what becomes of the rows that stand in a table which has no status."""
    return f"{lane.name}: it has no status yet, so all of its {rows:,} rows are pending and will be published"


def columns_for(lane: Lane) -> tuple[str, ...]:
    """Our names of the columns that the lane's table must have."""
    return (*COLUMNS, ROOM_PARTITION) if lane.is_ordered else COLUMNS


def theirs(lane: Lane, ours: str) -> str:
    """The name that one of our columns has in the lane's table."""
    return lane.columns.get(ours, ours)


def refuse_newer(lane: Lane, version: int | None) -> None:
    """Raises StoreRefused for a table that a newer outboxd made."""
    if version is not None and version > VERSION:
        raise StoreRefused(
            f"{lane.name} has version {version} and this outboxd knows {VERSION}: use the outboxd that migrated it, "
            "or a newer one"
        )
