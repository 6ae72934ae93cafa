"""Doorbells as a test rings and hears them."""

import select
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from outboxd.producer import channel
from outboxd.relay.doorbell import Doorbell
from tests.services.daemon import LANE
from tests.services.redis_server import client
from tests.services.wait import wait_for

WAIT_S = 10.0


def listeners(url: str, lane: str = LANE) -> int:
    """How many are subscribed to a lane's doorbell."""
    with closing(client(url)) as redis:
        found: Any = redis.pubsub_numsub(channel(lane))
        return int(found[0][1])


def await_listeners(url: str, count: int, lane: str = LANE) -> None:
    """Until so many are."""
    wait_for(lambda: listeners(url, lane) == count, WAIT_S, f"{count} to listen to {channel(lane)}")


def ring_often(url: str, times: int, lane: str = LANE) -> None:
    """All at once."""
    with closing(client(url)) as redis:
        pipeline = redis.pipeline(transaction=False)
        for _ in range(times):
            pipeline.publish(channel(lane), "1")
        pipeline.execute()


def hears(bell: Doorbell, within_s: float = WAIT_S) -> bool:
    """Does it ring within that time?"""
    select.select((bell,), (), (), within_s)
    return bell.heard()


@contextmanager
def hearing(url: str, lane: str = LANE) -> Iterator[Any]:
    """A subscriber to the lane's doorbell."""
    with closing(client(url)) as redis, closing(redis.pubsub(ignore_subscribe_messages=True)) as subscription:
        subscription.subscribe(channel(lane))
        wait_for(lambda: redis.pubsub_numsub(channel(lane))[0][1] == 1, 5, "the subscription")
        yield subscription


def heard(subscription: Any, count: int) -> None:
    """So many rings have come, and no more."""
    for _ in range(count):
        wait_for(lambda: subscription.get_message(timeout=0.1), 5, f"{count} rings")
    assert subscription.get_message(timeout=0.05) is None
