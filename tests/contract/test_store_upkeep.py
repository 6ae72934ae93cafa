"""The contract of a lane's store: what a worker asks beside settling and claiming."""

from collections.abc import Callable, Mapping

import pytest

from outboxd.errors import StoreUnavailable
from outboxd.store.api import DELIVERED, FAILED, RELEASED, RETRYABLE, ZERO, Floors, Settled, Settlement, Store, Want
from tests.contract.conftest import LANE, Table

Wants = Callable[..., Want]


def claim_all(store: Store, want: Want) -> int:
    """Claim every row; the claim's token."""
    store.exchange((), want, ZERO)
    return want.token


def test_renewing_lengthens_the_leases_that_are_held(store: Store, table: Table, want: Wants) -> None:
    """G4: to a time from now by the database's clock; rows of others are let alone."""
    mine, lost, settled = table.insert_many(3)
    token = claim_all(store, want(lease_ms=1000))
    table.change(lost, claim_token=1)
    store.exchange([Settlement(settled, token, DELIVERED)], None, ZERO)
    others = (table.row(lost), table.row(settled))
    before_ms = table.now_ms()
    assert store.renew(token, [mine, lost, settled, 999], 50_000) == 1
    lock_until_ms = table.row(mine)["lock_until_ms"]
    assert isinstance(lock_until_ms, int)
    assert before_ms + 50_000 <= lock_until_ms <= table.now_ms() + 50_000
    assert (table.row(lost), table.row(settled)) == others


def test_a_lease_that_ran_out_can_be_renewed_until_another_takes_the_row(
    store: Store, table: Table, want: Wants
) -> None:
    """G8: after a reconnection a worker first renews by token."""
    row_id = table.insert()
    token = claim_all(store, want())
    table.run_out(row_id)
    assert store.renew(token, [row_id], 60_000) == 1
    assert store.exchange((), want(), ZERO)[1].events == ()


def test_renewing_twice_within_a_moment_is_no_loss(store: Store, table: Table, want: Wants) -> None:
    """Rows that the claim holds are counted, whether the time in them changed or not."""
    rows = table.insert_many(3)
    token = claim_all(store, want())
    assert [store.renew(token, rows, 60_000) for _ in range(5)] == [3] * 5


def test_renewing_nothing_is_nothing(store: Store) -> None:
    """A worker that holds nothing has nothing to renew."""
    assert store.renew(5, [], 1000) == 0
    assert store.held(5, []) == frozenset()
    assert store.fetch(5, []) == ()
    assert store.hurry([]) == 0


def test_held_tells_which_rows_a_claim_still_holds(store: Store, table: Table, want: Wants) -> None:
    """G3: by token and status, past the lease too; a settled row keeps its token and is held no more."""
    mine, expired, lost, settled, gone = table.insert_many(5)
    token = claim_all(store, want())
    table.run_out(expired)
    table.change(lost, claim_token=1)
    store.exchange([Settlement(settled, token, FAILED, last_error="x")], None, ZERO)
    table.delete(gone)
    assert store.held(token, [mine, expired, lost, settled, gone]) == {mine, expired}
    assert store.held(token, [mine]) == {mine}


def test_fetch_brings_what_a_claim_holds(store: Store, table: Table, want: Wants) -> None:
    """G1: a claim whose COMMIT got no answer stands; its events are published, not left to run out."""
    rows = [table.insert(envelope=b"\x00" * size, retry_count=size) for size in (1, 2, 3)]
    claimed = store.exchange((), want(token=77), ZERO)[1]
    table.change(rows[1], claim_token=1)
    found = store.fetch(77, [rows[2], rows[1], rows[0], 999])
    assert sorted(found, key=lambda event: event.id) == [claimed.events[0], claimed.events[2]]
    assert store.fetch(78, rows) == ()


def test_fetch_brings_a_large_payload_whole(store: Store, table: Table, want: Wants) -> None:
    """Whatever the size."""
    row_id = table.insert(envelope=b"x" * 3_000_000)
    token = claim_all(store, want(budget_bytes=4_000_000, max_event_bytes=4_000_000))
    assert [len(event.envelope) for event in store.fetch(token, [row_id])] == [3_000_000]


def test_hurry_makes_a_parked_event_due(store: Store, table: Table, want: Wants) -> None:
    """A publisher is back: what waited for it goes out now, and the floors do not pass it over."""
    row_id = table.insert()
    token = claim_all(store, want())
    store.exchange([Settlement(row_id, token, RETRYABLE, delay_ms=60_000, last_error="parked")], None, ZERO)
    floors = Floors(row_id, table.now_ms() - 1, 1)
    before = table.row(row_id)
    assert store.hurry([(row_id, token)]) == 1
    after = table.row(row_id)
    changed = {name for name in after if after[name] != before[name]} - {"updated_at_ms"}
    assert changed == {"next_retry_at_ms", "due_at_ms"}
    assert [event.id for event in store.exchange((), want(), floors)[1].events] == [row_id]


def test_hurry_is_fenced(store: Store, table: Table, want: Wants) -> None:
    """G3: what another claim settled since, what is claimed, delivered, failed, released or gone, is let alone."""
    rows = table.insert_many(6)
    token = claim_all(store, want())
    outcomes = [RETRYABLE, DELIVERED, FAILED, RELEASED]
    store.exchange(
        [Settlement(row_id, token, status, delay_ms=60_000) for row_id, status in zip(rows, outcomes, strict=False)],
        None,
        ZERO,
    )
    table.change(rows[0], claim_token=1)
    for row_id in rows:
        table.change(row_id, next_retry_at_ms=table.now_ms() + 60_000)
    table.delete(rows[5])
    before = [table.row(row_id) for row_id in rows[:5]]
    assert store.hurry([(row_id, token) for row_id in rows]) == 0
    assert [table.row(row_id) for row_id in rows[:5]] == before


