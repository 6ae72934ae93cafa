"""Dead letters: listed, counted, replayed and purged, on every kind of database."""

from collections.abc import Callable
from functools import partial

import pytest

from outboxd.config.schema import Lane
from outboxd.explain import dead as explain_dead
from outboxd.store import desk_dead
from outboxd.store.api import FAILED, FRESH, ZERO, Store, Want
from outboxd.store.connection import NO_PARAMS, Params
from outboxd.store.desk_dead import DeadFilter, dead_count, dead_list, dead_page, purge, replay
from tests.contract.conftest import LANE, Table

ANY = DeadFilter()


@pytest.fixture(params=["none", "room"])
def lane(request: pytest.FixtureRequest) -> Lane:
    """Settings of the lane; the index of an ordered one begins with the partition on MySQL."""
    return Lane(name=LANE, direct=("console",), ordering=request.param)


def dead(table: Table, **columns: object) -> int:
    """A dead letter."""
    usual: dict[str, object] = {"status": FAILED, "retry_count": 10, "last_error": "500 boom", "updated_at_ms": 1000}
    return table.insert(**{**usual, **columns})


def test_dead_letters_are_listed_newest_first_and_paged(table: Table, lane: Lane) -> None:
    """A page ends at an id, so that letters which come or go meanwhile shift nothing."""
    ids = [dead(table) for _ in range(5)]
    table.insert_many(3)
    table.insert(status="delivered")
    first = dead_list(table.connection, lane, ANY, limit=2)
    assert [letter.id for letter in first] == [ids[4], ids[3]]
    rest = dead_list(table.connection, lane, ANY, limit=9, before_id=first[-1].id)
    assert [letter.id for letter in rest] == [ids[2], ids[1], ids[0]]
    assert dead_count(table.connection, lane, ANY) == (5, False)


def test_a_page_looks_at_a_bounded_number_and_says_where_to_go_on(
    table: Table, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G9: a filter that hardly anything passes must not make one request last; who follows the pages finds all."""
    monkeypatch.setattr(desk_dead, "WINDOW", 2)
    ids = [dead(table, room_id="wanted" if number in (0, 1, 2, 8) else "r") for number in range(9)]
    before_id: int | None = None
    pages: list[list[int]] = []
    while not pages or before_id is not None:
        found, before_id = dead_page(table.connection, lane, DeadFilter(room="wanted"), 2, before_id, 4)
        pages.append([ids.index(letter.id) for letter in found])
    assert pages == [[8], [2, 1], [0]]
    assert dead_page(table.connection, lane, ANY, 9, None, 99)[1] is None


def test_what_a_count_did_not_come_to_is_found_all_the_same(
    table: Table, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind 100,000 others: a replay of what matches there must not say that nothing does."""
    monkeypatch.setattr(desk_dead, "WINDOW", 1)
    monkeypatch.setattr(explain_dead, "dead_count", partial(dead_count, look_at=1))
    for room in ("r", "r", "wanted"):
        dead(table, room_id=room)
    wanted = explain_dead.Wanted(
        lane=None, event_id=None, event_type=None, room="wanted", app=None, since=None, until=None, error=None,
        limit=None,
    )  # fmt: skip
    found = explain_dead.look(table.connection, lane, wanted, explain_dead.REPLAY)
    assert (found.count, found.is_more, str(found)) == (1, True, "more than 1 dead letter")


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (DeadFilter(event_id="b"), {2}),
        (DeadFilter(event_id="b", app="other"), set()),
        (DeadFilter(event_type="RoomClosed"), {2}),
        (DeadFilter(event_type="Room*"), {1, 2}),
        (DeadFilter(event_type="*Sen_"), set()),  # no wildcard but the star
        (DeadFilter(event_type="room*"), set()),  # types have a case
        (DeadFilter(room="r2"), {2, 3}),
        (DeadFilter(app="app"), {1, 2}),
        (DeadFilter(since_ms=2000), {2, 3}),
        (DeadFilter(since_ms=2000, until_ms=3000), {2}),
        (DeadFilter(error="100%"), {2}),
        (DeadFilter(error="e_x!"), {3}),
        (DeadFilter(error="%"), {2}),
        (DeadFilter(room="r2", error="BOOM"), {3}),
    ],
)
def test_dead_letters_are_filtered(table: Table, lane: Lane, wanted: DeadFilter, numbers: set[int]) -> None:
    """What is listed with a filter is what replay and purge with that filter take: one mistake here deletes events."""
    usual = {"event_type": "RoomCreated", "room_id": "r2"}
    letters = {
        dead(table, **{**usual, "event_id": "a", "room_id": "r1", "last_error": "exx!"}): 1,
        dead(table, **{**usual, "event_id": "b", "event_type": "RoomClosed", "last_error": "is 100% full"}): 2,
        dead(table, **{**usual, "event_id": "c", "event_type": "GiftSent", "last_error": "boom e_x!"}): 3,
    }
    for row_id, number in letters.items():
        table.change(row_id, updated_at_ms=number * 1000, app_code="app" if number < 3 else "z")
    table.insert(event_id="d", event_type="RoomCreated", room_id="r2", updated_at_ms=2000, last_error="100% boom e_x!")
    assert {letters[found.id] for found in dead_list(table.connection, lane, wanted)} == numbers
    assert dead_count(table.connection, lane, wanted) == (len(numbers), False)
    assert sum(replay(table.connection, lane, wanted)) == len(numbers)
    assert {number for row_id, number in letters.items() if table.status(row_id) == "pending"} == numbers


