"""Old rows: what is found and deleted, what stays whatever its age, and one round per interval over all workers."""

from collections.abc import Callable

import pytest

from outboxd.config.schema import Database, Lane
from outboxd.errors import StoreConflict
from outboxd.store import connect
from outboxd.store.api import FRESH, RETRYABLE
from outboxd.store.connection import Connection
from outboxd.store.migrate import init_db
from outboxd.store.old_api import Kind, Position
from outboxd.store.old_rows import OldRowTable
from outboxd.store.prune import MOST_ROWS, Walk, count_prunable, prune
from tests.contract.conftest import LANE, Table

AN_HOUR_MS = 3_600_000
NO_PAUSE: Callable[[float], None] = lambda _: None  # noqa: E731 - a value for calls, not a function of this module


@pytest.fixture(params=["none", "room"])
def lane(request: pytest.FixtureRequest) -> Lane:
    """Settings of the lane; the index of an ordered one begins with the partition on MySQL."""
    return Lane(name=LANE, direct=("console",), ordering=request.param)


@pytest.fixture
def rows(table: Table, lane: Lane) -> OldRowTable:
    """The lane's old rows."""
    return OldRowTable(table.connection, lane)


def delivered(table: Table, count: int, age_ms: int = AN_HOUR_MS, **columns: object) -> list[int]:
    """Rows that were created and delivered so long ago."""
    then_ms = table.now_ms() - age_ms
    times = {"created_at_ms": then_ms, "delivered_at_ms": then_ms, "updated_at_ms": then_ms}
    return table.insert_many(count, **{"status": "delivered", **times, **columns})


def ids(table: Table) -> list[int]:
    """Of all rows that are left."""
    return [int(row[0]) for row in table.connection.query("SELECT id FROM room_outbox ORDER BY id")]


def test_retention_deletes_what_was_delivered_long_ago(table: Table, lane: Lane) -> None:
    """And nothing else: dead letters, what waits, what was delivered late stay."""
    old = delivered(table, 3)
    then_ms = table.now_ms() - AN_HOUR_MS
    failed = table.insert(status="failed", created_at_ms=then_ms, updated_at_ms=then_ms)
    waits = table.insert(created_at_ms=then_ms)
    late = delivered(table, 1, delivered_at_ms=table.now_ms())
    older = delivered(table, 2)
    young = delivered(table, 2, age_ms=0)
    assert count_prunable(table.connection, lane, 1800).count == 5
    pruned = prune(table.connection, lane, 1800, pause=NO_PAUSE)
    assert (pruned.deleted, pruned.is_complete) == (5, True)
    assert ids(table) == [failed, waits, *late, *young]
    assert set(old + older).isdisjoint(ids(table))
    assert prune(table.connection, lane, 1800, pause=NO_PAUSE).deleted == 0


def test_what_nobody_knows_the_time_of_stays(table: Table, lane: Lane) -> None:
    """Rows of an older relay may lack the time of their delivery: then the others count; without any they are kept."""
    unknown = delivered(table, 1, created_at_ms=0, delivered_at_ms=0, updated_at_ms=0)
    delivered(table, 1, delivered_at_ms=0)
    delivered(table, 1, delivered_at_ms=0, updated_at_ms=0)
    assert prune(table.connection, lane, 1800, pause=NO_PAUSE).deleted == 2
    assert ids(table) == unknown


def test_a_prune_ends_at_its_limit_or_when_told_to(table: Table, lane: Lane) -> None:
    """A job has a limit for each run, and a daemon that ends waits for no million rows."""
    delivered(table, 30)
    told: list[int] = []
    pruned = prune(table.connection, lane, 1800, most_rows=7, pause=NO_PAUSE, tell=told.append)
    assert (pruned.deleted, pruned.is_complete, told[-1]) == (7, False, 7)
    assert prune(table.connection, lane, 1800, should_stop=lambda: True).deleted == 0
    assert len(ids(table)) == 23


