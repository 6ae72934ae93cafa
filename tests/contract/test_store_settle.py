"""The contract of a lane's store: what a settle writes, and what fences it off."""

from collections.abc import Callable, Mapping

import pytest

from outboxd.store.api import (
    DELIVERED,
    FAILED,
    LAST_ERROR_CHARACTERS,
    RELEASED,
    RETRYABLE,
    ZERO,
    Settled,
    Settlement,
    Store,
    Want,
)
from tests.contract.conftest import Table

Wants = Callable[..., Want]

STATUSES = (DELIVERED, RETRYABLE, FAILED, RELEASED)
TIMES = ("lock_until_ms", "next_retry_at_ms", "updated_at_ms", "delivered_at_ms", "due_at_ms")


def claim_all(store: Store, want: Want) -> int:
    """Claim every row; the claim's token."""
    store.exchange((), want, ZERO)
    return want.token


def settle(store: Store, *settlements: Settlement) -> Settled:
    """A settle alone."""
    return store.exchange(settlements, None, ZERO)[0]


def besides_times(row: Mapping[str, object]) -> Mapping[str, object]:
    """The columns that do not depend on the clock."""
    return {name: value for name, value in row.items() if name not in TIMES}


def number(row: Mapping[str, object], name: str) -> int:
    """A column that is a number."""
    value = row[name]
    assert isinstance(value, int)
    return value


@pytest.fixture
def failed_before(table: Table) -> int:
    """A row that is due after two counted failures, one publisher having accepted it."""
    return table.insert(status=RETRYABLE, next_retry_at_ms=5, retry_count=2, last_error="before", published_to="a")


def test_delivered(store: Store, table: Table, want: Wants, failed_before: int) -> None:
    """The time it was delivered, no error; attempts, token and worker stay for whoever looks."""
    token = claim_all(store, want())
    claimed, before_ms = table.row(failed_before), table.now_ms()
    assert settle(store, Settlement(failed_before, token, DELIVERED, published_to="a,b")) == Settled(done=1)
    row = table.row(failed_before)
    expected = {**claimed, "status": "delivered", "last_error": None, "published_to": "a,b"}
    assert besides_times(row) == besides_times(expected)
    assert before_ms <= number(row, "delivered_at_ms") == number(row, "updated_at_ms") <= table.now_ms()
    assert row["due_at_ms"] == -1


def test_delivered_without_names_keeps_those_that_stand(
    store: Store, table: Table, want: Wants, failed_before: int
) -> None:
    """The usual settlement says nothing about publishers."""
    token = claim_all(store, want())
    assert settle(store, Settlement(failed_before, token, DELIVERED)) == Settled(done=1)
    row = table.row(failed_before)
    assert (row["status"], row["published_to"], row["last_error"]) == ("delivered", "a", None)
    assert number(row, "delivered_at_ms") > 0


@pytest.mark.parametrize(("counted", "retry_count"), [(True, 3), (False, 2)])
def test_retryable(
    store: Store, table: Table, want: Wants, failed_before: int, counted: bool, retry_count: int
) -> None:
    """Due again after the delay by the database's clock; an attempt only when it is counted (G6); claimable then."""
    token = claim_all(store, want())
    claimed, before_ms = table.row(failed_before), table.now_ms()
    settlement = Settlement(failed_before, token, RETRYABLE, counted, 40_000, "503 from b", "a,!b")
    assert settle(store, settlement) == Settled(done=1)
    row = table.row(failed_before)
    changes = {"status": "retryable", "last_error": "503 from b", "published_to": "a,!b", "retry_count": retry_count}
    assert besides_times(row) == besides_times({**claimed, **changes})
    assert before_ms + 40_000 <= number(row, "next_retry_at_ms") <= table.now_ms() + 40_000
    assert row["due_at_ms"] == row["next_retry_at_ms"]
    assert before_ms <= number(row, "updated_at_ms") <= table.now_ms()
    assert row["delivered_at_ms"] == 0
    assert store.exchange((), want(), ZERO)[1].events == ()
    table.change(failed_before, next_retry_at_ms=table.now_ms())
    assert [event.retry_count for event in store.exchange((), want(), ZERO)[1].events] == [retry_count]


def test_a_retry_without_delay_is_due_at_once(store: Store, table: Table, want: Wants) -> None:
    """It does not wait for its old lease to end."""
    row_id = table.insert()
    token = claim_all(store, want(lease_ms=60_000))
    _, claim = store.exchange([Settlement(row_id, token, RETRYABLE, delay_ms=0, last_error="x")], want(), ZERO)
    assert [event.id for event in claim.events] == [row_id]


