"""Rockets over RocketMQ: their events, and the wake-ups that come of them."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from outboxd.config.schema import RocketLaunch, RocketMqServer
from outboxd.errors import SubscriptionError
from outboxd.event import Event
from outboxd.publishers import open_publisher
from outboxd.publishers.api import Publisher
from outboxd.wakeups import Taken
from outboxd.wakeups.rocketmq import RocketMqWakeups
from tests.services.publishing import make_event
from tests.services.rocketmq import RocketMq
from tests.services.rocketmq_queue import RocketMqQueue

HIDDEN_S = 15
PATIENCE_S = 4 * HIDDEN_S
"""What the broker handed out in an answer that was lost comes again when it has been hidden for so long."""


def launch_of(rocketmq: RocketMq, queue: RocketMqQueue) -> RocketLaunch:
    """The publisher's settings."""
    return RocketLaunch(name="rocket", server=RocketMqServer(endpoints=rocketmq.endpoints), topic=queue.topic)


@contextmanager
def publishing(launch: RocketLaunch) -> Iterator[Publisher]:
    """The publisher, closed at the end."""
    made = open_publisher(launch, "room_outbox", 3.0)
    yield made
    made.close(time.monotonic() + 2)


def reading(rocketmq: RocketMq, queue: RocketMqQueue) -> RocketMqWakeups:
    """What the room service reads from, to be used in a `with`."""
    return RocketMqWakeups(rocketmq.endpoints, topic=queue.topic, group=queue.group("rooms"), hidden_s=HIDDEN_S)


def ignited(rocket_id: str, launch_at_ms: int) -> Event:
    """The event of a rocket."""
    body = {"rocket_id": rocket_id, "level": 3, "launch_at_ms": launch_at_ms}
    envelope = {"event_id": "e", "event_type": "RoomRocketIgnited", "body": body}
    return make_event(event_type="RoomRocketIgnited", envelope=json.dumps(envelope).encode())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def take(wakeups: RocketMqWakeups, count: int) -> list[tuple[Taken, int]]:
    """So many wake-ups, each with the time at which it came."""
    taken: list[tuple[Taken, int]] = []
    until_s, failure = time.monotonic() + PATIENCE_S, ""
    while len(taken) < count:
        assert time.monotonic() < until_s, f"{len(taken)} of {count} wake-ups after {PATIENCE_S} s; {failure}"
        try:
            taken += [(one, now_ms()) for one in wakeups.receive(0.5)]
        except SubscriptionError as error:
            failure = str(error)
            time.sleep(0.1)  # it is away, and may be for a while
    return taken
