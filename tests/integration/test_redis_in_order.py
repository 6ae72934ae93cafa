"""Redis streams of an ordered lane: a batch is one transaction, and nothing of a room arrives behind a failure."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from outboxd.config.schema import RedisStreams
from outboxd.event import INVALID, MISCONFIGURED, RESET, TIMEOUT, UNAVAILABLE, Dead, Delivered, Event, Outcome, Retry
from outboxd.message import encode
from outboxd.publishers.courier import Courier
from outboxd.publishers.redis_pipe import Pipe
from outboxd.publishers.redis_streams import open_redis_streams
from tests.services.publishing import collect, make_event
from tests.services.redis_server import RedisServer, client

TIMEOUT_S = 1.0


@contextlib.contextmanager
def piping(url: str) -> Iterator[Pipe]:
    """What the publisher writes through."""
    pipe = Pipe(url, TIMEOUT_S)
    yield pipe
    pipe.close()


def exchange(pipe: Pipe, events: list[Event]) -> list[Outcome]:
    """All or none."""
    commands = [("XADD", "s", "*", b"m", encode(event)) for event in events]
    return pipe.exchange_all(commands, time.monotonic() + TIMEOUT_S)


def stream(url: str) -> list[bytes]:
    """The messages that have arrived, in their order."""
    with contextlib.closing(client(url)) as redis:
        entries: Any = redis.xrange("s")
        return [fields[b"m"] for _, fields in entries]


def configure(url: str, **settings: int) -> None:
    """As an administrator does."""
    with contextlib.closing(client(url)) as redis:
        for name, value in settings.items():
            redis.config_set(name.replace("_", "-"), value)


def reasons(outcomes: list[Outcome]) -> list[tuple[str, bool]]:
    """Why they failed, and whether the event is blamed."""
    assert all(isinstance(outcome, Retry) for outcome in outcomes), outcomes
    return [(outcome.reason, outcome.counted) for outcome in outcomes if isinstance(outcome, Retry)]


def test_a_batch_arrives_as_one_transaction(own_redis: RedisServer) -> None:
    """All of it, in its order, with nobody else's entries between."""
    events = [make_event() for _ in range(20)]
    with piping(own_redis.url) as pipe, contextlib.closing(client(own_redis.url)) as redis:
        assert {type(outcome) for outcome in exchange(pipe, events)} == {Delivered}
        told = redis.info("commandstats")
    assert (told["cmdstat_multi"]["calls"], told["cmdstat_exec"]["calls"]) == (1, 1)
    assert stream(own_redis.url) == [encode(event) for event in events]


def test_a_server_without_memory_takes_nothing_and_blames_nobody(own_redis: RedisServer) -> None:
    """G6: and when it has some again, all arrives."""
    events = [make_event() for _ in range(5)]
    configure(own_redis.url, maxmemory=1)
    with piping(own_redis.url) as pipe:
        outcomes = exchange(pipe, events)
        assert reasons(outcomes)[0] == (UNAVAILABLE, False)
        assert not any(counted for _, counted in reasons(outcomes))
        assert stream(own_redis.url) == []
        configure(own_redis.url, maxmemory=0)
        assert {type(outcome) for outcome in exchange(pipe, events)} == {Delivered}
    assert stream(own_redis.url) == [encode(event) for event in events]


def test_a_key_of_another_type_is_a_misconfiguration_of_all(own_redis: RedisServer) -> None:
    """G6."""
    with piping(own_redis.url) as pipe, contextlib.closing(client(own_redis.url)) as redis:
        redis.set("s", "no stream")
        assert reasons(exchange(pipe, [make_event() for _ in range(3)])) == [(MISCONFIGURED, False)] * 3


def test_an_entry_too_large_is_dead_and_what_comes_before_it_arrives(own_redis: RedisServer) -> None:
    """G7: the server hangs up over it. Were the events in front of it only given back, they would come again together
    with it, for ever, and their rooms with them.
    """
    configure(own_redis.url, proto_max_bulk_len=1024 * 1024)
    large = b'"%b"' % (b"x" * 2 * 1024 * 1024)
    events = [make_event(envelope=large) if number == 3 else make_event() for number in range(10)]
    with piping(own_redis.url) as pipe:
        outcomes = exchange(pipe, events)
    assert [type(outcome) for outcome in outcomes] == [Delivered] * 3 + [Dead] + [Retry] * 6
    assert isinstance(outcomes[3], Dead)
    assert outcomes[3].reason == INVALID
    assert reasons(outcomes[4:]) == [(RESET, False)] * 6
    assert stream(own_redis.url) == [encode(event) for event in events[:3]]


