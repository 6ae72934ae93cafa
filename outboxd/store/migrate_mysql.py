"""Creates and migrates the tables on MySQL and MariaDB, in place and step by step.

Every step is found by looking at what stands in the database, so an init-db that was killed is run again and goes on.
Rows are mended first and in chunks; then one ALTER changes all columns, strict, so that the server refuses what would
lose something; the generated column and the indexes follow, online.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from outboxd.config.schema import Lane
from outboxd.errors import StoreConflict, StoreError, StoreRefused
from outboxd.store import statements
from outboxd.store.connection import Connection
from outboxd.store.migrate_adopt import Adoption
from outboxd.store.migrate_checks import column_of, facts_of, fix_of, refusals
from outboxd.store.migrate_plan import Step, Work, announcement, nulls_trigger, spare_index, survey
from outboxd.store.migrate_table import Server, inspect, server_of
from outboxd.store.migrations import BOOKKEEPING, VERSION, load, make_beside, plan_beside, refuse_newer, theirs

Report = Callable[[str], None]
Answer = TypeVar("Answer")

CHUNK = 2000
"""Rows of one UPDATE."""

ROWS_PER_S, BYTES_PER_S = 40_000, 20_000_000
"""A careful guess at how fast a server rewrites a table: the slower of both is told."""

ROUNDS = 5
"""How often an ALTER is tried that the server refuses for rows which producers wrote meanwhile."""

# Numbers of the server's errors: the algorithm or lock that was asked for is not possible, or not known.
_NOT_POSSIBLE = frozenset({1800, 1801, 1845, 1846})
# Each is tried if the one before is not possible. Copying without a lock is MariaDB 11.2's.
_ALGORITHMS = ("ALGORITHM=INSTANT", "ALGORITHM=INPLACE, LOCK=NONE", "ALGORITHM=COPY, LOCK=NONE")
_BLOCKING = "ALGORITHM=COPY, LOCK=SHARED"


@dataclass(frozen=True, slots=True)
class Patience:
    """An ALTER waits for running transactions, and every INSERT behind it: at most lock_wait_s, then it lets them pass
    for pause_s and tries again. queue_s: how long to wait for another init-db.
    """

    lock_wait_s: int = 2
    pause_s: float = 3.0
    attempts: int = 30
    queue_s: int = 10


@dataclass(frozen=True, slots=True)
class _Run:
    connection: Connection
    report: Report
    patience: Patience


def init_mysql(
    connection: Connection,
    lanes: Sequence[Lane],
    report: Report,
    patience: Patience,
    adoption: Adoption | None = None,
) -> None:
    """Create what is missing and migrate what is older; every lane is looked at before the first is changed."""
    server = server_of(connection)
    run = _Run(connection, report, patience)
    _set_limits(connection, server, patience)
    with _alone(connection, patience):
        works = [_surveyed(connection, lane, server, adoption) for lane in lanes]
        for line in make_beside(connection, _missing_beside(connection)):
            report(line)
        for work in works:
            for line in announcement(work):
                report(line)
            for step in work.steps:
                _take(run, work, step)
            _write_down(run, work)


def plan_mysql(connection: Connection, lanes: Sequence[Lane], adoption: Adoption | None = None) -> list[str]:
    """The statements that init_mysql would run now."""
    server = server_of(connection)
    works = [_surveyed(connection, lane, server, adoption) for lane in lanes]
    sql = plan_beside(connection, _missing_beside(connection))
    return sql + [step.sql for work in works for step in work.steps]


def _missing_beside(connection: Connection) -> list[str]:
    return [name for name, table in BOOKKEEPING.items() if inspect(connection, table) is None]


def stored_version(connection: Connection, lane: Lane) -> int | None:
    """The version of the lane's table as written down, None where init-db never ended."""
    if inspect(connection, "outboxd_schema") is None:
        return None
    rows = connection.query("SELECT version FROM outboxd_schema WHERE lane = :lane", {"lane": lane.name})
    return int(rows[0][0]) if rows else None


def _surveyed(connection: Connection, lane: Lane, server: Server, adoption: Adoption | None) -> Work:
    refuse_newer(lane, stored_version(connection, lane))
    return survey(connection, lane, server, adoption)


