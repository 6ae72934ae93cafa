"""A COMMIT whose answer is lost: the worker finds out on its next connection what became of it (G1, G2, G8)."""

import random
import time

import pytest

from outboxd import vitals
from outboxd.config.load import parse
from outboxd.config.schema import Config, Null
from outboxd.errors import CommitInDoubt
from outboxd.publishers import open_publisher
from outboxd.relay.ledger import Ledger
from outboxd.relay.meter import Meter
from outboxd.relay.routes import open_fanout
from outboxd.store import open_store
from outboxd.store.api import ZERO, Store, Want
from outboxd.supervisor.scoreboard import Scoreboard
from tests.services.lanes import Table, table_of

CONFIG = """
database: {{url: "{url}"}}
outbox_worker: {{direct: [nothing]}}
publishers: {{nothing: {{type: "null"}}}}
"""


def lose_the_answer(store: Store, monkeypatch: pytest.MonkeyPatch, after_commit: bool) -> None:
    """The next COMMIT of this session breaks the connection, after the server has made it or before it could."""
    connection = store._db  # type: ignore[attr-defined]  # the fault is the network's, below the store
    commit = connection.commit

    def broken() -> None:
        if after_commit:
            commit()
        connection.close()
        raise CommitInDoubt("COMMIT failed: lost connection (2013)")

    monkeypatch.setattr(connection, "commit", broken)


class Relay:
    """A worker's ledger over a real store and the null publisher, turned by hand."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.lane = config.lanes["room_outbox"]
        publisher = Null(name="nothing")
        self.fanout = open_fanout(self.lane, [publisher], open_publisher)
        board = Scoreboard(1)
        self.slot = board.slot(0)
        meter = Meter(None, self.slot.index, self.lane.name, self.fanout.routes)
        self.ledger = Ledger(self.lane, self.fanout, self.slot, meter, random.random)
        self.store = self.connect()

    def connect(self) -> Store:
        """A new session."""
        return open_store(self.config.database, self.lane)

    def claim(self, limit: int = 10) -> None:
        """Claim, and settle what is owed."""
        want = Want(random.getrandbits(62) | 1, "node/room_outbox-01", 15_000, limit, 2**20, 2**20, idle=True)
        self.ledger.exchange(self.store, want, ZERO, time.monotonic())

    def settle(self, store: Store) -> None:
        """Settle what is owed."""
        self.ledger.exchange(store, None, ZERO, time.monotonic())

    def publish(self) -> None:
        """Hand over what waits and take in what came of it."""
        for _ in range(3):  # the first one goes alone, as a probe
            self.fanout.pump(time.monotonic())
            self.ledger.collect(time.monotonic())

    def total(self, index: int) -> int:
        """One of the slot's totals."""
        return self.slot.read().totals[index]


@pytest.fixture
def relay(database_url: str) -> Relay:
    """Its lane exists."""
    config = parse(CONFIG.format(url=database_url), {}, "the test")
    with table_of(config):
        return Relay(config)


@pytest.mark.parametrize("after_commit", [True, False], ids=["committed", "not committed"])
def test_a_claim_whose_commit_got_no_answer_is_looked_up(
    relay: Relay, monkeypatch: pytest.MonkeyPatch, after_commit: bool
) -> None:
    """G8: what was claimed is published by its claimer at once, no lease has to run out; what was not is untouched."""
    with table_of(relay.config) as table:
        table.fill(10)
        lose_the_answer(relay.store, monkeypatch, after_commit)
        with pytest.raises(CommitInDoubt) as raised:
            relay.claim()
        relay.ledger.note_doubt(raised.value)
        assert relay.ledger.count == 0
        again = relay.connect()
        relay.ledger.recover(again, time.monotonic())
        assert relay.ledger.count == (10 if after_commit else 0)
        if not after_commit:
            assert table.by_status() == {"pending": 10}
            return
        relay.publish()
        relay.settle(again)
        assert _ends(table) == {("delivered", 0)}
        assert relay.total(vitals.LEASE_LOST) == 0


@pytest.mark.parametrize("after_commit", [True, False], ids=["committed", "not committed"])
def test_a_settle_whose_commit_got_no_answer_is_made_again(
    relay: Relay, monkeypatch: pytest.MonkeyPatch, after_commit: bool
) -> None:
    """G3: the token in the row tells that it was our own work; nothing counts as lost, nothing is published again."""
    with table_of(relay.config) as table:
        table.fill(10)
        relay.claim()
        relay.publish()
        lose_the_answer(relay.store, monkeypatch, after_commit)
        with pytest.raises(CommitInDoubt) as raised:
            relay.settle(relay.store)
        relay.ledger.note_doubt(raised.value)
        assert relay.ledger.count == 10, "held until a settle has answered"
        relay.ledger.recover(relay.connect(), time.monotonic())
        assert relay.ledger.count == 0
        assert _ends(table) == {("delivered", 0)}
        assert (relay.total(vitals.LEASE_LOST), relay.total(vitals.DELIVERED)) == (0, 10)


def _ends(table: Table) -> set[tuple[object, object]]:
    return {(row["status"], row["retry_count"]) for row in table.rows()}


def test_what_is_delivered_was_counted_before(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may be killed at any moment: no event may be delivered that no counter knows."""
    order: list[str] = []

    def note(where: object, name: str) -> None:
        usual = getattr(where, name)

        def noted(*args: object, **how: object) -> None:
            order.append(name)
            usual(*args, **how)

        monkeypatch.setattr(where, name, noted)

    note(relay.ledger._meter, "write")
    note(relay.store._db, "commit")  # type: ignore[attr-defined]  # the store's own connection
    with table_of(relay.config) as table:
        table.fill(10)
        relay.claim()
        relay.publish()
        order.clear()
        relay.settle(relay.store)
        assert _ends(table) == {("delivered", 0)}
    assert order == ["write", "commit"]
