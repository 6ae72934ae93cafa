"""Rockets over RocketMQ: their events, and the wake-ups that come of them."""

import json
import time

from outboxd.errors import SubscriptionError
from outboxd.event import Event
from outboxd.wakeups import Taken
from outboxd.wakeups.rocketmq import RocketMqWakeups
from tests.services.publishing import make_event

HIDDEN_S = 15
PATIENCE_S = 4 * HIDDEN_S
"""What the broker handed out in an answer that was lost comes again when it has been hidden for so long."""


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
            time.sleep(0.1)
    return taken
