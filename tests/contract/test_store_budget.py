"""The contract of a lane's store: how many bytes a claim takes, and that payloads are what the producer wrote."""

import json
from collections.abc import Callable

import pytest

from outboxd.event import Event
from outboxd.store.api import RETRYABLE, ZERO, Claim, Store, Want
from tests.contract.conftest import Table

Wants = Callable[..., Want]


def take(store: Store, want: Want) -> Claim:
    """A claim alone, from the start."""
    return store.exchange((), want, ZERO)[1]


@pytest.mark.parametrize(("budget_bytes", "taken"), [(299, 2), (300, 3), (301, 3)])
@pytest.mark.parametrize("limit", [3, 1000])
def test_a_claim_stays_within_its_bytes(
    store: Store, table: Table, want: Wants, budget_bytes: int, taken: int, limit: int
) -> None:
    """G9: the sum of the payloads decides, to the byte, whether they came with the first look or later."""
    rows = table.insert_many(3, envelope=b"x" * 100)
    claim = take(store, want(budget_bytes=budget_bytes, limit=limit))
    assert [event.id for event in claim.events] == rows[:taken]
    assert [event.envelope for event in claim.events] == [b"x" * 100] * taken
    assert claim.cut_by_budget == (taken < 3)
    assert claim.floors.fresh_id == rows[taken - 1]
    assert [table.status(row_id) for row_id in rows[taken:]] == ["pending"] * (3 - taken)


def test_a_row_that_does_not_fit_ends_the_claim(store: Store, table: Table, want: Wants) -> None:
    """Smaller ones behind it do not overtake it for ever."""
    rows = [table.insert(envelope=b"x" * size) for size in (10, 100, 10)]
    claim = take(store, want(budget_bytes=50))
    assert [event.id for event in claim.events] == rows[:1]
    assert claim.cut_by_budget


@pytest.mark.parametrize(("idle", "taken"), [(True, 1), (False, 0)])
def test_only_an_idle_worker_takes_a_first_row_beyond_its_budget(
    store: Store, table: Table, want: Wants, idle: bool, taken: int
) -> None:
    """A large event goes alone; it neither waits for ever nor comes on top of others."""
    rows = [table.insert(envelope=b"x" * size) for size in (100, 1)]
    claim = take(store, want(budget_bytes=50, idle=idle))
    assert [event.id for event in claim.events] == rows[:taken]
    assert claim.cut_by_budget
    assert claim.floors.fresh_id == (rows[0] if taken else 0)


def test_an_idle_worker_takes_no_larger_row_behind_another(store: Store, table: Table, want: Wants) -> None:
    """Only the first may exceed the budget."""
    rows = [table.insert(envelope=b"x" * size) for size in (1, 100)]
    assert [event.id for event in take(store, want(budget_bytes=50)).events] == rows[:1]


def test_a_budget_of_nothing_lets_an_idle_worker_go_on(store: Store, table: Table, want: Wants) -> None:
    """A worker that has used up its bytes, or been given none, does not stall once it is idle."""
    rows = table.insert_many(2)
    assert take(store, want(budget_bytes=0, idle=False)).events == ()
    assert [event.id for event in take(store, want(budget_bytes=0)).events] == rows[:1]


def test_an_oversize_row_comes_without_its_payload(store: Store, table: Table, want: Wants) -> None:
    """G9: what is too large to be published is not read; it is taken all the same, to become a dead letter."""
    exact = table.insert(envelope=b"x" * 1000)
    large = table.insert(envelope=b"x" * 1001, retry_count=4)
    small = table.insert(envelope=b"x")
    claim = take(store, want(max_event_bytes=1000))
    assert [event.id for event in claim.events] == [exact, small]
    assert [(event.id, event.envelope, event.retry_count, size) for event, size in claim.oversize] == [
        (large, b"", 4, 1001)
    ]
    assert table.row(large)["claim_token"] == claim.token
    assert claim.floors.fresh_id == small


def test_oversize_rows_use_no_budget(store: Store, table: Table, want: Wants) -> None:
    """Their payload is never held; they count as rows only."""
    large = table.insert_many(2, envelope=b"x" * 5000)
    small = table.insert(envelope=b"x" * 100)
    claim = take(store, want(max_event_bytes=1000, budget_bytes=100, idle=False))
    assert [event.id for event in claim.events] == [small]
    assert [event.id for event, _ in claim.oversize] == large
    assert not claim.cut_by_budget


def test_an_oversize_suspect_is_charged(store: Store, table: Table, want: Wants) -> None:
    """Its size does not hide that it lost a lease."""
    suspect = table.insert(envelope=b"x" * 1001)
    table.insert()
    table.change(suspect, status="delivering", claim_token=3, lock_until_ms=1)
    claim = take(store, want(max_event_bytes=1000))
    assert (claim.suspect, claim.events) == (True, ())
    assert [(event.id, event.retry_count, size) for event, size in claim.oversize] == [(suspect, 1, 1001)]