def test_failed(store: Store, table: Table, want: Wants, failed_before: int) -> None:
    """A dead letter with its reason; nothing claims it again."""
    token = claim_all(store, want())
    claimed = table.row(failed_before)
    settlement = Settlement(
        failed_before, token, FAILED, counted=True, last_error="400 no such room", published_to="!a"
    )
    assert settle(store, settlement) == Settled(done=1)
    row = table.row(failed_before)
    changes = {"status": "failed", "last_error": "400 no such room", "published_to": "!a", "retry_count": 3}
    assert besides_times(row) == besides_times({**claimed, **changes})
    assert (row["due_at_ms"], row["delivered_at_ms"]) == (-2, 0)
    assert number(row, "updated_at_ms") > 0
    table.run_out(failed_before)
    assert store.exchange((), want(), ZERO)[1].events == ()


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        ({}, "pending"),
        ({"next_retry_at_ms": 5}, "pending"),
        ({"retry_count": 1, "last_error": "x"}, "retryable"),
        ({"last_error": "parked, not counted"}, "retryable"),
        ({"retry_count": 1}, "retryable"),
    ],
)
def test_released(store: Store, table: Table, want: Wants, columns: Mapping[str, object], status: str) -> None:
    """As if it had not been claimed: free at once, due as before, no attempt counted, its error kept."""
    row_id = table.insert(**columns)
    before = table.row(row_id)
    token = claim_all(store, want(lease_ms=60_000))
    assert settle(store, Settlement(row_id, token, RELEASED, last_error="ignored")) == Settled(done=1)
    row = table.row(row_id)
    kept = [name for name in before if name not in ("status", "worker_id", "claim_token", "updated_at_ms")]
    assert {name: row[name] for name in kept} == {name: before[name] for name in kept}
    assert (row["status"], row["claim_token"]) == (status, token)
    assert [event.id for event in store.exchange((), want(), ZERO)[1].events] == [row_id]


def test_released_remembers_who_accepted(store: Store, table: Table, want: Wants) -> None:
    """G1: a publisher that has the event is not asked again after a drain."""
    row_id = table.insert()
    token = claim_all(store, want())
    assert settle(store, Settlement(row_id, token, RELEASED, published_to="a")) == Settled(done=1)
    assert table.row(row_id)["published_to"] == "a"


@pytest.mark.parametrize("status", STATUSES)
def test_a_stale_token_changes_nothing(store: Store, table: Table, want: Wants, status: str) -> None:
    """G3: the row belongs to a later claim, whatever became of the publish."""
    row_id = table.insert()
    stale = claim_all(store, want())
    table.run_out(row_id)
    claim_all(store, want())
    held = table.row(row_id)
    late = Settlement(row_id, stale, status, counted=True, delay_ms=5, last_error="late", published_to="late")
    assert settle(store, late) == Settled(lost=(row_id,))
    assert table.row(row_id) == held


def test_a_token_is_good_for_its_own_rows_only(store: Store, table: Table, want: Wants) -> None:
    """G3: one settle holds outcomes of several claims; the stale one must not pass by a neighbour's token."""
    mine, other = table.insert_many(2)
    stale = claim_all(store, want(limit=1))
    table.run_out(mine)
    current = claim_all(store, want())
    assert table.row(mine)["claim_token"] == current
    later = claim_all(store, want())
    assert table.row(other)["claim_token"] == later
    held = table.row(mine)
    late, good = Settlement(mine, stale, DELIVERED), Settlement(other, later, DELIVERED)
    also_good = Settlement(mine, current, DELIVERED)
    assert settle(store, late, good) == Settled(done=1, lost=(mine,))
    assert table.row(mine) == held
    assert settle(store, also_good) == Settled(done=1)


@pytest.mark.parametrize("status", STATUSES)
def test_a_stale_token_is_fenced_beside_the_current_one(store: Store, table: Table, want: Wants, status: str) -> None:
    """G3: a worker that took its own lost row again settles both claims at once; tokens are not mixed up."""
    row_id, neighbour = table.insert_many(2)
    stale = claim_all(store, want(limit=1))
    table.run_out(row_id)
    current = claim_all(store, want(limit=1))
    table.change(neighbour, status="delivering", claim_token=current, lock_until_ms=table.now_ms() + 60_000)
    held = table.row(row_id)
    late = Settlement(row_id, stale, status, last_error="late")
    settled = settle(store, late, Settlement(neighbour, current, status, last_error="x"))
    assert settled == Settled(done=1, lost=(row_id,))
    assert table.row(row_id) == held


