"""The source of an ordered lane over real stores, turned by hand: faults at its statements, nothing forgotten."""

from collections.abc import Callable, Iterator

import pytest

from outboxd.errors import StoreConflict, StoreUnavailable
from tests.services.lanes import Table, event, table_of
from tests.services.ordered_source import OrderedRelay, config_of

Relays = Callable[..., OrderedRelay]


@pytest.fixture
def table(database_url: str) -> Iterator[Table]:
    """The lane's, made and empty."""
    with table_of(config_of(database_url)) as made:
        yield made


@pytest.fixture
def relays(database_url: str, table: Table) -> Iterator[Relays]:
    """Makes workers, which are closed at the end."""
    made: list[OrderedRelay] = []

    def make(chains: bool = False, on_dead: str = "continue", more: str = "") -> OrderedRelay:
        made.append(OrderedRelay(config_of(database_url, on_dead, more), chains))
        return made[-1]

    yield make
    for relay in made:
        relay.close()


def fail_once(monkeypatch: pytest.MonkeyPatch, where: object, name: str, error: Exception, after: bool) -> None:
    """The next call fails, after the server has done its work or before it could."""
    usual = getattr(where, name)

    def failing(*args: object, **named: object) -> object:
        monkeypatch.setattr(where, name, usual)
        if after:
            usual(*args, **named)
        raise error

    monkeypatch.setattr(where, name, failing)


def test_partitions_whose_acquisition_got_no_answer_are_worked(
    table: Table, relays: Relays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G1: the table says that they are this worker's, so nobody else takes them; it must know it, too."""
    relay = relays()
    table.fill(5)
    fail_once(monkeypatch, relay.store.partitions, "acquire", StoreUnavailable("lost connection (2013)"), after=True)
    with pytest.raises(StoreUnavailable):
        relay.turn()
    relay.store.close()
    relay.connect()
    relay.until(table.is_done, "the events to be delivered")


@pytest.mark.parametrize("name", ["ask", "blockers"])
def test_partitions_that_are_new_when_a_statement_fails_are_read(
    name: str, table: Table, relays: Relays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G1: they are owned and leased from then on; they must not go unread."""
    relay = relays()
    table.fill(5)
    fail_once(monkeypatch, relay.store.partitions, name, StoreConflict("lock wait timeout (1205)"), after=False)
    with pytest.raises(StoreConflict):
        relay.turn()
    relay.until(table.is_done, "the events to be delivered")


def test_partitions_that_are_loading_when_a_statement_fails_are_loaded(
    table: Table, relays: Relays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G1: as above, for what was not given back in order."""
    table.connection.execute("UPDATE outboxd_partition SET worker_id = 'other', token = 1, lock_until_ms = 1")
    relay = relays()
    table.insert([event(room_id="hot", status="retryable", next_retry_at_ms=table.now_ms() + 500)])
    table.fill(5, room_id="hot")
    table.fill(200, room_id="")  # in all partitions
    fail_once(monkeypatch, relay.store.partitions, "blockers", StoreConflict("lock wait timeout (1205)"), after=False)
    relay.turn()
    with pytest.raises(StoreConflict):
        relay.until(table.is_done, "the fault")
    relay.until(table.is_done, "the events to be delivered")
    hot = [str(row["event_id"]) for row in table.rows("room_id = 'hot'")]
    assert [event_id for event_id in relay.receiver.accepted if event_id in hot] == hot
    table.fill(200, room_id="")
    relay.until(table.is_done, "what came later to be delivered")
