"""The contract of a lane's store, on each kind of database: what a claim takes."""

from collections.abc import Callable

import pytest

from outboxd.store.api import FRESH, RETRYABLE, ZERO, Claim, Floors, Store, Want
from tests.contract.conftest import Table

Wants = Callable[..., Want]


def take(store: Store, want: Want, floors: Floors = ZERO) -> Claim:
    """A claim alone."""
    return store.exchange((), want, floors)[1]


def ids(claim: Claim) -> list[int]:
    """Of the events, in the claim's order."""
    return [event.id for event in claim.events]


@pytest.mark.parametrize(("limit", "taken"), [(2, 2), (3, 3), (4, 3)])
def test_a_claim_takes_no_more_than_its_limit(store: Store, table: Table, want: Wants, limit: int, taken: int) -> None:
    """Under, at and over the number of rows; the lowest ids first."""
    rows = table.insert_many(3)
    claim = take(store, want(limit=limit))
    assert ids(claim) == rows[:taken]
    assert claim.fresh_left == (limit <= 3)


def test_a_limit_holds_over_both_classes(store: Store, table: Table, want: Wants) -> None:
    """A worker with room for one event must not be given two."""
    table.insert_many(3)
    table.insert_many(3, status=RETRYABLE, next_retry_at_ms=table.now_ms() - 1000)
    for limit in (1, 1, 2):
        claim = take(store, want(limit=limit))
        assert len(claim.events) == limit


def test_a_claim_marks_its_rows(store: Store, table: Table, want: Wants) -> None:
    """Another worker, and a person, see who holds the row and until when; its attempts are not counted yet."""
    row_id = table.insert(created_at_ms=7)
    before_ms = table.now_ms()
    asked = want(lease_ms=20_000, worker_id="node-a/room_outbox-03")
    claim = take(store, asked)
    assert claim.token == asked.token
    row = table.row(row_id)
    assert (row["status"], row["worker_id"], row["claim_token"]) == ("delivering", "node-a/room_outbox-03", asked.token)
    assert row["retry_count"] == 0
    lock_until_ms = row["lock_until_ms"]
    assert isinstance(lock_until_ms, int)
    assert before_ms + 20_000 <= lock_until_ms <= table.now_ms() + 20_000


def test_nothing_to_take_is_an_empty_claim(store: Store, want: Wants) -> None:
    """And moves no floor."""
    floors = Floors(5, 6, 7)
    assert take(store, want(token=9), floors) == Claim(token=9, floors=floors)


def test_a_claim_without_room_takes_nothing(store: Store, table: Table, want: Wants) -> None:
    """A limit of zero is no limit to some databases."""
    row_id = table.insert()
    assert take(store, want(limit=0)).events == ()
    assert table.status(row_id) == "pending"


def test_due_rows_come_in_the_order_of_their_times(store: Store, table: Table, want: Wants) -> None:
    """What waits longest is retried first; ids decide between equal times."""
    now_ms = table.now_ms()
    late = table.insert(status=RETRYABLE, next_retry_at_ms=now_ms - 1000)
    tie_a = table.insert(status=RETRYABLE, next_retry_at_ms=now_ms - 5000)
    tie_b = table.insert(status=RETRYABLE, next_retry_at_ms=now_ms - 5000)
    early = table.insert(next_retry_at_ms=1)
    claim = take(store, want())
    assert ids(claim) == [early, tie_a, tie_b, late]
    assert claim.floors == Floors(0, now_ms - 1000, late)


def test_rows_of_the_future_are_not_taken(store: Store, table: Table, want: Wants) -> None:
    """A producer's delay and a retry's backoff are kept, by the database's clock."""
    delayed = table.insert(next_retry_at_ms=table.now_ms() + 60_000)
    waiting = table.insert(status=RETRYABLE, next_retry_at_ms=table.now_ms() + 60_000, retry_count=1)
    assert ids(take(store, want())) == []
    table.change(delayed, next_retry_at_ms=table.now_ms())
    table.change(waiting, next_retry_at_ms=table.now_ms())
    assert sorted(ids(take(store, want()))) == [delayed, waiting]


@pytest.mark.parametrize("status", ["delivered", "failed"])
@pytest.mark.parametrize("next_retry_at_ms", [0, 1])
def test_what_has_ended_is_never_taken(
    store: Store, table: Table, want: Wants, status: str, next_retry_at_ms: int
) -> None:
    """G1: a dead letter is for a person; a delivered event must not go out again."""
    table.insert(status=status, next_retry_at_ms=next_retry_at_ms)
    assert take(store, want()).events == ()


