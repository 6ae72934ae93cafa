"""An ordinary consumer: the client's own, as a user of the queue would have it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer
from rocketmq.v5.exception import InternalErrorException

from tests.services.rocketmq_admin import has_route
from tests.services.wait import wait_for

AT_ONCE = 32
HIDDEN_S = 600
"""Longer than any test: what was read does not return, though nobody acknowledges it, which would take longer still."""


@contextmanager
def consumer(endpoints: str, topic: str, group: str) -> Iterator[SimpleConsumer]:
    """In the group, for as long as the block lasts."""
    made = SimpleConsumer(
        ClientConfiguration(endpoints, Credentials()), group, {topic: FilterExpression()}, await_duration=5
    )
    made.startup()
    yield made
    made.shutdown()


def read(endpoints: str, topic: str, group: str, count: int, timeout_s: float = 30) -> list[Any]:
    """So many different messages of a topic of one queue, and those that came twice; or what came in time."""
    messages: list[Any] = []
    known: set[Any] = set()
    # A broker that has just come back takes messages before the name server tells where it is.
    wait_for(partial(has_route, endpoints, topic), 60, f"a route to the topic {topic}")
    until_s = time.monotonic() + timeout_s
    with consumer(endpoints, topic, group) as reading:
        while len(known) < count and time.monotonic() < until_s:
            try:
                received = reading.receive(AT_ONCE, HIDDEN_S)
                messages += received
                known |= {frozenset(message.keys) or message.message_id for message in received}
            except InternalErrorException:  # the server has not heard of the consumer yet
                time.sleep(0.05)
    return messages
