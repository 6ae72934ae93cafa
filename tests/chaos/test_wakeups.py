"""A broker that is killed: the wake-ups that it has taken come all the same, to a reader that was there before."""

import asyncio

import pytest

from outboxd.errors import SubscriptionError
from outboxd.event import Delivered
from tests.services.publishing import publish
from tests.services.rocketmq import RocketMq
from tests.services.rocketmq_queue import RocketMqQueue
from tests.services.rockets import ignited, launch_of, now_ms, publishing, reading, take


def test_a_wakeup_outlives_the_broker_and_its_reader_goes_on(rocketmq: RocketMq) -> None:
    """G1: also the reader's place in the group, of which a server that was away knows nothing. The service that reads
    has used asyncio in the same thread, which has no event loop from then on."""
    asyncio.run(asyncio.sleep(0))
    queue = RocketMqQueue(rocketmq, "DELAY")
    with publishing(launch_of(rocketmq, queue)) as publisher, reading(rocketmq, queue) as wakeups:
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
        while "rocket" not in came:  # what was done just before may come again: the broker keeps that in memory
            for one, came_at_ms in take(wakeups, 1):
                came[one.wakeup.rocket_id] = came_at_ms
                wakeups.done(one)
        assert came["rocket"] >= launch_at_ms