def test_hurry_pairs_ids_with_their_own_tokens(store: Store, table: Table, want: Wants) -> None:
    """G3: several claims' events at once; the token of one does not open another's row."""
    first, second = table.insert_many(2)
    token_a, token_b = claim_all(store, want(limit=1)), claim_all(store, want())
    for row_id, token in ((first, token_a), (second, token_b)):
        store.exchange([Settlement(row_id, token, RETRYABLE, delay_ms=60_000, last_error="x")], None, ZERO)
    assert store.hurry([(first, token_b), (second, token_a)]) == 0
    assert store.hurry([(first, token_a), (second, token_b)]) == 2


@pytest.mark.parametrize(
    ("columns", "unfinished"),
    [
        ({}, True),
        ({"next_retry_at_ms": 1}, True),
        ({"next_retry_at_ms": 2**52}, False),
        ({"status": "retryable", "next_retry_at_ms": 2**52}, True),
        ({"status": "retryable"}, True),
        ({"status": "delivering", "lock_until_ms": 2**52}, True),
        ({"status": "delivering", "lock_until_ms": 2**52, "next_retry_at_ms": 2**52}, True),
        ({"status": "delivered"}, False),
        ({"status": "failed", "next_retry_at_ms": 1}, False),
    ],
)
def test_unfinished(store: Store, table: Table, columns: Mapping[str, object], unfinished: bool) -> None:
    """A run until empty ends when nothing is left but dead letters and what a producer has delayed."""
    assert store.unfinished() is False
    table.insert(**columns)
    assert store.unfinished() is unfinished


@pytest.mark.parametrize(
    ("columns", "fresh", "due"),
    [
        ({}, True, False),
        ({"next_retry_at_ms": 1}, False, True),
        ({"status": "retryable", "next_retry_at_ms": 1}, False, True),
        ({"next_retry_at_ms": 2**52}, False, False),
        ({"lock_until_ms": 2**52}, False, False),
        ({"lock_until_ms": 2**52, "next_retry_at_ms": 1}, False, False),
        ({"status": "delivering", "lock_until_ms": 1}, True, False),
        ({"status": "delivering", "lock_until_ms": 1, "next_retry_at_ms": 1}, False, True),
        ({"status": "delivered"}, False, False),
        ({"status": "failed"}, False, False),
    ],
)
def test_peek_sees_what_a_claim_would_take(
    store: Store, table: Table, columns: Mapping[str, object], fresh: bool, due: bool
) -> None:
    """An idle worker asks this again and again; it takes nothing."""
    row_id = table.insert(**columns)
    before = table.row(row_id)
    peek = store.peek(ZERO)
    assert (peek.fresh, peek.due) == (fresh, due)
    assert table.row(row_id) == before


def test_peek_looks_behind_the_floors(store: Store, table: Table) -> None:
    """Before them is the sweeps' business."""
    fresh = table.insert()
    due = table.insert(next_retry_at_ms=100)
    peek = store.peek(Floors(fresh - 1, 99, 0))
    assert (peek.fresh, peek.due) == (True, True)
    peek = store.peek(Floors(fresh, 100, due - 1))
    assert (peek.fresh, peek.due) == (False, True)
    peek = store.peek(Floors(fresh, 100, due))
    assert (peek.fresh, peek.due) == (False, False)


def test_peek_tells_the_last_id_that_it_saw(store: Store, table: Table) -> None:
    """A worker that finds nothing looks behind it next time: what others relay need not be read again."""
    assert store.peek(ZERO).last_id == 0
    last = [table.insert(status=status) for status in ("pending", "delivered")][-1]
    assert store.peek(ZERO).last_id == last
    table.connection.begin()
    try:
        table.insert()
        assert store.peek(ZERO).last_id == last, "what is not committed is not there"
    finally:
        table.connection.rollback()


def test_peek_tells_the_databases_time(store: Store, table: Table) -> None:
    """G12: UTC epoch milliseconds."""
    before_ms = table.now_ms()
    assert before_ms <= store.peek(ZERO).now_ms <= table.now_ms()
    assert before_ms > 1_700_000_000_000


def test_peek_tells_whether_the_lane_is_paused(store: Store, table: Table) -> None:
    """For all nodes; a lane that nobody ever paused is not."""
    assert store.peek(ZERO).paused is False
    table.connection.execute("DELETE FROM outboxd_lane")
    assert store.peek(ZERO).paused is False
    table.connection.execute("INSERT INTO outboxd_lane (lane, paused) VALUES ('another_lane', 1)")
    assert store.peek(ZERO).paused is False
    table.connection.execute("INSERT INTO outboxd_lane (lane, paused) VALUES (:lane, 1)", {"lane": LANE})
    assert store.peek(ZERO).paused is True
    table.connection.execute("UPDATE outboxd_lane SET paused = 0")
    assert store.peek(ZERO).paused is False


def test_a_closed_store_is_unavailable(store: Store) -> None:
    """Closing twice is harmless; any call says that the connection is of no use."""
    store.ping()
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable):
        store.ping()


def test_an_exchange_of_nothing_is_nothing(store: Store, table: Table) -> None:
    """No statement is sent, no claim made."""
    settled, claim = store.exchange((), None, ZERO)
    assert (settled, claim.events, claim.token) == (Settled(), (), 0)
