"""The publisher to Redis Streams: what the server says, and what that means for the event."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from outboxd.config.schema import RedisStreams
from outboxd.errors import PublisherError
from outboxd.event import (
    CONNECT,
    DNS,
    MISCONFIGURED,
    RESET,
    TIMEOUT,
    UNAVAILABLE,
    Dead,
    Delivered,
    Outcome,
    Retry,
)
from outboxd.message import decode
from outboxd.publishers import check, open_publisher
from outboxd.publishers.api import Publisher
from tests.services.publishing import make_event, publish, publish_all
from tests.services.redis_server import RedisServer, client, private_redis
from tests.services.wait import wait_for

TIMEOUT_S = 1.0


@contextlib.contextmanager
def publishing(url: str, **keys: object) -> Iterator[Publisher]:
    """A publisher to the stream `s`."""
    settings = RedisStreams(name="bus", url=url, stream="s", **keys)  # type: ignore[arg-type]
    publisher = open_publisher(settings, "room_outbox", TIMEOUT_S)
    yield publisher
    publisher.close(time.monotonic() + 2)


def blamed(outcome: Outcome) -> tuple[str, bool]:
    """Why it failed, and whether the event is blamed for it."""
    assert isinstance(outcome, Retry), outcome
    return outcome.reason, outcome.counted


@contextlib.contextmanager
def asking(server: RedisServer) -> Iterator[Redis]:
    """An ordinary client."""
    with contextlib.closing(client(server.url)) as redis:
        yield redis


def entries(redis: Redis) -> list[str]:
    """The event ids in the stream."""
    found: Any = redis.xrange("s")
    return [decode(fields[b"m"]).event_id for _, fields in found]


def test_the_stream_is_cut_to_about_its_length(own_redis: RedisServer) -> None:
    """G9: Redis holds it in memory. It is cut by whole nodes (100 entries), never below the length."""
    with publishing(own_redis.url, max_length=500) as publisher:
        publish_all(publisher, [make_event() for _ in range(3000)])
    with asking(own_redis) as redis:
        assert 500 <= redis.xlen("s") <= 700


def test_with_max_length_0_the_stream_is_never_cut(own_redis: RedisServer) -> None:
    with publishing(own_redis.url, max_length=0) as publisher:
        publish_all(publisher, [make_event() for _ in range(3000)])
    with asking(own_redis) as redis:
        assert redis.xlen("s") == 3000


def read_only(redis: Redis) -> None:
    redis.replicaof("127.0.0.1", 1)


def out_of_memory(redis: Redis) -> None:
    redis.set("large", b"x" * 3_000_000)
    redis.config_set("maxmemory", "2mb")


def wants_replicas(redis: Redis) -> None:
    redis.config_set("min-replicas-to-write", 1)


def wrong_type(redis: Redis) -> None:
    redis.set("s", "text")


def no_right(redis: Redis) -> None:
    redis.execute_command("ACL", "SETUSER", "default", "-xadd")


def hurt_by_password(redis: Redis) -> None:
    redis.config_set("requirepass", "new")
    redis.client_kill_filter(_type="normal", skipme=False)


@pytest.mark.parametrize(
    ("spoil", "means"),
    [
        (read_only, (UNAVAILABLE, False)),
        (out_of_memory, (UNAVAILABLE, False)),
        (wants_replicas, (UNAVAILABLE, False)),
        (wrong_type, (MISCONFIGURED, False)),
        (no_right, (MISCONFIGURED, False)),
        (hurt_by_password, (MISCONFIGURED, False)),
    ],
)
def test_what_the_server_refuses_is_not_blamed_on_the_event(
    own_redis: RedisServer, spoil: Callable[[Redis], None], means: tuple[str, bool]
) -> None:
    """G6: none of it is about the event, and time or a person mends it."""
    with publishing(own_redis.url) as publisher:
        assert isinstance(publish(publisher, make_event()), Delivered)
        with asking(own_redis) as redis, contextlib.suppress(ConnectionError):
            if spoil is wrong_type:
                redis.delete("s")
            with contextlib.suppress(Exception):  # the connection that does it may be the first to go
                spoil(redis)
        outcome = publish(publisher, make_event())
        if blamed(outcome)[0] == RESET:  # cut off by the spoiling itself
            outcome = publish(publisher, make_event())
        assert blamed(outcome) == means


def test_a_server_that_is_away_is_reached_again_when_it_is_back(own_redis: RedisServer) -> None:
    """G6: what never reached it is blamed on nobody; no restart of the relay is needed."""
    with publishing(own_redis.url) as publisher:
        assert isinstance(publish(publisher, make_event()), Delivered)
        own_redis.kill()
        refused = (CONNECT, False)
        wait_for(lambda: blamed(publish(publisher, make_event())) == refused, 10, "the connection to be refused")
        own_redis.start()
        assert isinstance(publish(publisher, make_event()), Delivered)


def test_a_server_that_hangs_ends_the_publish_in_time_and_is_used_again_later(own_redis: RedisServer) -> None:
    """G4: it may have got the events, so they are blamed for it."""
    with publishing(own_redis.url) as publisher:
        assert isinstance(publish(publisher, make_event()), Delivered)
        os.kill(own_redis.pid, signal.SIGSTOP)
        since_s = time.monotonic()
        assert blamed(publish(publisher, make_event(), TIMEOUT_S)) == (TIMEOUT, True)
        assert time.monotonic() - since_s < TIMEOUT_S + 0.5
        os.kill(own_redis.pid, signal.SIGCONT)
        wait_for(lambda: isinstance(publish(publisher, make_event()), Delivered), 10, "the server to be used again")


def test_a_password_that_is_refused_is_a_misconfiguration() -> None:
    with private_redis("--requirepass", "hush") as server, publishing(server.url) as publisher:
        assert blamed(publish(publisher, make_event())) == (MISCONFIGURED, False)
    with private_redis("--requirepass", "hush") as server:
        url = server.url.replace("redis://", "redis://:hush@")
        with publishing(url) as publisher:
            assert isinstance(publish(publisher, make_event()), Delivered)


def test_a_name_that_does_not_resolve_is_blamed_on_nobody() -> None:
    with publishing("redis://no-such-host.invalid:6379/0") as publisher:
        outcome = publish(publisher, make_event(), 5)
    assert blamed(outcome) in {(CONNECT, False), (DNS, False)}


def test_an_event_that_is_no_message_ends_alone(own_redis: RedisServer) -> None:
    """G7: the others of its batch go through."""
    events = [make_event(headers="[1]" if number == 3 else None) for number in range(10)]
    with publishing(own_redis.url) as publisher:
        outcomes = {event.id: outcome for event, outcome in publish_all(publisher, events)}
    assert isinstance(outcomes.pop(events[3].id), Dead)
    assert {type(outcome) for outcome in outcomes.values()} == {Delivered}
    with asking(own_redis) as redis:
        assert len(entries(redis)) == 9


def test_a_large_event_that_a_stranger_may_not_send_is_no_dead_letter() -> None:
    """G6: before a login the server takes 16 KB, in the same words. A password that is missing is nobody's fault."""
    with private_redis("--requirepass", "hush") as server, publishing(f"{server.url}?protocol=2") as publisher:
        outcome = publish(publisher, make_event(envelope=b'"%b"' % (b"x" * 100_000)))
    assert blamed(outcome) == (MISCONFIGURED, False)


def test_check_says_what_it_found(own_redis: RedisServer) -> None:
    settings = RedisStreams(name="bus", url=own_redis.url, stream="s")
    assert check(settings, 1.0) == "reachable, s will be made with the first event"
    with asking(own_redis) as redis:
        redis.xadd("s", {"m": b"x"})
        assert check(settings, 1.0) == "reachable, s has 1 entries"
        redis.delete("s")
        redis.set("s", "text")
    with pytest.raises(PublisherError, match="s is a string, not a stream: name another key in stream"):
        check(settings, 1.0)
    own_redis.stop()
    with pytest.raises(PublisherError, match="refused"):
        check(settings, 1.0)


def test_a_client_in_a_process_that_was_forked_works_and_leaks_nothing(own_redis: RedisServer) -> None:
    """Each worker makes its own, after the fork."""
    for _ in range(30):
        pid = os.fork()
        if not pid:
            try:
                with publishing(own_redis.url) as publisher:
                    status = 0 if isinstance(publish(publisher, make_event(), 10), Delivered) else 1
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
    with asking(own_redis) as redis:
        wait_for(lambda: redis.info("clients")["connected_clients"] <= 2, 10, "all connections to end")