# the session


def _set_limits(connection: Connection, server: Server, patience: Patience) -> None:
    """Locks are waited for shortly, statements may last. Strict, but for dates in the user's own columns."""
    limit = "max_statement_time" if server.kind == "MariaDB" else "max_execution_time"
    connection.execute(
        f"SET SESSION {limit} = 0, lock_wait_timeout = {patience.lock_wait_s}, "
        f"innodb_lock_wait_timeout = {patience.lock_wait_s}, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"
    )


@contextmanager
def _alone(connection: Connection, patience: Patience) -> Iterator[None]:
    """One init-db at a time in a database. The lock ends with the session, so a killed one leaves none behind."""
    database = str(connection.query("SELECT DATABASE()")[0][0])
    # Names of locks belong to the server and have at most 64 characters, as a database's name alone may have.
    name = {"name": "outboxd_init_db_" + hashlib.sha256(database.encode()).hexdigest()[:32]}
    if connection.query("SELECT GET_LOCK(:name, :wait)", {**name, "wait": patience.queue_s})[0][0] != 1:
        holder = connection.query("SELECT IS_USED_LOCK(:name)", name)[0][0]
        raise StoreRefused(
            f"another init-db is at work in this database (connection {holder}; one that was killed ends when its "
            "statement does): wait for it, then run this again"
        )
    try:
        yield
    finally:
        try:
            connection.query("SELECT RELEASE_LOCK(:name)", name)
        except StoreError:  # the session is gone, and the lock with it; what ended it is being raised
            pass


# what is told


def _estimate(work: Work) -> str:
    rows = work.facts.rows if work.facts else work.table.rows if work.table else 0
    size = work.table.size_bytes if work.table else 0
    seconds = max(1, round(max(rows / ROWS_PER_S, size / BYTES_PER_S)))
    return f"rewriting {rows:,} rows ({size / 1e6:,.0f} MB); INSERTs wait meanwhile, about {seconds:,} s"


def _write_down(run: _Run, work: Work) -> None:
    lane = work.lane
    known = stored_version(run.connection, lane)
    if known != VERSION:
        run.connection.execute(load("mysql")["write_version"], {"lane": lane.name, "version": VERSION})
    if not run.connection.query("SELECT 1 FROM outboxd_lane WHERE lane = :lane", {"lane": lane.name}):
        run.connection.execute(load("mysql")["write_lane"], {"lane": lane.name})
    table = inspect(run.connection, lane.name)
    is_done = known == VERSION and not work.steps
    told = "nothing to do" if is_done else "created" if work.table is None else "migrated"
    run.report(f"{lane.name}: {told}, it has version {VERSION}")
    for line in spare_index(table, lane):
        run.report(line)
    if is_done:
        return
    if table is not None and nulls_trigger(lane) in table.triggers:
        run.report(
            f"{lane.name}: the trigger {nulls_trigger(lane)} turns NULLs that older producers write into defaults; "
            "drop it when none does"
        )
    status = theirs(lane, "status").lower()
    for name, index in table.indexes.items() if table is not None else ():
        if index.columns[0].lower() == status:
            run.report(f"{lane.name}: its index {name} ({', '.join(index.columns)}) makes every claim slower; drop it")


# steps


def _take(run: _Run, work: Work, step: Step) -> None:
    if step.says:
        run.report(step.says)
    if step.kind in {"create", "insert"}:
        run.connection.execute(step.sql)
    elif step.kind == "trigger":
        _make_trigger(run, work.lane, step.sql)
    elif step.kind == "fix":
        _mend(run, work.lane)
    elif step.kind == "key":
        _alter(run, work, step.sql)
    elif step.kind == "mark":
        marked = _in_chunks(run, work.lane, step.sql)
        run.report(f"{work.lane.name}: {marked:,} rows are delivered; what came after them is published")
    else:
        _alter_and_mend(run, work, step.sql)


