"""A broker that is killed: the wake-ups that it has taken come all the same, to a reader that was there before."""

import time
from collections.abc import Iterator

import pytest

from outboxd.config.schema import RocketLaunch, RocketMqServer
from outboxd.errors import SubscriptionError
from outboxd.event import Delivered
from outboxd.publishers import open_publisher
from outboxd.publishers.api import Publisher
from outboxd.wakeups.rocketmq import RocketMqWakeups
from tests.services.publishing import publish
from tests.services.rocketmq import RocketMq
from tests.services.rocketmq_queue import RocketMqQueue
from tests.services.rockets import HIDDEN_S, ignited, now_ms, take


@pytest.fixture
def queue(rocketmq: RocketMq) -> RocketMqQueue:
    """A topic for delayed messages."""
    return RocketMqQueue(rocketmq, "DELAY")


@pytest.fixture
def publisher(rocketmq: RocketMq, queue: RocketMqQueue) -> Iterator[Publisher]:
    """Closed at the end."""
    launch = RocketLaunch(name="rocket", server=RocketMqServer(endpoints=rocketmq.endpoints), topic=queue.topic)
    made = open_publisher(launch, "room_outbox", 3.0)
    yield made
    made.close(time.monotonic() + 2)


@pytest.fixture
def wakeups(rocketmq: RocketMq, queue: RocketMqQueue) -> Iterator[RocketMqWakeups]:
    """What the room service reads from."""
    with RocketMqWakeups(rocketmq.endpoints, topic=queue.topic, group=queue.group("rooms"), hidden_s=HIDDEN_S) as made:
        yield made


def test_a_wakeup_outlives_the_broker_and_its_reader_goes_on(
    rocketmq: RocketMq, publisher: Publisher, wakeups: RocketMqWakeups
) -> None:
    """G1: also the reader's place in the group, of which a server that was away knows nothing."""
    assert isinstance(publish(publisher, ignited("before", now_ms())), Delivered)
    ((before, _),) = take(wakeups, 1)
    wakeups.done(before)
    launch_at_ms = now_ms() + 4000
    assert isinstance(publish(publisher, ignited("rocket", launch_at_ms)), Delivered)
    rocketmq.kill()
    with pytest.raises(SubscriptionError):
        wakeups.receive(30)
    rocketmq.start()
    came: dict[str, int] = {}
    while "rocket" not in came:  # what was done just before may come again: the broker keeps that in memory for a while
        for one, came_at_ms in take(wakeups, 1):
            came[one.wakeup.rocket_id] = came_at_ms
            wakeups.done(one)
    assert came["rocket"] >= launch_at_ms