@pytest.mark.parametrize("column", ["room_id", "app_code", "event_type", "event_id"])
@pytest.mark.parametrize("wanted", ["x", "x "])
def test_spaces_at_the_end_make_another_name(table: Table, lane: Lane, column: str, wanted: str) -> None:
    """MySQL compares as if both were padded; a purge of one room must not delete what is another's."""
    for number, value in enumerate(("x", "x ", "x  ")):
        dead(table, **{"event_id": f"e{number}", "app_code": f"app{number}", column: value})
    chosen = DeadFilter(**{{"room_id": "room", "app_code": "app"}.get(column, column): wanted})  # type: ignore[arg-type]
    assert [getattr(found, column) for found in dead_list(table.connection, lane, chosen)] == [wanted]
    assert sum(purge(table.connection, lane, chosen)) == 1


def test_a_replayed_event_starts_anew_under_its_own_id(table: Table, lane: Lane) -> None:
    """Receivers dedupe by event_id, so it stays; who accepted it is not asked again, who refused it is."""
    row_id = dead(table, event_id="e", published_to="bus,!im,log", claim_token=77, next_retry_at_ms=5)
    assert list(replay(table.connection, lane, ANY)) == [1]
    row = table.row(row_id)
    assert (row["event_id"], row["status"], row["retry_count"], row["due_at_ms"]) == ("e", "pending", 0, FRESH)
    assert (row["published_to"], row["last_error"]) == ("bus,log", "500 boom")
    assert (row["claim_token"], row["lock_until_ms"]) == (0, 0)


def test_a_replay_to_all_asks_every_publisher_again(table: Table, lane: Lane) -> None:
    """After a receiver lost its data."""
    ids = [dead(table, published_to=names) for names in ("bus,!im", "!im", None)]
    assert sum(replay(table.connection, lane, ANY, to_all=True)) == 3
    assert [table.row(row_id)["published_to"] for row_id in ids] == [None, None, None]


def test_a_replay_forgets_nobody_who_accepted_meanwhile(table: Table, lane: Lane) -> None:
    """G1: two operators replay at once, the event dies again, and one of them still has the old names in hand."""
    row_id = dead(table, published_to="!im")

    class Interfering:
        """A connection beside which somebody else writes."""

        dialect = table.connection.dialect
        query = staticmethod(table.connection.query)

        def execute(self, sql: str, params: Params = NO_PARAMS) -> int:
            table.change(row_id, published_to="bus,!im")
            return table.connection.execute(sql, params)

    assert list(replay(Interfering(), lane, ANY)) == [0]  # type: ignore[arg-type]  # all that a replay uses
    assert (table.status(row_id), table.row(row_id)["published_to"]) == ("failed", "bus,!im")


def test_a_replay_goes_by_chunks_and_takes_nothing_twice(table: Table, lane: Lane) -> None:
    """G9: a million dead letters are no one statement, and one that dies again at once would be replayed for ever."""
    ids = [dead(table) for _ in range(7)]
    chunks = replay(table.connection, lane, ANY, batch=3)
    assert next(chunks) == 3
    for row_id in ids[:3]:
        table.change(row_id, status="failed")
    later = dead(table)
    assert list(chunks) == [3, 2]
    assert table.status(later) == "pending"
    assert [table.status(row_id) for row_id in ids] == ["failed"] * 3 + ["pending"] * 4


def test_replay_leaves_alone_what_is_no_dead_letter(table: Table, lane: Lane) -> None:
    """A second operator, or a filter that is too wide, must not publish delivered events again."""
    ids = [
        table.insert(status=status, event_id=status) for status in ("pending", "delivering", "delivered", "retryable")
    ]
    before = [table.row(row_id) for row_id in ids]
    assert list(replay(table.connection, lane, ANY)) == []
    assert list(replay(table.connection, lane, DeadFilter(event_id="delivered"))) == []
    assert list(purge(table.connection, lane, DeadFilter(event_id="delivered"))) == []
    assert [table.row(row_id) for row_id in ids] == before


def test_purge_deletes_dead_letters_only(table: Table, lane: Lane) -> None:
    """What is purged is gone, so it has to be exactly what the list showed."""
    ids = [dead(table, room_id=room) for room in ("r1", "r2", "r1", "r1")]
    kept = table.insert(room_id="r1")
    assert list(purge(table.connection, lane, DeadFilter(room="r1", limit=2), batch=1)) == [1, 1]
    assert [letter.id for letter in dead_list(table.connection, lane, ANY)] == [ids[3], ids[1]]
    assert table.status(kept) == "pending"


@pytest.mark.parametrize("lane", ["none"], indirect=True)
def test_a_replayed_event_is_claimed_again(table: Table, lane: Lane, store: Store, want: Callable[..., Want]) -> None:
    """The whole point of it."""
    row_id = dead(table)
    list(replay(table.connection, lane, ANY))
    _, claim = store.exchange((), want(), ZERO)
    assert [(event.id, event.retry_count) for event in claim.events] == [(row_id, 0)]
