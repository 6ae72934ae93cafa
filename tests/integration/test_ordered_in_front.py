"""The source of an ordered lane over real stores: what stands in front of an event of its room unseen."""

import time
from collections.abc import Iterator

import pytest

from outboxd.errors import CommitInDoubt
from outboxd.event import SERVER_ERROR, Retry
from outboxd.store.api import Claim, Floors, Pick, Settled, Settlement
from tests.services.lanes import Table, event, table_of
from tests.services.ordered_source import OrderedRelay, Relays, config_of


@pytest.fixture
def table(database_url: str) -> Iterator[Table]:
    """The lane's, made and empty."""
    with table_of(config_of(database_url)) as made:
        yield made


def accepted(relay: OrderedRelay, table: Table) -> list[int]:
    """Ids of what was published, in its order."""
    ids = {str(row["event_id"]): int(str(row["id"])) for row in table.rows()}
    return [ids[event_id] for event_id in relay.receiver.accepted]


@pytest.mark.parametrize("chains", [False, True])
def test_what_was_committed_late_comes_before_more_than_a_batch_of_its_room(
    chains: bool, table: Table, relays: Relays
) -> None:
    """What is read is cut short then, and claimed from all the same."""
    relay = relays(chains)
    table.fill(20, room_id="")
    table.insert([event(id=1000, room_id="other")])
    relay.until(table.is_done, "the first ones")
    relay.until(lambda: not relay.turn(), "nothing to be done")
    relay.source._reading._scans.sweep_at_s = float("inf")
    table.insert([event(id=999, room_id="hot")])
    table.insert([event(id=1001 + number, room_id="hot") for number in range(40)])
    relay.source.rung(surely=True)
    relay.until(table.is_done, "all of them")
    assert [row_id for row_id in accepted(relay, table) if row_id in {999, *range(1001, 1041)}] == [
        999, *range(1001, 1041)
    ]  # fmt: skip


@pytest.mark.parametrize("chains", [False, True])
def test_a_claim_whose_commit_got_no_answer_waits_behind_what_failed_meanwhile(
    chains: bool, table: Table, relays: Relays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events are held by nobody while the database is away."""
    relay = relays(chains, batch=2)
    first, second = event(id=1, room_id="hot"), event(id=2, room_id="hot")
    table.insert([first])
    relay.receiver.is_slow = True
    relay.until(lambda: bool(relay.receiver.sent), "the first one to be out")
    table.insert([second])
    relay.source.rung(surely=True)
    usual = relay.store.exchange

    def unanswered(ended: list[Settlement], want: Pick | None, floors: Floors) -> tuple[Settled, Claim]:
        settled, claim = usual(ended, want, floors)
        if claim.events:
            raise CommitInDoubt("COMMIT failed", claim.token, tuple(one.id for one in claim.events))
        return settled, claim

    monkeypatch.setattr(relay.store, "exchange", unanswered)
    with pytest.raises(CommitInDoubt) as raised:
        relay.until(table.is_done, "the fault")
    relay.ledger.note_doubt(raised.value)
    relay.receiver.answers[str(first["event_id"])] = Retry(SERVER_ERROR, "HTTP 500")
    relay.receiver.is_slow = False
    relay.ledger.collect(time.monotonic())
    relay.receiver.answers.clear()
    relay.store.close()
    relay.connect()
    relay.until(table.is_done, "both")
    assert accepted(relay, table) == [1, 2]


@pytest.mark.parametrize("chains", [False, True])
@pytest.mark.parametrize("on_dead", ["block", "continue"])
def test_what_can_never_be_published_keeps_what_was_claimed_with_it_where_the_lane_says_so(
    on_dead: str, chains: bool, table: Table, relays: Relays
) -> None:
    """An oversize event, and another room beside it."""
    relay = relays(chains, on_dead, ", max_event_bytes: 2000")
    table.insert([event(id=number, room_id="hot", envelope="x" * (5000 if number == 2 else 5)) for number in (1, 2, 3)])
    table.insert([event(id=4, room_id="other")])
    published = {1, 4} if on_dead == "block" else {1, 3, 4}
    relay.until(lambda: len(relay.receiver.accepted) >= len(published), "the others")
    relay.until(lambda: not relay.turn(), "nothing to be done")
    assert set(accepted(relay, table)) == published
    kept = {"pending": 1} if on_dead == "block" else {}
    assert table.by_status() == {"failed": 1, "delivered": len(published), **kept}
