"""A RocketMQ topic of its own, with groups, for one test of a consumer."""

import secrets
from collections.abc import Sequence
from typing import Any

from rocketmq import ClientConfiguration, Credentials, Message, Producer

from outboxd.bridge.rocketmq import RocketMqSubscription
from outboxd.config.schema import RocketMqServer
from tests.services.rocketmq import RocketMq, make_topics
from tests.services.rocketmq_admin import has_route, make_group
from tests.services.rocketmq_reading import read

QUEUES_OF_A_TOPIC = 2


class RocketMqQueue:
    """`topic` has two queues; a group is made when it is first named."""

    def __init__(self, server: RocketMq, message_type: str = "NORMAL") -> None:
        self.topic = f"test_{secrets.token_hex(6)}"
        self._server = server
        make_topics(server, [self.topic], message_type, QUEUES_OF_A_TOPIC)

    def group(self, name: str) -> str:
        """Its full name."""
        full = f"{self.topic}_{name}"
        make_group(self._server.broker, full)
        return full

    def subscribe(self, group: str, invisible_s: float, endpoints: str | None = None) -> RocketMqSubscription:
        """A place in a group."""
        server = RocketMqServer(endpoints=endpoints or self._server.endpoints)
        return RocketMqSubscription(server, self.topic, self.group(group), invisible_s)

    def put(self, bodies: Sequence[bytes], delivery_timestamp: int | None = None) -> None:
        """Messages to the topic. delivery_timestamp: seconds; one of type DELAY needs it."""
        producer = Producer(ClientConfiguration(self._server.endpoints, Credentials()), topics=[self.topic])
        producer.startup()
        for body in bodies:
            message = Message()
            message.topic, message.body, message.delivery_timestamp = self.topic, body, delivery_timestamp
            producer.send(message)
        producer.shutdown()

    def read(self, group: str, count: int) -> list[Any]:
        """So many messages of the topic, or those that came in time."""
        return read(self._server.endpoints, self.topic, self.group(group), count)

    def dead_letters(self, group: str) -> list[bytes]:
        """The bodies of those of the group; none are read twice."""
        topic = f"%DLQ%{self.topic}_{group}"
        if not has_route(self._server.endpoints, topic):
            return []
        return [message.body for message in read(self._server.endpoints, topic, self.group("undertaker"), 1, 5)]