@pytest.mark.parametrize("status", STATUSES)
def test_a_claim_holds_past_its_lease(store: Store, table: Table, want: Wants, status: str) -> None:
    """Running out only lets others take the row; until one does, the outcome counts."""
    row_id = table.insert()
    token = claim_all(store, want())
    table.run_out(row_id)
    assert settle(store, Settlement(row_id, token, status, last_error="x")) == Settled(done=1)
    assert table.status(row_id) == ("pending" if status == RELEASED else status)


@pytest.mark.parametrize("status", STATUSES)
def test_a_repeat_of_a_settlement_is_done(store: Store, table: Table, want: Wants, status: str) -> None:
    """G8: the answer to the first was lost; the repeat recognises its own work and counts nothing twice."""
    row_id = table.insert()
    token = claim_all(store, want())
    settlement = Settlement(row_id, token, status, counted=True, delay_ms=9000, last_error="x", published_to="a")
    assert settle(store, settlement) == Settled(done=1)
    first = table.row(row_id)
    assert settle(store, settlement) == Settled(done=1)
    assert table.row(row_id) == first


@pytest.mark.parametrize("status", STATUSES)
def test_a_row_that_was_deleted_is_gone(store: Store, table: Table, want: Wants, status: str) -> None:
    """G3: told apart from a lost lease; the others are settled all the same."""
    row_id, other = table.insert_many(2)
    token = claim_all(store, want())
    table.delete(row_id)
    settled = settle(store, *(Settlement(key, token, status, last_error="x") for key in (row_id, other)))
    assert settled == Settled(done=1, gone=(row_id,))
    assert table.status(other) != "delivering"


def test_an_unclaimed_row_is_not_settled(store: Store, table: Table) -> None:
    """G3: every row's token is 0 before its first claim; nobody holds that."""
    row_id = table.insert()
    assert settle(store, Settlement(row_id, 7, DELIVERED)) == Settled(lost=(row_id,))
    assert table.status(row_id) == "pending"


def test_a_settle_that_changes_nothing_is_not_lost(store: Store, table: Table, want: Wants) -> None:
    """A database that counts changed rows only would report a lost lease."""
    row_id = table.insert(last_error="same", published_to="a", delivered_at_ms=0)
    token = claim_all(store, want())
    settlement = Settlement(row_id, token, FAILED, last_error="same", published_to="a")
    assert settle(store, settlement) == Settled(done=1)
    assert store.renew(token, [row_id], 1) == 0


def test_many_are_settled_at_once_each_its_own_way(store: Store, table: Table, want: Wants) -> None:
    """More than one chunk of ids, every kind mixed, one of them lost and one gone."""
    rows = table.insert_many(2500)
    token = claim_all(store, want(limit=5000))
    table.change(rows[7], claim_token=1)
    table.delete(rows[8])
    settled = settle(store, *(Settlement(row_id, token, STATUSES[row_id % 4], last_error="x") for row_id in rows))
    assert settled == Settled(done=2498, lost=(rows[7],), gone=(rows[8],))
    for row_id in (rows[0], rows[1], rows[2], rows[3], rows[-1]):
        expected = STATUSES[row_id % 4]
        assert table.status(row_id) == ("pending" if expected == RELEASED else expected)


@pytest.mark.parametrize("status", [RETRYABLE, FAILED])
@pytest.mark.parametrize(
    "error", ["x" * LAST_ERROR_CHARACTERS, "🚀" * LAST_ERROR_CHARACTERS, "", "a'b\"c\\d%s :name\n\t", None]
)
def test_an_error_is_kept_as_it_was_said(
    store: Store, table: Table, want: Wants, status: str, error: str | None
) -> None:
    """G9: 512 characters, not bytes, of any text."""
    row_id = table.insert()
    token = claim_all(store, want())
    assert settle(store, Settlement(row_id, token, status, last_error=error)) == Settled(done=1)
    assert table.row(row_id)["last_error"] == error


def test_settling_comes_before_claiming(store: Store, table: Table, want: Wants) -> None:
    """One transaction: what it released it may take again, what it delivered it may not."""
    released, delivered, waiting = table.insert_many(3)
    token = claim_all(store, want(limit=2))
    outcomes = [Settlement(released, token, RELEASED), Settlement(delivered, token, DELIVERED)]
    settled, claim = store.exchange(outcomes, want(), ZERO)
    assert settled == Settled(done=2)
    assert [event.id for event in claim.events] == [released, waiting]
    assert table.status(delivered) == "delivered"