@pytest.mark.parametrize("next_retry_at_ms", [0, 1])
def test_a_leased_row_is_not_taken(store: Store, table: Table, want: Wants, next_retry_at_ms: int) -> None:
    """G2: at most one live lease per event, fresh or due."""
    row_id = table.insert(next_retry_at_ms=next_retry_at_ms)
    assert ids(take(store, want(lease_ms=60_000))) == [row_id]
    claim = take(store, want())
    assert (claim.events, claim.suspects_wait) == ((), False)


def test_a_suspect_is_taken_alone_and_charged(store: Store, table: Table, want: Wants) -> None:
    """G8: it may kill whoever publishes it; the lost lease is one of its attempts, in the row and in the event."""
    others = table.insert_many(2)
    suspect = table.insert(retry_count=2)
    later = table.insert()
    table.change(suspect, status="delivering", claim_token=5, lock_until_ms=table.now_ms() - 1)
    claim = take(store, want())
    assert claim.suspect
    assert [(event.id, event.retry_count) for event in claim.events] == [(suspect, 3)]
    assert table.row(suspect)["retry_count"] == 3
    assert table.row(suspect)["claim_token"] == claim.token
    assert [table.status(row_id) for row_id in (*others, later)] == ["pending"] * 3
    assert claim.floors == ZERO, "what stands before the suspect was not taken"


def test_a_due_row_can_be_a_suspect_too(store: Store, table: Table, want: Wants) -> None:
    """A retry that kills its worker stands among the due rows."""
    table.insert()
    suspect = table.insert(next_retry_at_ms=1, retry_count=1)
    table.change(suspect, status="delivering", claim_token=5, lock_until_ms=1)
    claim = take(store, want())
    assert claim.suspect
    assert [(event.id, event.retry_count) for event in claim.events] == [(suspect, 2)]


def test_suspects_are_taken_one_at_a_time(store: Store, table: Table, want: Wants) -> None:
    """G8: a hundred events of a worker that died are not one claim."""
    rows = table.insert_many(3)
    take(store, want())
    table.run_out(*rows)
    assert [ids(take(store, want())) for _ in rows] == [[row_id] for row_id in rows]


@pytest.mark.parametrize("refusal", [{"idle": False}, {"suspects": False}])
def test_a_busy_worker_passes_over_suspects_and_is_told(
    store: Store, table: Table, want: Wants, refusal: dict[str, bool]
) -> None:
    """G8: nothing else is in flight beside a suspect, so the worker takes the others, and drains for it later."""
    suspect, usual = table.insert_many(2)
    table.change(suspect, status="delivering", claim_token=5, lock_until_ms=1)
    claim = take(store, want(**refusal))
    assert (ids(claim), claim.suspect, claim.suspects_wait) == ([usual], False, True)
    assert (table.row(suspect)["claim_token"], table.row(suspect)["retry_count"]) == (5, 0)


def test_many_suspects_do_not_hide_what_stands_behind_them(store: Store, table: Table, want: Wants) -> None:
    """G7: claims go on behind the suspects that they passed over, even when those fill whole claims."""
    rows = table.insert_many(11)
    for row_id in rows[:10]:
        table.change(row_id, status="delivering", claim_token=5, lock_until_ms=1)
    floors, found = ZERO, list[int]()
    for _ in range(6):
        claim = take(store, want(idle=False, limit=3), floors)
        floors, found = claim.floors, found + ids(claim)
    assert found == [rows[10]]


def test_each_class_is_taken_only_when_asked_for(store: Store, table: Table, want: Wants) -> None:
    """A worker whose publisher is broken goes easy on the rows that wait for it."""
    fresh = table.insert()
    due = table.insert(status=RETRYABLE, next_retry_at_ms=1)
    floors = Floors(0, 0, 0)
    claim = take(store, want(due=False), floors)
    assert (ids(claim), claim.floors, claim.due_left) == ([fresh], Floors(fresh, 0, 0), False)
    claim = take(store, want(fresh=False), floors)
    assert (ids(claim), claim.floors, claim.fresh_left) == ([due], Floors(0, 1, due), False)


def test_neither_class_starves_the_other(store: Store, table: Table, want: Wants) -> None:
    """Half of the room each while both have rows."""
    fresh = table.insert_many(20)
    due = table.insert_many(20, status=RETRYABLE, next_retry_at_ms=1)
    taken = ids(take(store, want(limit=10)))
    assert sorted(taken) == sorted(fresh[:5] + due[:5])