def test_a_frozen_server_blames_the_first_event_alone(own_redis: RedisServer) -> None:
    """G7: what it does when it goes on is all of the batch, or nothing."""
    events = [make_event() for _ in range(10)]
    with piping(own_redis.url) as pipe:
        assert isinstance(exchange(pipe, [make_event()])[0], Delivered)
        os.kill(own_redis.pid, signal.SIGSTOP)
        outcomes = exchange(pipe, events)
        os.kill(own_redis.pid, signal.SIGCONT)
    assert reasons(outcomes) == [(TIMEOUT, True)] + [(RESET, False)] * 9
    assert stream(own_redis.url)[1:] in ([], [encode(event) for event in events])


@pytest.fixture
def courier(own_redis: RedisServer) -> Iterator[Courier]:
    """The publisher as an ordered lane has it."""
    made = open_redis_streams(RedisStreams(name="queue", url=own_redis.url, stream="s"), 2 * TIMEOUT_S, is_ordered=True)
    yield made
    made.close(time.monotonic() + 5)


def test_only_where_a_room_has_several_events_a_batch_is_a_transaction(
    own_redis: RedisServer, courier: Courier
) -> None:
    """In which none arrives behind one that did not; the others are spared its second answer."""

    def transactions(*rooms: str) -> int:
        before = executed()
        for room in rooms:
            assert courier.submit(make_event(room_id=room), time.monotonic() + TIMEOUT_S)
        assert all(isinstance(outcome, Delivered) for _, outcome in collect(courier, len(rooms)))
        return executed() - before

    def executed() -> int:
        with contextlib.closing(client(own_redis.url)) as redis:
            stats: Any = redis.info("commandstats")
            return int(stats.get("cmdstat_exec", {"calls": 0})["calls"])

    assert transactions("a", "b", "", "") == 0
    assert transactions("a", "b", "", "b") == 1


def test_a_server_that_is_killed_between_batches_lets_nothing_arrive_behind_a_failure(
    own_redis: RedisServer, courier: Courier
) -> None:
    """What of each room has arrived is the beginning of it, up to repeats, whenever the server dies."""
    rooms = [f"room-{number}" for number in range(5)]
    events = [make_event(room_id=room) for _ in range(60) for room in rooms]
    outcomes: dict[int, Outcome] = {}
    for start in range(0, len(events), 50):
        if start == 150:
            own_redis.kill()
        for event in events[start : start + 50]:
            assert courier.submit(event, time.monotonic() + TIMEOUT_S)
        outcomes |= {event.id: outcome for event, outcome in courier.collect()}
    outcomes |= {event.id: outcome for event, outcome in collect(courier, len(events) - len(outcomes))}
    own_redis.start()
    arrived = stream(own_redis.url)
    for room in rooms:
        own = [event for event in events if event.room_id == room]
        came = [place for place, event in enumerate(own) if encode(event) in arrived]
        assert came == list(range(len(came)))
        accepted = [place for place, event in enumerate(own) if isinstance(outcomes[event.id], Delivered)]
        assert accepted == list(range(len(accepted)))
        assert len(accepted) <= len(came)
    assert arrived == [encode(event) for event in events if encode(event) in arrived]


def test_behind_an_event_that_cannot_be_a_message_nothing_of_its_room_is_sent(
    own_redis: RedisServer, courier: Courier
) -> None:
    """The other rooms are."""
    events = [make_event(room_id=room) for room in ("a", "b", "a", "b", "a", "")]
    events[2] = make_event(room_id="a", headers="no JSON")
    for event in events:
        courier.submit(event, time.monotonic() + TIMEOUT_S)
    outcomes = dict(collect(courier, len(events)))
    kinds = [type(outcomes[event]) for event in events]
    assert kinds == [Delivered, Delivered, Dead, Delivered, Retry, Delivered]
    assert stream(own_redis.url) == [encode(events[place]) for place in (0, 1, 3, 5)]
