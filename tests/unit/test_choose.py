"""Which of the rows that a claim may take it takes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outboxd.event import Event
from outboxd.store.api import FRESH, ZERO, Floors, Want
from outboxd.store.choose import choose, events_of, floors_after, inline_bytes, missing_payloads

Row = tuple[Any, ...]


def row(row_id: int, size_bytes: int = 10, status: str = "pending", due: int = FRESH, came: bool = True) -> Row:
    """A candidate as a store reads it; came: its payload is short enough to have come along."""
    payload = b"x" * size_bytes if came else None
    head = (row_id, f"event-{row_id}", "RoomCreated", "room-1", "app", payload)
    return (*head, "application/json", None, 2, 7, "", None, status, due, size_bytes)


def want(**changes: object) -> Want:
    """What an idle worker with room asks for."""
    usual: dict[str, object] = {"token": 9, "worker_id": "node/room_outbox-01", "lease_ms": 30_000, "limit": 100}
    bounds: dict[str, object] = {"budget_bytes": 1000, "max_event_bytes": 5000, "idle": True}
    return Want(**{**usual, **bounds, **changes})  # type: ignore[arg-type]  # each test's words are Want's own


def suspect(row_id: int, **columns: Any) -> Row:
    """A row whose lease ran out."""
    return row(row_id, status="delivering", **columns)


def ids(rows: Any) -> list[int]:
    """Of rows."""
    return [found[0] for found in rows]


def test_everything_is_taken_where_it_fits() -> None:
    """In the order in which it was found."""
    rows = [row(3), row(1), row(2)]
    choice = choose(rows, want())
    assert (ids(choice.rows), choice.cut, choice.suspect, choice.suspects_wait) == ([3, 1, 2], False, False, False)
    assert choice.passed == rows


@pytest.mark.parametrize(("budget_bytes", "taken"), [(29, [1, 2]), (30, [1, 2, 3]), (31, [1, 2, 3])])
def test_a_claim_ends_before_the_row_that_does_not_fit(budget_bytes: int, taken: list[int]) -> None:
    """Later ones that would fit are not taken in its place: it would wait for ever."""
    rows = [row(1), row(2), row(3), row(4, 2000), row(5, 1)]
    choice = choose(rows, want(budget_bytes=budget_bytes))
    assert (ids(choice.rows), choice.cut) == (taken, True)
    assert ids(choice.passed) == taken


def test_a_row_larger_than_the_budget_goes_alone_with_an_idle_worker() -> None:
    """Else it would never go."""
    rows = [row(1, 2000), row(2)]
    assert ids(choose(rows, want()).rows) == [1]
    busy = choose(rows, want(idle=False))
    assert (ids(busy.rows), busy.cut, ids(busy.passed)) == ([], True, [])


def test_a_suspect_is_taken_alone() -> None:
    """G8: also where it is not the first, and large."""
    choice = choose([row(1), suspect(2, size_bytes=2000), suspect(3)], want())
    assert (ids(choice.rows), choice.suspect, choice.suspects_wait) == ([2], True, True)
    assert choice.passed == (), "what stood before it was not taken: no floor may move"


@pytest.mark.parametrize("changes", [{"idle": False}, {"suspects": False}])
def test_suspects_are_passed_over_where_they_may_not_be_taken(changes: dict[str, object]) -> None:
    """G8: the others are taken, and the worker is told that suspects wait."""
    choice = choose([suspect(1), row(2), suspect(3)], want(**changes))
    assert (ids(choice.rows), choice.suspect, choice.suspects_wait) == ([2], False, True)
    assert ids(choice.passed) == [1, 2, 3]


def test_a_cut_claim_passes_over_the_suspects_before_the_cut_only() -> None:
    """The floor must not move past a row that was left because of the budget."""
    rows = [suspect(1), row(2, 600), suspect(3), row(4, 600), suspect(5)]
    choice = choose(rows, want(suspects=False))
    assert (ids(choice.rows), choice.cut) == ([2], True)
    assert ids(choice.passed) == [1, 2, 3]


def test_an_oversize_row_costs_no_budget() -> None:
    """Its payload is never read: it becomes a dead letter and must not keep others waiting."""
    choice = choose([row(1, 50_000, came=False), row(2, 900)], want())
    assert (ids(choice.rows), choice.cut) == ([1, 2], False)


def test_floors_stand_behind_the_last_row_of_each_class() -> None:
    """A class of which nothing was passed keeps its own."""
    rows = [row(9, due=500), row(4, due=700), row(20), row(21)]
    assert floors_after(ZERO, rows) == Floors(21, 700, 4)
    assert floors_after(Floors(5, 6, 7), rows[:1]) == Floors(5, 500, 9)
    assert floors_after(Floors(5, 6, 7), rows[2:]) == Floors(21, 6, 7)
    assert floors_after(Floors(5, 6, 7), []) == Floors(5, 6, 7)


def test_payloads_that_came_along_fit_the_budget_together() -> None:
    """G9: `limit` rows of the inline size are no more than budget_bytes."""
    assert inline_bytes(want(budget_bytes=1050, limit=100)) == 10
    assert inline_bytes(want(budget_bytes=-5)) == 0


def test_only_payloads_that_are_needed_are_read() -> None:
    """Not those that came, nor the oversize ones."""
    rows = [row(1), row(2, 800, came=False), row(3, 50_000, came=False)]
    assert missing_payloads(rows, want()) == [2]


def test_rows_become_events() -> None:
    """Every column in its place; text where a producer wrote text."""
    rows = [row(1), row(2, 4, came=False), row(3, 50_000, came=False)]
    events, oversize = events_of(rows, "room_outbox", {2: b"late"}, want().max_event_bytes, suspect=False)
    assert events == (expected(1, b"x" * 10), expected(2, b"late"))
    assert oversize == ((expected(3, b""), 50_000),)


def expected(number: int, payload: bytes) -> Event:
    """The event of a row."""
    return Event(
        id=number,
        event_id=f"event-{number}",
        event_type="RoomCreated",
        room_id="room-1",
        app_code="app",
        envelope=payload,
        content_type="application/json",
        headers=None,
        retry_count=2,
        created_at_ms=7,
        published_to="",
        last_error=None,
        lane="room_outbox",
    )


def test_a_suspect_event_carries_the_lost_lease() -> None:
    """G8: its count in memory is the one that the claim has written."""
    ((event,), _) = events_of([suspect(1)], "room_outbox", {}, want().max_event_bytes, suspect=True)
    assert event.retry_count == 3
    most_bytes = want().max_event_bytes
    (_, ((large, _),)) = events_of([suspect(1, size_bytes=50_000)], "room_outbox", {}, most_bytes, suspect=True)
    assert large.retry_count == 3


def test_an_envelope_of_text_becomes_its_bytes() -> None:
    """SQLite keeps what a producer wrote, also text."""
    text: Row = (*row(1)[:5], "naïve 🚀", *row(1)[6:])
    ((event,), _) = events_of([text], "room_outbox", {}, want().max_event_bytes, suspect=False)
    assert event.envelope == "naïve 🚀".encode()


sizes = st.lists(st.tuples(st.integers(0, 3000), st.sampled_from(["pending", "retryable", "delivering"])), max_size=30)


@given(sizes, st.integers(0, 4000), st.booleans(), st.booleans())
def test_no_choice_breaks_the_budget_or_skips_a_row(
    found: list[tuple[int, str]], budget_bytes: int, idle: bool, suspects: bool
) -> None:
    """G8, G9: within the budget or one row alone; suspects alone; what is passed begins what was found."""
    rows = [row(number, size, status) for number, (size, status) in enumerate(found, 1)]
    choice = choose(rows, want(budget_bytes=budget_bytes, idle=idle, suspects=suspects, max_event_bytes=2500))
    payload_bytes = sum(taken[14] for taken in choice.rows if taken[14] <= 2500)
    assert payload_bytes <= budget_bytes or (len(choice.rows) == 1 and idle)
    if any(taken[12] == "delivering" for taken in choice.rows):
        assert (len(choice.rows), choice.suspect, idle, suspects) == (1, True, True, True)
    else:
        assert list(choice.passed) == rows[: len(choice.passed)]
        assert list(choice.rows) == [taken for taken in choice.passed if taken[12] != "delivering"]
        assert choice.cut == (len([taken for taken in rows if taken[12] != "delivering"]) > len(choice.rows))