def test_a_prune_rests_after_each_transaction(table: Table, lane: Lane) -> None:
    """The server is the producers' first; and no transaction is larger than replicas like."""
    delivered(table, 2600)
    pauses: list[float] = []
    pruned = prune(table.connection, lane, 1800, pause=pauses.append)
    assert pruned.deleted == 2600
    assert pruned.transactions >= 2
    assert len(pauses) >= pruned.transactions - 1
    assert min(pauses) >= 0.01
    assert MOST_ROWS == 5000


def test_a_walk_reads_no_further_than_the_first_young_rows(table: Table, rows: OldRowTable) -> None:
    """A million rows that stay cost nothing."""
    delivered(table, 5)
    delivered(table, 50, age_ms=0)
    walk = Walk(Kind.DELIVERED)
    before_ms = table.now_ms() - AN_HOUR_MS // 2
    steps = [walk.step(rows, before_ms, 10) for _ in range(2)]
    assert [(step.read, step.deleted, step.is_done) for step in steps] == [(10, 5, False), (10, 0, True)]


def test_rows_of_unknown_age_end_no_walk(table: Table, rows: OldRowTable) -> None:
    """They are passed over, and what is old behind them goes."""
    unknown = table.insert_many(10, created_at_ms=0)
    old = table.insert_many(3, created_at_ms=table.now_ms() - AN_HOUR_MS)
    walk = Walk(Kind.FRESH)
    before_ms = table.now_ms() - AN_HOUR_MS // 2
    steps = [walk.step(rows, before_ms, 10) for _ in range(2)]
    assert [(step.deleted, step.is_done) for step in steps] == [(0, False), (3, True)]
    assert ids(table) == unknown
    assert old


@pytest.mark.parametrize("kind", list(Kind))
def test_each_kind_is_read_from_where_it_ended(table: Table, rows: OldRowTable, kind: Kind) -> None:
    """By ids, or by due times and ids, however many have the same one; each row once."""
    status = {Kind.DELIVERED: "delivered", Kind.FAILED: "failed", Kind.TRIED: RETRYABLE}.get(kind, "pending")
    due = {"next_retry_at_ms": 7} if kind is Kind.TRIED else {}
    mine = table.insert_many(5, status=status, **due)
    if kind is Kind.TRIED:
        mine.append(table.insert(status=status, next_retry_at_ms=9))
        mine.insert(0, table.insert(status=status, next_retry_at_ms=5))
    table.insert(status="failed" if kind is Kind.DELIVERED else "delivered", next_retry_at_ms=0)
    found: list[int] = []
    position = Position()
    while window := rows.read(kind, position, 2):
        found += [row.id for row in window]
        position = Position(window[-1].due_at_ms, window[-1].id)
    assert found == mine
    assert {row.due_at_ms for row in rows.read(kind, Position(), 1)} == {
        {Kind.DELIVERED: -1, Kind.FAILED: -2, Kind.FRESH: FRESH, Kind.TRIED: 5}[kind]
    }


def test_a_row_under_a_lease_is_never_deleted(table: Table, rows: OldRowTable) -> None:
    """G2: whoever publishes it settles it; when the lease has run out it is as old as any."""
    row_id = table.insert(created_at_ms=1)
    table.change(row_id, status="delivering", claim_token=7, lock_until_ms=table.now_ms() + 60_000)
    assert Walk(Kind.FRESH).step(rows, table.now_ms(), 10).deleted == 0
    assert rows.delete(Kind.FRESH, [row_id]) == 0
    table.run_out(row_id)
    assert Walk(Kind.FRESH).step(rows, table.now_ms(), 10).deleted == 1


@pytest.mark.parametrize(("kind", "status"), [(Kind.DELIVERED, "pending"), (Kind.FAILED, "pending"),
                                              (Kind.FRESH, "delivered"), (Kind.TRIED, "failed")])  # fmt: skip
