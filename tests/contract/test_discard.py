"""The contract of a lane's store: how a stale event's row is deleted, and what fences that off."""

from collections.abc import Callable

import pytest

from outboxd.store.api import DELIVERED, DISCARDED, RETRYABLE, ZERO, Settled, Settlement, Store, Want
from tests.contract.conftest import Table

Wants = Callable[..., Want]


def claim(store: Store, want: Want) -> int:
    """Claim every row; the claim's token."""
    store.exchange((), want, ZERO)
    return want.token


def settle(store: Store, *settlements: Settlement) -> Settled:
    """A settle alone."""
    return store.exchange(settlements, None, ZERO)[0]


def count(table: Table) -> int:
    """Rows that are left."""
    return int(table.connection.query("SELECT COUNT(*) FROM room_outbox")[0][0])


def test_discarded_rows_are_gone(store: Store, table: Table, want: Wants) -> None:
    """Many of one claim, beside other outcomes; nothing else is touched."""
    stale = table.insert_many(1200)
    delivered, failed_once = table.insert(), table.insert()
    token = claim(store, want(limit=2000))
    others = [Settlement(delivered, token, DELIVERED), Settlement(failed_once, token, RETRYABLE, True, 1000, "x")]
    settled = settle(store, *(Settlement(row_id, token, DISCARDED) for row_id in stale), *others)
    assert settled == Settled(done=1202)
    assert count(table) == 2
    assert (table.status(delivered), table.status(failed_once)) == ("delivered", "retryable")


def test_a_discard_that_is_repeated_is_done(store: Store, table: Table, want: Wants) -> None:
    """The answer to the first one may have been lost: nothing is told of."""
    row_id = table.insert()
    token = claim(store, want())
    discard = Settlement(row_id, token, DISCARDED)
    assert settle(store, discard) == settle(store, discard) == Settled(done=1)


def test_a_late_discard_of_a_lost_claim_deletes_nothing(
    store: Store, table: Table, want: Wants, open_another: Callable[[], Store]
) -> None:
    """G3: whoever has it now decides, and what was delivered stays."""
    lost, finished, released = table.insert_many(3)
    token = claim(store, want(token=5))
    table.run_out(lost)
    table.change(lost, claim_token=9, lock_until_ms=table.now_ms() + 60_000)
    table.change(finished, claim_token=9, status="delivered")
    table.change(released, claim_token=9, status="retryable")
    settled = settle(store, *(Settlement(row_id, token, DISCARDED) for row_id in (lost, finished, released)))
    assert settled == Settled(done=0, lost=(lost, finished, released))
    assert count(table) == 3


def test_a_row_that_was_killed_meanwhile_is_not_discarded(store: Store, table: Table, want: Wants) -> None:
    """G3: a person has made it a dead letter, and may look at it."""
    row_id = table.insert()
    token = claim(store, want())
    table.change(row_id, status="failed", claim_token=0)
    assert settle(store, Settlement(row_id, token, DISCARDED)) == Settled(done=0, lost=(row_id,))
    assert table.status(row_id) == "failed"


@pytest.mark.parametrize("claims", [1, 6])
def test_discards_of_several_claims_are_made_together(
    store: Store, table: Table, want: Wants, claims: int
) -> None:
    """Each by its own token."""
    discards: list[Settlement] = []
    for token in range(1, claims + 1):
        table.insert_many(3)
        taken = store.exchange((), want(token=token), ZERO)[1]
        discards += [Settlement(event.id, token, DISCARDED) for event in taken.events]
    wrong = [Settlement(discards[0].id, 99, DISCARDED)]
    assert settle(store, *wrong).lost == (discards[0].id,)
    assert settle(store, *discards) == Settled(done=3 * claims)
    assert count(table) == 0


def test_a_claim_takes_stale_rows_by_the_batch_and_of_others_as_many_as_asked_for(
    store: Store, table: Table, want: Wants
) -> None:
    """Where only a probe may go, the backlog of stale events is in nobody's way; nor do their bytes count."""
    stale = table.insert_many(20, created_at_ms=50, envelope=b"x" * 1000)
    live = table.insert_many(3, created_at_ms=200, envelope=b"y" * 10)
    taken = store.exchange((), want(limit=100, live_limit=1, stale_before_ms=100, budget_bytes=100), ZERO)[1]
    assert [event.id for event in taken.events] == [*stale, live[0]]
    assert (taken.cut_by_budget, taken.floors.fresh_id) == (True, live[0])
    assert [table.status(row_id) for row_id in live] == ["delivering", "pending", "pending"]
    assert {len(event.envelope) for event in taken.events[:-1]} <= {0, 1000}