def _make_trigger(run: _Run, lane: Lane, sql: str) -> None:
    def make() -> None:
        try:
            run.connection.execute(sql)
        except StoreRefused as error:
            raise StoreRefused(
                f"{lane.name} has columns that may be NULL and will not be; the trigger that turns a producer's NULL "
                f"into the default was refused: {error}; grant TRIGGER (with a binary log on MySQL, "
                "log_bin_trust_function_creators = 1 too), or, if no producer writes NULL, make these columns NOT NULL "
                "yourself; then run it again"
            ) from error

    _patiently(run, lane, make)


def _mend(run: _Run, lane: Lane) -> None:
    """Change rows that the strict ALTER would refuse, chunk by chunk along the primary key."""
    table = inspect(run.connection, lane.name)
    assign, condition = fix_of(table, lane) if table is not None else ("", "")
    if not assign:
        return
    update = f"UPDATE {statements.quoted(lane.name, 'mysql')} SET {assign} WHERE ({condition})"
    run.report(f"{lane.name}: mended {_in_chunks(run, lane, update):,} rows")


def _in_chunks(run: _Run, lane: Lane, update: str) -> int:
    """Run an UPDATE that ends with its condition chunk by chunk along the primary key; the rows that it changed."""
    name, key = statements.quoted(lane.name, "mysql"), column_of(lane, "id")
    chunk = f"SELECT {key} AS i FROM {name} WHERE {key} > :after ORDER BY {key} LIMIT {CHUNK}"
    ahead = f"SELECT MIN(i), MAX(i) FROM ({chunk}) c"
    after, changed = -(2**63), 0
    while (found := run.connection.query(ahead, {"after": after})[0])[1] is not None:
        low, after = int(found[0]), int(found[1])
        params = {"low": low, "high": after}
        sql = f"{update} AND {key} BETWEEN :low AND :high"
        changed += _patiently(run, lane, partial(run.connection.execute, sql, params))
    return changed


def _alter_and_mend(run: _Run, work: Work, sql: str) -> None:
    """Alter; if the server refuses rows that older producers wrote since, mend those and try again."""
    for attempt in range(1, ROUNDS + 1):
        try:
            _alter(run, work, sql)
            return
        except StoreRefused as refused:
            table = inspect(run.connection, work.lane.name)
            facts = facts_of(run.connection, table, work.lane) if table is not None else None
            wrong = list(refusals(facts)) if facts is not None else []
            if wrong:
                text = f"{work.lane.name} cannot be migrated: {'; '.join(wrong)}; then run it again"
                raise StoreRefused(text) from refused
            if facts is None or not facts.to_fix or attempt == ROUNDS:
                raise
            _mend(run, work.lane)


def _alter(run: _Run, work: Work, sql: str) -> None:
    for algorithm in _ALGORITHMS:
        try:
            _patiently(run, work.lane, partial(run.connection.execute, f"{sql}, {algorithm}"))
            return
        except StoreRefused as error:
            if _number(error) not in _NOT_POSSIBLE:
                raise
    run.report(f"{work.lane.name}: {_estimate(work)}")
    _patiently(run, work.lane, partial(run.connection.execute, f"{sql}, {_BLOCKING}"))


def _number(error: StoreError) -> int:
    """The server's number of an error, which the connection keeps as its cause."""
    cause = error.__cause__
    return cause.args[0] if cause is not None and cause.args and isinstance(cause.args[0], int) else 0


def _patiently(run: _Run, lane: Lane, act: Callable[[], Answer]) -> Answer:
    """Act; when a lock is not to be had in time, let those who wait behind us pass, and act again."""
    patience = run.patience
    for attempt in range(1, patience.attempts + 1):
        try:
            return act()
        except StoreConflict as error:
            if attempt == patience.attempts:
                raise StoreRefused(
                    f"{lane.name} was in use by a transaction at each of {attempt} tries ({error}): end long "
                    "transactions (dumps, reports, idle sessions; information_schema.INNODB_TRX lists them), then run "
                    "it again"
                ) from error
            if attempt == 1:
                run.report(f"{lane.name}: a transaction holds the table, trying again every {patience.pause_s:g} s")
            time.sleep(patience.pause_s)
    raise AssertionError("unreachable: the last attempt returns or raises")
