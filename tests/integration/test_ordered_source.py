"""The source of an ordered lane over real stores, turned by hand: faults at its statements, nothing forgotten."""

import time
from collections.abc import Iterator

import pytest

from outboxd import log
from outboxd.errors import StoreConflict, StoreUnavailable
from outboxd.event import CONNECT, blameless
from outboxd.relay import tenure
from outboxd.relay.room import LIGHT, Row
from tests.services.lanes import Table, event, table_of
from tests.services.ordered_source import OrderedRelay, Relays, config_of


@pytest.fixture
def table(database_url: str) -> Iterator[Table]:
    """The lane's, made and empty."""
    with table_of(config_of(database_url)) as made:
        yield made


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


def rows_read(monkeypatch: pytest.MonkeyPatch, relay: OrderedRelay) -> list[int]:
    """How many rows or ids each statement of the source's brings, from now on."""
    connection = relay.store._db  # type: ignore[attr-defined]
    usual, counts = connection.query, list[int]()

    def counted(*args: object) -> object:
        rows = usual(*args)
        counts.append(len(rows))
        return rows

    monkeypatch.setattr(connection, "query", counted)
    return counts


def test_a_backlog_is_not_read_at_once_because_another_partition_is_ahead(
    table: Table, relays: Relays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G9: the first rows of some partitions have higher ids than all the backlog of others."""
    table.fill(5000, room_id="hot")
    table.fill(300, room_id="")
    relay = relays()
    counts = rows_read(monkeypatch, relay)
    relay.until(lambda: len(relay.receiver.accepted) >= 350, "the first events")
    assert max(counts) < 2000


def test_an_event_that_is_committed_late_is_found_by_the_next_look(table: Table, relays: Relays) -> None:
    """Latency: ids are given before the commit, so producers that write at once are seen in any order."""
    relay = relays()
    table.fill(20, room_id="")
    relay.until(table.is_done, "the first events to be delivered")
    table.insert([event(id=1000, room_id="a")])
    relay.source.rung(surely=True)
    relay.until(table.is_done, "the higher id to be delivered")
    relay.source._reading._scans.sweep_at_s = float("inf")
    table.insert([event(id=999, room_id="b")])
    relay.source.rung(surely=True)
    relay.until(table.is_done, "the lower id to be delivered")


@pytest.mark.parametrize("count", [100, 1500])
def test_many_events_that_commit_late_come_before_those_behind_them(count: int, table: Table, relays: Relays) -> None:
    """A long transaction: what was written after it comes after it, and what it brings is read in pieces."""
    relay = relays()
    table.insert([event(id=10_000, room_id="other")])
    relay.until(table.is_done, "the higher id to be delivered")
    table.insert(event(id=1000 + number, room_id=f"room-{number % 3}") for number in range(count))
    table.insert(event(id=20_000 + number, room_id=f"room-{number}") for number in range(3))
    relay.source.rung(surely=True)
    relay.until(table.is_done, "all to be delivered")
    places = {event_id: place for place, event_id in enumerate(relay.receiver.accepted)}
    for number in range(3):
        ids = [str(row["event_id"]) for row in table.rows(f"room_id = 'room-{number}'")]
        assert [places[event_id] for event_id in ids] == sorted(places[event_id] for event_id in ids)


@pytest.mark.parametrize("why", ["paused", "breaker open"])
def test_a_suspect_that_may_not_be_taken_now_keeps_nobody_awake(why: str, table: Table, relays: Relays) -> None:
    """A worker that asked at once when to ask again would spin for as long as the pause, or the outage, lasts."""
    relay = relays()
    if why == "paused":
        table.connection.execute("UPDATE outboxd_lane SET paused = 1 WHERE lane = 'room_outbox'")
    else:
        for number in range(-20, -10):
            relay.breaker.started(number)
            relay.breaker.judge(number, blameless(CONNECT, "refused"), time.monotonic())
    table.insert([event(status="delivering", lock_until_ms=1, claim_token=5)])
    relay.until(lambda: relay.source._rooms.waits.suspect() is not None, "the suspect to be known")
    relay.source._suspects_from_s = 0.0  # the time for others to come back is over
    relay.until(lambda: not relay.turn(), "nothing to be done")
    assert relay.source.wake_at_s(relay.holding()) > time.monotonic()


def test_what_was_committed_late_in_front_of_a_suspect_goes_before_it(table: Table, relays: Relays) -> None:
    """The suspect was read a lease ago, or longer: much may have been committed since."""
    relay = relays()
    table.insert([event(id=10, event_id="later", room_id="r", status="delivering", lock_until_ms=1, claim_token=5)])
    relay.source._suspects_from_s = time.monotonic() + 3600
    relay.until(lambda: relay.source._rooms.waits.suspect() is not None, "the suspect to be known")
    relay.until(lambda: not relay.turn(), "all of it to be read")
    table.insert([event(id=5, event_id="earlier", room_id="r")])
    relay.source._suspects_from_s = 0.0
    relay.until(lambda: len(relay.receiver.sent) >= 2, "both")
    assert relay.receiver.sent == ["earlier", "later"]


def test_a_run_until_empty_does_not_end_while_a_partition_is_nobodys(table: Table, relays: Relays) -> None:
    """Workers that start together do not take all of them at once: none may leave the rest to the others."""
    relay = relays()
    relay.until(lambda: not relay.turn(), "the partitions to be taken and read")
    (event_id,) = table.fill(1)
    where = "SET token = 0, worker_id = '', lock_until_ms = 0 WHERE number = :number"
    number = int(table.connection.query("SELECT room_partition FROM room_outbox")[0][0])
    table.connection.execute(f"UPDATE outboxd_partition {where}", {"number": number})
    relay.source._tenure.numbers -= {number}
    relay.source._own()
    assert relay.source.idle
    assert not relay.source.finished(relay.store)
    relay.until(lambda: relay.source.idle and relay.source.finished(relay.store), "the end")
    assert relay.receiver.accepted == [event_id]


@pytest.mark.parametrize("room", ["hot", ""])
def test_what_is_claimable_is_claimed_before_all_is_read(room: str, table: Table, relays: Relays) -> None:
    """G9: of one room, or for the bytes allowed, there is never a full batch. Payloads come along with what is read."""
    table.fill(5000, room_id=room, envelope=b'"' + b"x" * 90 + b'"')
    relay = relays(more=", max_inflight_bytes: 20KiB" if room else ", max_inflight_bytes: 4KiB", batch=100)
    relay.until(lambda: bool(relay.receiver.sent), "the first publish")
    rooms = relay.source._rooms
    assert rooms.ready_count <= (500 if room else 5000)
    assert sum(len(row[5] or b"") for row in payloads(relay)) <= 3 * 20 * 1024
    relay.until(lambda: len(relay.receiver.sent) >= 1000, "more of them")
    assert sum(len(row[5] or b"") for row in payloads(relay)) <= 3 * 20 * 1024


def payloads(relay: OrderedRelay) -> list[Row]:
    """Rows that are in memory with their payload, and not claimed."""
    rooms = relay.source._rooms._rooms.values()
    return [one for room in rooms for one in room.ready if len(one) > LIGHT]


def test_a_second_daemon_of_the_same_node_id_is_told_once(
    table: Table, relays: Relays, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each takes the other for its own last life, whose rooms it may have at once; nobody would look for that. A last
    life that is over is nothing to speak of."""
    monkeypatch.setattr(tenure, "TICK_S", 0.2)

    def said() -> list[object]:
        return [record.fields for record in caplog.records if record.msg == log.NODE_ID_SHARED]  # type: ignore[attr-defined]

    first = relays()
    first.until(lambda: owners(table) == 1, "the first to have all partitions")
    second = relays()
    look_often(monkeypatch, second, 3)
    assert said() == []
    look_often(monkeypatch, first, 3)
    assert said() == [{"partitions": 64}]
    second.source.end(second.store)
    first.until(lambda: owners(table) == 1, "the first to have them again")
    look_often(monkeypatch, first, 3)
    look_often(monkeypatch, relays(), 1)
    look_often(monkeypatch, first, 3)
    assert said() == [{"partitions": 64}] * 2


def owners(table: Table) -> int:
    """How many have partitions, 0 as long as any is free."""
    sql = "SELECT token FROM outboxd_partition WHERE lane = :lane"
    tokens = {int(token) for (token,) in table.connection.query(sql, {"lane": table.name})}
    return 0 if 0 in tokens else len(tokens)


def look_often(monkeypatch: pytest.MonkeyPatch, relay: OrderedRelay, times: int) -> None:
    """Until it has looked so often at who has the partitions, and acted on it."""
    partitions = relay.store.partitions
    assert partitions is not None
    usual, looks = partitions.owners, list[float]()

    def counted() -> object:
        looks.append(time.monotonic())
        return usual()

    monkeypatch.setattr(partitions, "owners", counted)
    relay.until(lambda: len(looks) >= times, "its looks")
