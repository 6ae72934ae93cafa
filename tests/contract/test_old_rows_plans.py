"""How old rows are found and deleted: by index and primary key, whatever the table holds; what that costs and locks."""

from collections.abc import Callable, Sequence

import pytest

from outboxd.config.schema import Database, Lane
from outboxd.store import connect
from outboxd.store.api import FRESH
from outboxd.store.old_api import Kind
from outboxd.store.old_rows import OldRowTable
from outboxd.store.prune import Walk
from tests.contract.conftest import LANE, Table

VALUES: dict[str, object] = {"due": -1, "after": 5, "most": 10, "low": 0, "high": FRESH - 1, "lane": LANE, "seen": 0}


def texts(rows: OldRowTable) -> dict[str, str]:
    """Every statement that reads or changes rows, as it is sent."""
    names = ("equal", "range", "lock", "delete", "last_round", "win_round")
    return {
        name: rows._sql[name].replace("{rows}", "`id` IN (3,4,5,9)").replace("{still}", rows._sql["still_active"])
        for name in names
        if name in rows._sql
    }


@pytest.mark.parametrize("analyzed", [False, True])
def test_every_statement_reads_by_its_index(
    analyzed: bool, table: Table, database: Database, lane: Lane
) -> None:
    """Also where statistics say that the whole table is read sooner: it would lock all of it."""
    table.insert_many(300, status="delivered")
    table.insert_many(50, status="failed")
    table.insert_many(50, next_retry_at_ms=2**40)
    is_sqlite = database.scheme == "sqlite"
    if analyzed:
        table.connection.execute("ANALYZE" if is_sqlite else f"ANALYZE TABLE {LANE}")
    for name, sql in texts(OldRowTable(table.connection, lane)).items():
        if name in ("last_round", "win_round"):
            continue
        found = plan(table, sql, is_sqlite)
        if is_sqlite:
            (line,) = found
            assert "SEARCH" in line, f"{name}: {line}"
            assert ("(due_at_ms" in line) == (name in ("equal", "range")), f"{name}: {line}"
        else:
            (row,) = found
            key = "due" if name in ("equal", "range") else "PRIMARY"
            assert row[1:3] == ("range", key), f"{name}: {row}"
            assert "filesort" not in row[3], f"{name}: {row}"


def plan(table: Table, sql: str, is_sqlite: bool) -> Sequence[str | tuple[str, ...]]:
    """How the database would go about it."""
    if is_sqlite:
        return [str(row[3]) for row in table.connection.query(f"EXPLAIN QUERY PLAN {sql}", VALUES)]
    connection = table.connection
    # FORMAT: MySQL 9 draws a tree by default.
    connection._run(f"EXPLAIN FORMAT=TRADITIONAL {sql}", VALUES)  # type: ignore[attr-defined]  # a SELECT would be opened by query()
    names = [column[0].lower() for column in connection._cursor.description]  # type: ignore[attr-defined]
    rows = [dict(zip(names, row, strict=True)) for row in connection._cursor.fetchall()]  # type: ignore[attr-defined]
    return [tuple(str(row[name]) for name in ("table", "type", "key", "extra")) for row in rows]


class Counting:
    """A connection that counts what is sent."""

    def __init__(self, inner: object) -> None:
        self._inner = inner
        self.sent: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., object]:
        def send(*arguments: object) -> object:
            self.sent.append(name)
            return getattr(self._inner, name)(*arguments)

        return send


def test_a_step_is_few_statements_however_many_rows_it_deletes(table: Table, lane: Lane) -> None:
    """Per thousand rows: a look, a lock, a DELETE, and the transaction around the two."""
    then_ms = table.now_ms() - 1000
    table.insert_many(1000, status="delivered", created_at_ms=then_ms)
    counting = Counting(table.connection)
    object.__setattr__(counting, "dialect", table.connection.dialect)
    rows = OldRowTable(counting, lane)  # type: ignore[arg-type]
    counting.sent.clear()
    assert Walk(Kind.DELIVERED).step(rows, table.now_ms(), 1000).deleted == 1000
    assert len(counting.sent) <= 5


def test_what_another_transaction_works_on_is_passed_over(
    table: Table, database: Database, lane: Lane
) -> None:
    """Nobody waits for anybody. (SQLite has one writer at a time.)"""
    if database.scheme == "sqlite":
        return
    then_ms = table.now_ms() - 1000
    first, second, third = table.insert_many(3, created_at_ms=then_ms)
    connection = connect(database)
    try:
        connection.begin()
        connection.execute(f"UPDATE {LANE} SET retry_count = 1 WHERE id = {second}")
        rows = OldRowTable(table.connection, lane)
        assert Walk(Kind.FRESH).step(rows, table.now_ms(), 10).deleted == 2
        connection.rollback()
        assert Walk(Kind.FRESH).step(rows, table.now_ms(), 10).deleted == 1
        assert first < third
    finally:
        connection.close()


def test_a_producer_inserts_while_rows_are_being_deleted(
    table: Table, database: Database, lane: Lane
) -> None:
    """Nothing is locked beside those that go, at the end, or under an id between them. (SQLite has one writer.)"""
    if database.scheme == "sqlite":
        return
    table.insert_many(20, status="delivered", created_at_ms=1)
    table.connection.execute(f"DELETE FROM {LANE} WHERE id IN (7, 8)")
    rows = OldRowTable(table.connection, lane)
    commit = table.connection.commit
    connection = connect(database)
    connection.execute("SET SESSION innodb_lock_wait_timeout = 1")
    inserted: list[int] = []

    def insert_then_commit() -> None:
        for columns in ({}, {"id": 7}, {"status": "delivered", "id": 8}):
            inserted.append(Table(connection, iter(range(900 + len(inserted), 1000))).insert(**columns))
        commit()

    table.connection.commit = insert_then_commit  # type: ignore[method-assign]  # a producer comes in between
    try:
        assert Walk(Kind.DELIVERED).step(rows, table.now_ms(), 100).deleted == 18
    finally:
        table.connection.commit = commit  # type: ignore[method-assign]
        connection.close()
    assert len(inserted) == 3
