"""Lanes whose index begins with the partition: what is asked of a whole lane, one of whose rooms has half of it."""

import random

import pytest

from outboxd.config.schema import Database, Lane
from outboxd.store import desk, old_parted
from outboxd.store.api import FAILED, FRESH, RETRYABLE
from outboxd.store.desk import overview
from outboxd.store.desk_dead import DeadFilter, dead_list, replay
from outboxd.store.desk_find import find
from outboxd.store.desk_look import around
from outboxd.store.old_api import Kind, Position
from outboxd.store.old_rows import OldRowTable
from tests.contract.conftest import LANE, Table
from tests.services.chaos import SEED

HOUR_MS = 3_600_000


@pytest.fixture
def lane() -> Lane:
    """Settings of an ordered lane."""
    return Lane(name=LANE, direct=("console",), ordering="room", on_dead="block")


def fill(table: Table, count: int, chance: random.Random, **columns: object) -> list[int]:
    """Half of them in one room, the others in as many rooms as there are; their ids."""
    rooms = ["hot" if chance.random() < 0.5 else f"room-{chance.randrange(500)}" for _ in range(count)]
    table.connection.begin()
    found = [table.insert(room_id=room, **columns) for room in rooms]
    table.connection.commit()
    return found


@pytest.mark.parametrize("most", [1, 3, 20, 200])
@pytest.mark.parametrize("kind", [Kind.DELIVERED, Kind.FRESH])
def test_old_rows_are_read_in_the_order_of_ids_over_all_rooms(
    table: Table, lane: Lane, monkeypatch: pytest.MonkeyPatch, kind: Kind, most: int
) -> None:
    """Page by page, each once: also where a look sees only the first few of a room that has most of them."""
    monkeypatch.setattr(old_parted, "LEAST", 2)
    mine = fill(table, 150, random.Random(SEED), status="delivered" if kind is Kind.DELIVERED else "pending")
    fill(table, 5, random.Random(SEED), status="failed")
    rows, position, found = OldRowTable(table.connection, lane), Position(), list[int]()
    while window := rows.read(kind, position, most):
        assert len(window) == min(most, len(mine) - len(found))
        found += [row.id for row in window]
        position = Position(window[-1].due_at_ms, window[-1].id)
    assert found == mine


@pytest.mark.parametrize("most", [1, 7, 200])
def test_what_was_tried_is_read_by_time_and_id_over_all_rooms(
    table: Table, lane: Lane, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """However many have the same time."""
    monkeypatch.setattr(old_parted, "LEAST", 2)
    chance = random.Random(SEED)
    mine = [(due, row_id) for due in (5, 9, 9, 7) for row_id in fill(table, 40, chance, next_retry_at_ms=due)]
    rows, position, found = OldRowTable(table.connection, lane), Position(), list[tuple[int, int]]()
    while window := rows.read(Kind.TRIED, position, most):
        found += [(row.due_at_ms, row.id) for row in window]
        position = Position(*found[-1])
    assert found == sorted(mine)


def test_dead_letters_are_listed_and_replayed_in_the_order_of_ids_over_all_rooms(table: Table, lane: Lane) -> None:
    """Newest first, and from the oldest one on."""
    dead = fill(table, 60, random.Random(SEED), status=FAILED)
    assert [one.id for one in dead_list(table.connection, lane, DeadFilter(), limit=25)] == dead[:-26:-1]
    assert sum(replay(table.connection, lane, DeadFilter(limit=10), batch=4)) == 10
    assert [table.status(row_id) for row_id in dead[9:11]] == ["pending", FAILED]


def test_the_oldest_event_is_found_where_not_all_are_counted(
    table: Table, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count ends somewhere among the partitions; the age that an alert goes by must not."""
    monkeypatch.setattr(desk, "COUNT_CAP", 10)
    monkeypatch.setattr(desk, "FEW", 5)
    now_ms = table.now_ms()
    for number in range(20):  # one stays, that of the last partition: the count does not come to it
        table.insert(room_id=f"old-{number}", created_at_ms=now_ms - HOUR_MS)
    ((last,),) = table.connection.query(f"SELECT id FROM {LANE} ORDER BY room_partition DESC LIMIT 1")
    table.connection.execute(f"DELETE FROM {LANE} WHERE id <> :last", {"last": last})
    fill(table, 100, random.Random(SEED), created_at_ms=now_ms)
    shown = overview(table.connection, lane)
    assert (shown.fresh, "fresh" in shown.capped) == (11, True)
    assert shown.oldest_age_ms is not None
    assert shown.oldest_age_ms >= HOUR_MS


@pytest.mark.parametrize("few", [5, 500])
def test_what_is_in_flight_is_counted_wherever_it_stands_or_said_to_be_more(
    table: Table, lane: Lane, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Behind many that wait for a blocked room, too."""
    monkeypatch.setattr(desk, "FEW", few)
    monkeypatch.setattr(desk, "HEADS", 3)
    table.insert_many(5, room_id="blocked")
    holder = {"status": "delivering", "worker_id": "n/w", "lock_until_ms": table.now_ms() + HOUR_MS}
    table.insert(room_id="blocked", **holder)
    table.insert(room_id="other", **holder)
    shown = overview(table.connection, lane)
    is_exact = few > 5 or table.connection.dialect == "sqlite"
    assert (shown.fresh, shown.delivering) == ((5, 2) if is_exact else (6, 1))
    assert shown.capped == (frozenset() if is_exact else {"delivering"})


def test_what_goes_on_around_an_event_is_seen_in_every_partition(table: Table, lane: Lane) -> None:
    """The newest delivery, the newest failure, who holds what: whichever room that was."""
    later_ms = table.now_ms() + HOUR_MS
    for number in range(40):
        table.insert(room_id=f"a-{number}", status="delivered", delivered_at_ms=1000 + number)
        table.insert(
            room_id=f"b-{number}", status=RETRYABLE, next_retry_at_ms=later_ms, updated_at_ms=2000 + number,
            last_error=f"refused {number}",
        )  # fmt: skip
        holder = {"status": "delivering", "worker_id": f"n/w-{number % 2}", "lock_until_ms": later_ms}
        table.insert(room_id=f"c-{number}", **holder)
    table.insert(event_id="last")
    seen = around(table.connection, lane, find(table.connection, lane, "last", "app")[0])
    assert (seen.last_delivery_ms, seen.last_failure_ms, seen.last_failure) == (1039, 2039, "refused 39")
    assert seen.holders == {"n/w-0": 20, "n/w-1": 20}
    assert overview(table.connection, lane).next_due_ms == later_ms


def test_no_statement_over_all_partitions_sorts_or_reads_whole_ranges(
    table: Table, lane: Lane, database: Database
) -> None:
    """What was delivered, and a backlog, may be millions: each partition's part ends where the index tells it to."""
    if database.scheme == "sqlite":
        assert (find(table.connection, lane, "none"), FRESH) == ([], 2**53 - 1)
        return
    fill(table, 3000, random.Random(SEED), status="delivered")
    rows = OldRowTable(table.connection, lane)
    before = _rows_read(table)
    assert len(rows.read(Kind.DELIVERED, Position(), 20)) == 20
    assert _rows_read(table) - before < 3 * 64 * (old_parted.LEAST + 3)


def _rows_read(table: Table) -> int:
    rows = table.connection.query("SHOW SESSION STATUS LIKE 'Handler_read_%'")
    return sum(int(row[1]) for row in rows)
