"""Wake-ups of rockets through a Redis sorted set: at their time, by whichever node serves, and lost by none."""

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from redis import Redis

from outboxd.config.schema import RocketLaunch
from outboxd.errors import PublisherError
from outboxd.event import INVALID, Dead, Delivered, Event
from outboxd.publishers import check, open_publisher
from outboxd.publishers.api import Publisher
from outboxd.wakeups import Wakeup, command_id
from outboxd.wakeups.redis import RedisWakeups
from tests.services.publishing import make_event, publish, publish_all
from tests.services.redis_server import RedisServer, client
from tests.services.wait import wait_for


def ignited(rocket: str, launch_at_ms: int, **columns: object) -> Event:
    """As the room service writes it."""
    body = f'{{"rocket_id": "{rocket}", "level": 3, "launch_at_ms": {launch_at_ms}}}'
    envelope = f'{{"event_id": "e", "event_type": "RoomRocketIgnited", "body": {body}}}'.encode()
    return make_event(
        **{"event_type": "RoomRocketIgnited", "room_id": "r1", "app_code": "hyapp", "envelope": envelope, **columns}
    )


@contextmanager
def launching(url: str, key: str = "wake") -> Iterator[Publisher]:
    """The publisher."""
    settings = RocketLaunch(name="rockets", carrier="redis", url=url, key=key)
    publisher = open_publisher(settings, "room_outbox", 2.0)
    yield publisher
    publisher.close(time.monotonic() + 2)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_rocket_is_woken_at_its_time_and_not_before(own_redis: RedisServer) -> None:
    at_ms = now_ms() + 1500
    with launching(own_redis.url) as publisher, RedisWakeups(own_redis.url, "wake") as wakeups:
        assert isinstance(publish(publisher, ignited("rk1", at_ms)), Delivered)
        assert wakeups.receive(0.3) == []
        (taken,) = wakeups.receive(10)
        assert at_ms <= now_ms() < at_ms + 1000
        assert taken.wakeup == Wakeup("hyapp", "r1", "rk1", 3, at_ms, "rocket:hyapp:r1:rk1:3")
        wakeups.done(taken)
        assert wakeups.receive(0.3) == []


def test_a_rocket_that_is_ignited_twice_wakes_once_and_a_late_repeat_has_the_same_command(
    own_redis: RedisServer,
) -> None:
    """A publish whose answer was lost is repeated; the consumer knows a repeat by its command_id."""
    at_ms = now_ms() - 5
    with launching(own_redis.url) as publisher, RedisWakeups(own_redis.url, "wake") as wakeups:
        for _ in range(2):
            publish(publisher, ignited("rk1", at_ms))
        (taken,) = wakeups.receive(2)
        publish(publisher, ignited("rk1", at_ms))  # while it is in hand: it stays hidden
        assert wakeups.receive(0.3) == []
        wakeups.done(taken)
        publish(publisher, ignited("rk1", at_ms))
        (again,) = wakeups.receive(2)
    assert again.wakeup.command_id == taken.wakeup.command_id == command_id("hyapp", "r1", "rk1", 3)


def test_what_a_consumer_did_not_finish_comes_again(own_redis: RedisServer) -> None:
    with launching(own_redis.url) as publisher:
        publish(publisher, ignited("rk1", now_ms()))
    with RedisWakeups(own_redis.url, "wake", lease_s=0.5) as first, RedisWakeups(own_redis.url, "wake") as second:
        (taken,) = first.receive(2)
        assert second.receive(0.1) == []
        (again,) = second.receive(5)
    assert again.wakeup == taken.wakeup


def serve(url: str, served: str) -> None:
    """A consumer's process: launches, which takes a while, and says so."""
    redis = client(url)
    with RedisWakeups(url, "wake", lease_s=1.0, limit=5) as wakeups:
        while True:
            for taken in wakeups.receive(0.5):
                time.sleep(0.005)
                redis.rpush(served, taken.wakeup.command_id)
                wakeups.done(taken)


def has_served(redis: Redis, count: int) -> bool:
    """Have so many wake-ups been served?"""
    return int(redis.llen("served")) >= count


def test_none_is_lost_when_nodes_that_serve_the_set_die(own_redis: RedisServer) -> None:
    """Three nodes serve it; they are killed again and again."""
    events = [ignited(f"rk{number}", now_ms() + number) for number in range(300)]
    with launching(own_redis.url) as publisher:
        assert {type(outcome) for _, outcome in publish_all(publisher, events)} == {Delivered}
    redis = client(own_redis.url)
    spawning = multiprocessing.get_context("spawn")
    nodes = [spawning.Process(target=serve, args=(own_redis.url, "served"), daemon=True) for _ in range(3)]
    for node in nodes:
        node.start()
    for count in (30, 80, 150):
        wait_for(partial(has_served, redis, count), 30, f"{count} to be served")
        victim = nodes.pop(0)
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        victim.join(10)
        nodes.append(spawning.Process(target=serve, args=(own_redis.url, "served"), daemon=True))
        nodes[-1].start()
    wait_for(lambda: redis.zcard("wake") == 0, 30, "everything to be served")
    for node in nodes:
        node.kill()
        node.join(10)
    served = Counter(redis.lrange("served", 0, -1))
    assert len(served) == 300
    assert sum(served.values()) <= 300 + 3 * 5  # at most what a node had in hand when it died comes twice


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b'{"rocket_id": "r"}',
        b'{"rocket_id": "", "level": 1, "launch_at_ms": 1}',
        b'{"rocket_id": "r", "level": 1, "launch_at_ms": 0}',
        b'{"rocket_id": "r", "level": {}, "launch_at_ms": 1}',
    ],
)
def test_a_rocket_without_what_its_wake_up_needs_is_a_dead_letter(own_redis: RedisServer, body: bytes) -> None:
    """G7: and it says what is missing."""
    envelope = b'{"event_id": "e", "event_type": "RoomRocketIgnited", "body": %b}' % body
    with launching(own_redis.url) as publisher:
        outcome = publish(publisher, make_event(event_type="RoomRocketIgnited", envelope=envelope))
    assert isinstance(outcome, Dead)
    assert outcome.reason == INVALID
    assert "body" in outcome.error


def test_something_strange_in_the_set_is_put_aside(own_redis: RedisServer) -> None:
    """It would come due for ever, and hold up the others."""
    redis = client(own_redis.url)
    redis.zadd("wake", {b"\xff no wake-up": 1.0})
    with launching(own_redis.url) as publisher, RedisWakeups(own_redis.url, "wake") as wakeups:
        publish(publisher, ignited("rk1", now_ms()))
        (taken,) = wakeups.receive(2)
        assert taken.wakeup.rocket_id == "rk1"
    assert redis.smembers("wake:unreadable") == {b"\xff no wake-up"}


def test_check_says_what_it_found(own_redis: RedisServer) -> None:
    settings = RocketLaunch(name="rockets", carrier="redis", url=own_redis.url, key="wake")
    assert check(settings, 1.0) == "reachable, 0 wake-ups wait in wake"
    client(own_redis.url).set("wake", "text")
    with pytest.raises(PublisherError, match="wake is a string, not a sorted set: name another key in key"):
        check(settings, 1.0)