def test_neither_class_starves_the_other_one_row_at_a_time(store: Store, table: Table, want: Wants) -> None:
    """A worker that is nearly full asks for one row again and again."""
    fresh = table.insert_many(30)
    due = table.insert_many(30, status=RETRYABLE, next_retry_at_ms=1)
    taken = {row_id for _ in range(30) for row_id in ids(take(store, want(limit=1)))}
    assert len(taken) == 30
    assert taken & set(fresh)
    assert taken & set(due)


@pytest.mark.parametrize(("fresh", "due"), [(2, 20), (20, 2), (0, 20), (20, 0)])
def test_room_that_one_class_leaves_goes_to_the_other(
    store: Store, table: Table, want: Wants, fresh: int, due: int
) -> None:
    """A backlog of one class is worked off at full speed."""
    first = table.insert_many(fresh)
    second = table.insert_many(due, status=RETRYABLE, next_retry_at_ms=1)
    claim = take(store, want(limit=10))
    assert len(claim.events) == 10
    assert len(set(ids(claim)) & set(first)) == min(fresh, 8 if due else 10)
    assert len(set(ids(claim)) & set(second)) == min(due, 8 if fresh else 10)
    assert (claim.fresh_left, claim.due_left) == (fresh == 20, due == 20)


def test_claims_go_on_behind_what_they_took(store: Store, table: Table, want: Wants) -> None:
    """A claim must not walk over what was taken before: its cost would grow with the backlog in flight."""
    rows = table.insert_many(4)
    first = take(store, want(limit=2))
    assert first.floors == Floors(rows[1], 0, 0)
    table.change(rows[0], status="pending", lock_until_ms=0)
    second = take(store, want(), first.floors)
    assert ids(second) == rows[2:]
    assert second.floors == Floors(rows[3], 0, 0)


def test_a_sweep_finds_what_committed_late(store: Store, table: Table, want: Wants) -> None:
    """G1: a transaction with a lower id that commits after a higher one was taken is not lost."""
    table.insert(id=100)
    floors = take(store, want()).floors
    late = table.insert(id=50)
    assert ids(take(store, want(), floors)) == []
    assert ids(take(store, want(), ZERO)) == [late]


def test_equal_due_times_are_walked_once(store: Store, table: Table, want: Wants) -> None:
    """A thousand events parked at one moment: every one is taken, in order, none twice, the floor being inside them."""
    due_at_ms = table.now_ms() - 5000
    rows = table.insert_many(1000, status=RETRYABLE, next_retry_at_ms=due_at_ms)
    last = table.insert(status=RETRYABLE, next_retry_at_ms=due_at_ms + 1)
    floors, found = ZERO, list[int]()
    while (claim := take(store, want(limit=300), floors)).events:
        floors, found = claim.floors, found + ids(claim)
    assert found == [*rows, last]
    assert floors == Floors(0, due_at_ms + 1, last)


def test_the_due_floor_is_a_time_and_an_id(store: Store, table: Table, want: Wants) -> None:
    """Rows at the floor's time with a greater id, and rows after it; not those before."""
    table.insert(id=9, status=RETRYABLE, next_retry_at_ms=100)
    table.insert(id=10, status=RETRYABLE, next_retry_at_ms=200)
    table.insert(id=11, status=RETRYABLE, next_retry_at_ms=200)
    table.insert(id=5, status=RETRYABLE, next_retry_at_ms=300)
    claim = take(store, want(), Floors(0, 200, 10))
    assert (ids(claim), claim.floors) == ([11, 5], Floors(0, 300, 5))


def test_a_fresh_row_is_one_without_a_time(table: Table) -> None:
    """The claim's order rests on it: no time is greater."""
    assert table.row(table.insert())["due_at_ms"] == FRESH == 2**53 - 1
    assert table.row(table.insert(next_retry_at_ms=5))["due_at_ms"] == 5
    for nonsense_ms in (-1, -2, -(2**63)):  # -1 for "no time" comes easily, and must not look like an end
        assert table.row(table.insert(next_retry_at_ms=nonsense_ms))["due_at_ms"] == FRESH
    assert table.row(table.insert(status="delivered"))["due_at_ms"] == -1
    assert table.row(table.insert(status="failed", next_retry_at_ms=5))["due_at_ms"] == -2