def test_a_row_that_has_changed_since_it_was_read_stays(
    table: Table, rows: OldRowTable, kind: Kind, status: str
) -> None:
    """A dead letter that is replayed at this moment, an event that is delivered."""
    row_id = table.insert(status=status)
    assert rows.delete(kind, [row_id]) == 0
    assert ids(table) == [row_id]


def test_a_round_is_won_once_per_interval(
    table: Table, rows: OldRowTable, database: Database, lane: Lane
) -> None:
    """By the database's clock, whatever the number of workers; a clock that was set back does not stop it."""
    connection = connect(database)
    try:
        other = OldRowTable(connection, lane)
        assert rows.win(60_000).is_won
        lost = other.win(60_000)
        assert not lost.is_won
        assert 50_000 < lost.wait_ms <= 60_000
        assert not rows.win(60_000).is_won
        table.connection.execute("UPDATE outboxd_lane SET last_cleanup_ms = last_cleanup_ms - 60000")
        assert other.win(60_000).is_won
        table.connection.execute("UPDATE outboxd_lane SET last_cleanup_ms = last_cleanup_ms + 3600000")
        assert rows.win(60_000).is_won
        assert not other.win(60_000).is_won
    finally:
        connection.close()


def test_a_round_that_began_while_another_worker_was_asking_is_not_won_again(table: Table, rows: OldRowTable) -> None:
    """Its statement took its time before the other's was written down: that time looks like one to come."""
    assert rows.win(60_000).is_won
    table.connection.execute("UPDATE outboxd_lane SET last_cleanup_ms = last_cleanup_ms + 30000")
    lost = rows.win(60_000)
    assert not lost.is_won
    assert lost.wait_ms == 60_000


class Racing:
    """A connection through which another worker comes first, between reading and writing."""

    def __init__(self, inner: Connection, first: Callable[[], object]) -> None:
        self._inner = inner
        self._first = first

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def execute(self, sql: str, params: dict[str, object]) -> int:
        self._first()
        return self._inner.execute(sql, params)


def test_of_two_that_ask_at_once_one_wins(table: Table, rows: OldRowTable, database: Database, lane: Lane) -> None:
    """The time that was read is compared as it is set."""
    connection = connect(database)
    try:
        slow = OldRowTable(Racing(connection, lambda: rows.win(60_000)), lane)  # type: ignore[arg-type]
        assert not slow.win(60_000).is_won
    finally:
        connection.close()


def test_a_table_may_name_its_columns_otherwise(database: Database) -> None:
    """Those of outboxd_lane keep their names."""
    columns = {"id": "nr", "created_at_ms": "made", "status": "state", "updated_at_ms": "changed"}
    lane = Lane(name="room_outbox", direct=("console",), columns=columns)
    connection = connect(database)
    try:
        init_db(connection, [lane])
        connection.execute(
            "INSERT INTO room_outbox (event_id, event_type, room_id, envelope, state, made, delivered_at_ms) "
            "VALUES ('e', 't', 'r', '{}', 'delivered', 5, 5)"
        )
        assert OldRowTable(connection, lane).win(1000).is_won
        assert prune(connection, lane, 60, pause=NO_PAUSE).deleted == 1
    finally:
        connection.close()


class Stubborn:
    """Old rows that somebody holds at first."""

    def __init__(self, inner: OldRowTable, conflicts: int) -> None:
        self._inner = inner
        self.left = conflicts

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def delete(self, kind: Kind, ids: list[int]) -> int:
        if self.left:
            self.left -= 1
            raise StoreConflict("lock wait")
        return self._inner.delete(kind, ids)


def test_a_step_that_met_a_lock_is_made_again(table: Table, rows: OldRowTable) -> None:
    """Nothing is passed over by it."""
    delivered(table, 3)
    walk, stubborn = Walk(Kind.DELIVERED), Stubborn(rows, 1)
    with pytest.raises(StoreConflict):
        walk.step(stubborn, table.now_ms(), 10)  # type: ignore[arg-type]
    assert walk.step(rows, table.now_ms(), 10).deleted == 3