def test_a_large_suspect_is_taken_by_an_idle_worker(store: Store, table: Table, want: Wants) -> None:
    """With its payload, whatever the budget."""
    suspect = table.insert(envelope=b"x" * 500)
    table.change(suspect, status="delivering", claim_token=3, lock_until_ms=1)
    claim = take(store, want(budget_bytes=100))
    assert [(event.id, event.envelope) for event in claim.events] == [(suspect, b"x" * 500)]


def test_a_due_row_can_end_the_claim_too(store: Store, table: Table, want: Wants) -> None:
    """The floors of both classes stand behind what was taken, not behind what was seen."""
    due = table.insert(status=RETRYABLE, next_retry_at_ms=1, envelope=b"x" * 10)
    second = table.insert(status=RETRYABLE, next_retry_at_ms=2, envelope=b"x" * 1000)
    claim = take(store, want(budget_bytes=100, fresh=False))
    assert ([event.id for event in claim.events], claim.cut_by_budget) == ([due], True)
    assert (claim.floors.due_at_ms, claim.floors.due_id) == (1, due)
    assert table.status(second) == "retryable"


def test_ten_megabytes_among_small_ones(store: Store, table: Table, want: Wants) -> None:
    """Byte for byte, also beyond what a first look brings along."""
    big = bytes(range(256)) * 40_960
    sizes = [b"a", big, b"b"]
    rows = [table.insert(envelope=envelope) for envelope in sizes]
    claim = take(store, want(budget_bytes=16 << 20, max_event_bytes=12 << 20))
    assert [event.id for event in claim.events] == rows
    assert [len(event.envelope) for event in claim.events] == [1, 10_485_760, 1]
    assert claim.events[1].envelope == big


def test_an_event_comes_as_the_producer_wrote_it(store: Store, table: Table, want: Wants) -> None:
    """Field by field; headers as JSON text, which a publisher parses."""
    headers = '{"traceparent": "00-1", "n": [1, 2]}'
    row_id = table.insert(
        event_id="01J-x", event_type="RoomUserJoined", room_id="room-9", app_code="shop", envelope=b"\x00\xff{}",
        content_type="application/x-protobuf", headers=headers, retry_count=3, next_retry_at_ms=1, status=RETRYABLE,
        created_at_ms=1_700_000_000_123, published_to="a,!b", last_error="500",
    )  # fmt: skip
    (event,) = take(store, want()).events
    expected = Event(
        id=row_id, event_id="01J-x", event_type="RoomUserJoined", room_id="room-9", app_code="shop",
        envelope=b"\x00\xff{}", content_type="application/x-protobuf", headers=event.headers, retry_count=3,
        created_at_ms=1_700_000_000_123, published_to="a,!b", last_error="500", lane="room_outbox",
    )  # fmt: skip
    assert event == expected
    assert isinstance(event.headers, str)
    assert json.loads(event.headers) == json.loads(headers)
    assert type(event.envelope) is bytes


def test_what_a_producer_leaves_out_has_a_meaning(store: Store, table: Table, want: Wants) -> None:
    """Five columns are enough; G12: the time comes from the database's clock, in whatever zone its session is."""
    before_ms = table.now_ms()
    table.insert()
    (event,) = take(store, want()).events
    assert (event.content_type, event.headers) == ("application/json", None)
    assert (event.retry_count, event.published_to, event.last_error) == (0, "", None)
    assert before_ms <= event.created_at_ms <= table.now_ms()


@pytest.mark.parametrize("headers", ["[1, 2]", '"text"', "null", "17"])
def test_headers_that_are_no_object_come_as_they_are(store: Store, table: Table, want: Wants, headers: str) -> None:
    """The store judges nothing: a publisher that sends headers makes such an event a dead letter."""
    table.insert(headers=headers)
    (event,) = take(store, want()).events
    assert event.headers is not None
    assert json.loads(event.headers) == json.loads(headers)


def test_an_empty_envelope_is_an_event(store: Store, table: Table, want: Wants) -> None:
    """Some events say everything by their type."""
    table.insert(envelope=b"")
    (event,) = take(store, want()).events
    assert event.envelope == b""


@pytest.mark.parametrize("text", ["房间🚀", "a'b\"c\\d%s:name", "tab\tline\nbell\x07", " padded ", "é", "\u202eright"])
def test_any_text_names_a_room(store: Store, table: Table, want: Wants, text: str) -> None:
    """A room's name is the producer's; quotes, blanks and control characters are not ours to judge."""
    table.insert(room_id=text, event_type=text, app_code=text)
    (event,) = take(store, want()).events
    assert (event.room_id, event.event_type, event.app_code) == (text, text, text)


def test_ids_that_differ_in_case_or_accent_are_different(store: Store, table: Table, want: Wants) -> None:
    """A collation that folds them would refuse one tenant's event for another's."""
    keys = [("a", "e"), ("A", "e"), ("a", "é"), ("a", "E")]
    for event_id, app_code in keys:
        table.insert(event_id=event_id, app_code=app_code, room_id=app_code)
    claim = take(store, want())
    assert [(event.event_id, event.app_code) for event in claim.events] == keys
    assert [event.room_id for event in claim.events] == [app_code for _, app_code in keys]
