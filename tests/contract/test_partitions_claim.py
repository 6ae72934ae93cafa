"""A claim of an ordered lane: rows by their ids, fenced by who owns their partitions, settled in one transaction."""

import itertools
from collections.abc import Callable

import pytest

from outboxd.config.schema import Lane
from outboxd.errors import CommitInDoubt
from outboxd.store.api import DELIVERED, PARTITIONS, RETRYABLE, ZERO, Claim, Partitions, Pick, Settlement, Store
from outboxd.store.partitions import INLINE_BYTES
from tests.contract.conftest import LANE, Table

ALL = tuple(range(PARTITIONS))
OWNER = 11
LEASE_MS = 30_000

Takes = Callable[..., Claim]


@pytest.fixture
def lane() -> Lane:
    """Settings of an ordered lane."""
    return Lane(name=LANE, direct=("console",), ordering="room")


@pytest.fixture
def partitions(store: Store) -> Partitions:
    """All of them are the store's own."""
    assert store.partitions is not None
    store.partitions.acquire(ALL, "n/one", OWNER, LEASE_MS, "")
    return store.partitions


@pytest.fixture
def picks() -> Callable[..., Pick]:
    """Makes what a worker picks; a new token each."""
    tokens = itertools.count(2**61)

    def make(*ids: int, **changes: object) -> Pick:
        usual: dict[str, object] = {"token": next(tokens), "worker_id": "n/one", "lease_ms": LEASE_MS, "owner": OWNER}
        bounds: dict[str, object] = {"max_event_bytes": 1 << 20, "numbers": ALL, "ids": ids}
        return Pick(**{**usual, **bounds, **changes})  # type: ignore[arg-type]  # each test's words are Pick's own

    return make


@pytest.fixture
def take(store: Store, partitions: Partitions, picks: Callable[..., Pick]) -> Takes:
    """Claims by ids."""
    return lambda *ids, **changes: store.exchange((), picks(*ids, **changes), ZERO)[1]


def event_ids(claim: Claim) -> list[int]:
    """Of the events it took."""
    return [event.id for event in claim.events]


def test_rows_are_taken_by_their_ids_and_come_in_their_order(table: Table, take: Takes) -> None:
    """Those of a scan with what it read, others with what they hold; all under one token and lease."""
    ids = table.insert_many(4)
    table.change(ids[1], status="retryable", next_retry_at_ms=5, retry_count=2, last_error="why")
    claim = take(ids[3], ids[0], ids[1])
    assert event_ids(claim) == [ids[0], ids[1], ids[3]]
    assert (claim.missed, claim.disowned, claim.suspect) == ((), (), False)
    event = claim.events[1]
    assert (event.envelope, event.room_id, event.retry_count, event.last_error) == (b"{}", "room-1", 2, "why")
    row = table.row(ids[0])
    assert (row["status"], row["claim_token"], str(row["worker_id"]).strip()) == ("delivering", claim.token, "n/one")
    assert 0 < int(str(row["lock_until_ms"])) - table.now_ms() <= LEASE_MS
    assert table.status(ids[2]) == "pending"
    assert table.row(ids[1])["retry_count"] == 2


def test_rows_at_hand_are_not_read_again(table: Table, partitions: Partitions, take: Takes) -> None:
    """Beside others that are."""
    ids = table.insert_many(4)
    rows = partitions.scan(dict.fromkeys(ALL, ZERO), 10, 100, fresh=True, due=False)
    table.change(ids[0], envelope=b"changed past us")
    at_hand = tuple(row for row in rows if row[0] != ids[3])
    claim = take(ids[3], rows=at_hand)
    assert [(event.id, event.envelope) for event in claim.events] == [(row_id, b"{}") for row_id in ids]
    assert claim.missed == ()


@pytest.mark.parametrize("why", ["leased", "delivered", "failed", "suspect", "deleted"])
def test_what_stands_otherwise_by_now_is_missed(why: str, table: Table, take: Takes) -> None:
    """G2: and the others are not taken either, since they may stand behind it in its room."""
    ids = table.insert_many(3)
    if why == "deleted":
        table.delete(ids[1])
    elif why in ("leased", "suspect"):
        until_ms = table.now_ms() + 60_000 if why == "leased" else 1
        table.change(ids[1], status="delivering", lock_until_ms=until_ms, claim_token=99)
    else:
        table.change(ids[1], status=why)
    before = None if why == "deleted" else table.row(ids[1])
    claim = take(*ids)
    assert (event_ids(claim), claim.missed) == ([], (ids[1],))
    assert [table.status(row_id) for row_id in (ids[0], ids[2])] == ["pending", "pending"]
    assert before is None or table.row(ids[1]) == before
    assert event_ids(take(ids[0], ids[2])) == [ids[0], ids[2]], "at once"


