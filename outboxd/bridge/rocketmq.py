"""A subscription to a RocketMQ topic; see api.py. Imported only in the process that uses it: it loads rocketmq."""

from collections.abc import Iterable

from outboxd.bridge.api import Delivery
from outboxd.clients.rocketmq_group import Group
from outboxd.config.schema import RocketMqServer


class RocketMqSubscription:
    """Calls end within the server's send_timeout, but for what `receive` waits. Dead letters: the topic %DLQ%group.

    The server counts attempts itself, and buries by itself what exceeds the group's retryMaxTimes (16).
    """

    def __init__(self, server: RocketMqServer, topic: str, group: str, invisible_s: float) -> None:
        self._group = Group(server, topic, group, invisible_s)
        self.invisible_s = self._group.invisible_s

    def receive(self, limit: int, wait_s: float) -> list[Delivery]:
        """At most `limit` messages; waits up to about wait_s for the first."""
        messages = self._group.receive(limit, wait_s)
        return [Delivery(bytes(message.body), message.delivery_attempt or 1, message) for message in messages]

    def done(self, deliveries: Iterable[Delivery]) -> None:
        """These do not come again."""
        self._group.acknowledge([delivery.handle for delivery in deliveries])

    def hold(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """These stay ours for another invisible_s."""
        held = list(deliveries)
        for delivery in held:
            self._group.hide(delivery.handle, self.invisible_s)
        return held

    def give_back(self, delivery: Delivery, after_s: float) -> None:
        """It comes again after about after_s: the server looks once in a while, so some seconds later."""
        self._group.hide(delivery.handle, after_s)

    def release(self, deliveries: Iterable[Delivery], after_s: float) -> None:
        """They come again after about after_s, with one attempt more: the server counts how often it hands them out."""
        for delivery in deliveries:
            self._group.hide(delivery.handle, after_s)

    def bury(self, delivery: Delivery, reason: str) -> None:
        """It goes to the group's dead letters. RocketMQ has no place for the reason: whoever buries logs it."""
        self._group.bury(delivery.handle)

    def close(self) -> None:
        """Leave the group."""
        self._group.close()
