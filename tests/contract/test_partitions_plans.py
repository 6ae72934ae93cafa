"""How the statements of an ordered lane read: each by its index, whatever else the table holds."""

from collections.abc import Callable, Sequence
from contextlib import closing

import pytest

from outboxd.config.schema import Database, Lane
from outboxd.store import statements
from outboxd.store.api import FRESH, PARTITIONS, Store
from tests.contract.conftest import LANE, Table

PARTS = {"full", "light", "size"}
"""Named texts that are parts of statements."""
BY_ROOMS = {"peek", "scan_new", "scan_new_light", "scan_equal", "scan_equal_light", "scan_range", "scan_range_light",
            "open_ids", "window", "scan_room", "blockers", "dead_blockers"}  # fmt: skip
BY_LANE = {"owners", "owned"}
"""All of one lane's partitions, which are few."""
PLACES = {"{number}": "3", "{numbers}": "3,4,5", "{ids}": "5,6,7", "{limit}": "10", "{due}": ":due"}
VALUES: dict[str, object] = {
    "lane": LANE, "fresh": FRESH, "after": 5, "due": 5, "due_after": 5, "inline": 10, "number": 3, "from": 5, "to": 500,
    "app": "a", "room": "r", "limit": 10, "token": 7, "worker": "w", "owner": 7, "lease": 9, "former": "w",
    "more": 4, "upto": 500,
}  # fmt: skip


@pytest.fixture
def lane() -> Lane:
    """Settings of an ordered lane."""
    return Lane(name=LANE, direct=("console",), ordering="room")


def named(dialect: str) -> set[str]:
    """All statements of a dialect, and those that are the same in both."""
    return {*statements.load(f"partitions_{dialect}"), *statements.load("partitions")} - PARTS


def texts(store: Store) -> dict[str, str]:
    """Every statement, as it is sent."""
    found: dict[str, str] = {}
    for name, sql in store.partitions._sql.items():  # type: ignore[union-attr]  # an ordered lane's has them
        for place, text in {**PLACES, "{after}": ":after", "{before}": ":to"}.items():
            sql = sql.replace(place, text)
        if name not in PARTS:
            found[name] = sql
    return found


def fill(table: Table) -> None:
    """Some of everything."""
    table.insert_many(300, status="delivered")
    table.insert_many(100, next_retry_at_ms=2**52)
    table.insert_many(50, status="retryable", next_retry_at_ms=1)
    table.insert_many(50, status="failed")
    for room in range(20):
        table.insert_many(20, room_id=f"room-{room}")


def plan(table: Table, sql: str) -> Sequence[tuple[object, ...]]:
    """How the database would go about it."""
    if table.connection.dialect == "sqlite":
        return table.connection.query(f"EXPLAIN QUERY PLAN {sql}", VALUES)
    connection = table.connection
    # FORMAT: MySQL 9 draws a tree by default.
    connection._run(f"EXPLAIN FORMAT=TRADITIONAL {sql}", VALUES)  # type: ignore[attr-defined]  # a SELECT would be opened by query()
    names = [column[0].lower() for column in connection._cursor.description]  # type: ignore[attr-defined]
    rows = [dict(zip(names, row, strict=True)) for row in connection._cursor.fetchall()]  # type: ignore[attr-defined]
    return [tuple(str(row[name]) for name in ("table", "type", "key", "extra")) for row in rows]


@pytest.mark.parametrize("analyzed", [False, True])
def test_every_statement_reads_by_its_index(
    analyzed: bool, table: Table, open_another: Callable[[], Store], database: Database
) -> None:
    """The cost must not depend on what was delivered or is delayed, nor on statistics."""
    fill(table)
    if analyzed:
        table.connection.execute("ANALYZE" if database.scheme == "sqlite" else f"ANALYZE TABLE {LANE}")
    with closing(open_another()) as store:
        found = texts(store)
        check = check_sqlite if database.scheme == "sqlite" else check_mysql
        assert set(found) >= named(table.connection.dialect)
        for name, sql in found.items():
            check(name, plan(table, sql))


def check_sqlite(name: str, lines: Sequence[tuple[object, ...]]) -> None:
    """By the index, in its order."""
    for line in (str(row[3]) for row in lines):
        assert "TEMP B-TREE" not in line, f"{name}: {line}"
        assert not line.startswith("SCAN room_outbox"), f"{name}: {line}"
        if f"SEARCH {LANE}" in line:
            assert ("room_partition=?" in line) == (name in BY_ROOMS), f"{name}: {line}"
            if name in ("scan_equal", "scan_equal_light", "open_ids", "scan_room"):
                assert "due_at_ms=? AND rowid>?" in line, f"{name}: {line}"


def check_mysql(name: str, lines: Sequence[tuple[object, ...]]) -> None:
    """By the index, as a range, in its order."""
    is_planned = {LANE, "outboxd_partition"} & {str(line[0]) for line in lines}
    # The end of an index is looked up while the server plans.
    assert is_planned or str(lines[0][3]) == "Select tables optimized away", f"{name} is not planned: {lines}"
    for where, kind, key, extra in lines:
        if where == LANE:
            expected = "rooms" if name in BY_ROOMS else "PRIMARY"
            assert key == expected, f"{name}: {lines}"
            assert kind == "range", f"{name}: {lines}"
            # The rooms of a list of partitions are sorted by nobody.
            assert "filesort" not in str(extra), f"{name}: {lines}"
            is_covered = "Using index" in str(extra).replace("Using index condition", "")
            assert is_covered == (name in ("open_ids", "window")), lines
        elif where == "outboxd_partition":
            assert key == "PRIMARY", f"{name}: {lines}"
            assert kind == ("ref" if name in BY_LANE else "range"), f"{name}: {lines}"


def test_the_statements_are_all_that_are_looked_at() -> None:
    """A new one must be given its place here."""
    own = {"rows", "take", "take_suspect", "taken", "give_back", "last_id"}
    own |= {"acquire", "keep", "ask", "release", "withdraw"}
    for dialect in ("mysql", "sqlite"):
        names = named(dialect)
        assert names == {name for name in BY_ROOMS if not name.endswith("_light")} | BY_LANE | own
    assert PARTITIONS == 64