def test_who_does_not_own_a_partition_any_more_takes_nothing(
    table: Table, store: Store, partitions: Partitions, picks: Callable[..., Pick], take: Takes
) -> None:
    """G2: not in the others either, before it knows what is its own. What it owes is settled."""
    first, second = table.insert_many(2)
    claimed = take(first)
    table.connection.execute("UPDATE outboxd_partition SET token = 22 WHERE number IN (3, 5)")
    settled, claim = store.exchange([Settlement(first, claimed.token, DELIVERED)], picks(second), ZERO)
    assert (claim.disowned, claim.events, claim.missed) == ((3, 5), (), ())
    assert (settled.done, table.status(first), table.status(second)) == (1, "delivered", "pending")
    owned = tuple(number for number in ALL if number not in (3, 5))
    assert event_ids(take(second, numbers=owned)) == [second]


def test_a_claim_lengthens_the_leases_of_its_partitions(table: Table, partitions: Partitions, take: Takes) -> None:
    """A worker that claims keeps what it owns."""
    table.connection.execute("UPDATE outboxd_partition SET lock_until_ms = 5")
    take(table.insert())
    assert all(0 < one.lease_ms <= LEASE_MS for one in partitions.owners())


def test_long_payloads_are_read_and_larger_ones_than_allowed_are_not(table: Table, take: Takes) -> None:
    """G9: an oversize event is claimed all the same, with its size, so that it can be settled."""
    short, long = table.insert(), table.insert(envelope=b"x" * (INLINE_BYTES + 1))
    oversize = table.insert(envelope=b"x" * (INLINE_BYTES + 2))
    claim = take(short, long, oversize, max_event_bytes=INLINE_BYTES + 1)
    assert [len(event.envelope) for event in claim.events] == [2, INLINE_BYTES + 1]
    assert [(event.id, event.envelope, size) for event, size in claim.oversize] == [(oversize, b"", INLINE_BYTES + 2)]
    assert table.row(oversize)["claim_token"] == claim.token


def test_a_suspect_is_taken_as_one_and_counted(table: Table, take: Takes) -> None:
    """G8."""
    row_id = table.insert(status="delivering", lock_until_ms=1, claim_token=99, retry_count=1)
    assert take(row_id).missed == (row_id,)
    claim = take(row_id, suspects=True)
    assert (claim.suspect, claim.events[0].retry_count, claim.missed) == (True, 2, ())
    assert table.row(row_id)["retry_count"] == 2
    again = take(row_id, suspects=True)
    assert (again.suspect, again.events, again.missed) == (False, (), (row_id,))
    fresh = table.insert()
    assert take(fresh, suspects=True).missed == (fresh,)


def test_settling_comes_first_so_that_an_event_may_be_taken_again(
    table: Table, store: Store, picks: Callable[..., Pick], take: Takes
) -> None:
    """One transaction: of what it gives back it may take the first."""
    first, second = table.insert_many(2)
    claim = take(first, second)
    owed = [Settlement(first, claim.token, RETRYABLE, counted=True, last_error="no"), Settlement(second, 7, DELIVERED)]
    settled, again = store.exchange(owed, picks(first), ZERO)
    assert (settled.done, settled.lost) == (1, (second,))
    assert [(event.id, event.retry_count) for event in again.events] == [(first, 1)]


def test_a_thousand_and_more_are_taken_at_once(table: Table, take: Takes) -> None:
    """Lists of ids are cut into chunks."""
    ids = table.insert_many(1100)
    table.change(ids[1050], status="failed")
    assert take(*ids).missed == (ids[1050],)
    assert len(take(*ids[:1050], *ids[1051:]).events) == 1099


def test_a_claim_whose_commit_gets_no_answer_names_what_it_took(
    table: Table, store: Store, picks: Callable[..., Pick], partitions: Partitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G8: so that it can be looked up, by its token."""
    ids = table.insert_many(3)
    connection = store._db  # type: ignore[attr-defined]  # the fault is the network's, below the store
    commit = connection.commit

    def broken() -> None:
        commit()
        raise CommitInDoubt("COMMIT failed: lost connection (2013)")

    monkeypatch.setattr(connection, "commit", broken)
    pick = picks(*ids)
    with pytest.raises(CommitInDoubt) as raised:
        store.exchange((), pick, ZERO)
    assert (raised.value.token, raised.value.ids) == (pick.token, tuple(ids))
    assert [event.id for event in store.fetch(pick.token, raised.value.ids)] == ids
