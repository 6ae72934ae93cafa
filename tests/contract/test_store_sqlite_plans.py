"""How the store on SQLite reads: every statement by an index, whatever else the table holds."""

from collections.abc import Iterator

import pytest

from outboxd.config.schema import Database, Lane
from outboxd.store import statements
from outboxd.store.sqlite import SqliteStore
from outboxd.store.sqlite_connection import SqliteConnection
from tests.contract.conftest import LANE, Table

NEVER_RUN = {"row"}
"""Named texts that are parts of statements."""

BY_INDEX = {"peek", "claim_equal", "claim_range", "unfinished"}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """This file is about one kind of database."""
    return sqlite_url


def plans(connection: SqliteConnection, store: SqliteStore) -> Iterator[tuple[str, str]]:
    """Every statement with each line of its plan that touches the lane's table."""
    values: dict[str, object] = dict.fromkeys(
        (
            "lane",
            "fresh",
            "after",
            "due",
            "due_after",
            "inline",
            "limit",
            "worker",
            "token",
            "lease",
            "lost",
            "counted",
        ),
        1,
    )
    values |= dict.fromkeys(("status", "delay", "error", "names", "key"), 1) | {"ids": "[1]"}
    for name, sql in store._sql.items():
        if name not in NEVER_RUN:
            for row in connection.query(f"EXPLAIN QUERY PLAN {sql}", values):
                if LANE in row[3]:
                    yield name, row[3]


@pytest.mark.parametrize("analyzed", [False, True])
def test_every_statement_reads_by_an_index(database: Database, lane: Lane, table: Table, analyzed: bool) -> None:
    """The cost must not depend on delivered or future rows; statistics must not change the planner's mind."""
    table.insert_many(300, status="delivered")
    table.insert_many(300, next_retry_at_ms=2**52)
    if analyzed:
        table.connection.execute("ANALYZE")
    connection = SqliteConnection(database)
    found = list(plans(connection, SqliteStore(connection, lane)))
    connection.close()
    assert {name for name, _ in found} == set(statements.load("sqlite")) - NEVER_RUN
    for name, line in found:
        if (name, line) == ("peek", f"SEARCH {LANE}"):  # MAX(id): one step to the end of the table
            continue
        assert line.startswith(f"SEARCH {LANE} USING "), f"{name}: {line}"
        assert ("due_at_ms" in line) == (name in BY_INDEX), f"{name}: {line}"
        assert "SCAN" not in line
        assert "TEMP B-TREE" not in line
    assert any("(due_at_ms=? AND rowid>?)" in line for name, line in found if name == "claim_equal")
    assert any("(due_at_ms>? AND due_at_ms<?)" in line for name, line in found if name == "claim_range")


def test_claims_are_not_sorted(database: Database, lane: Lane, table: Table) -> None:
    """The index's own order is the claim's."""
    connection = SqliteConnection(database)
    store = SqliteStore(connection, lane)
    for name in ("claim_equal", "claim_range"):
        values = {"due": 1, "after": 1, "limit": 1, "inline": 1}
        lines = [row[3] for row in connection.query(f"EXPLAIN QUERY PLAN {store._sql[name]}", values)]
        assert len(lines) == 1, lines
    connection.close()
