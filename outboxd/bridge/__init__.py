"""The role that carries events from a message queue on to Tencent IM."""

from outboxd.bridge.api import Subscription
from outboxd.config.schema import Bridge
from outboxd.errors import PublisherError

INVISIBLE_S = 30.0
"""How long a message stays ours without a word: longer than anything that is done with it takes."""

# Each implementation is imported when it is asked for: its client library belongs into the process that uses it.
# ruff: noqa: PLC0415


def open_subscription(bridge: Bridge, consumer: str) -> Subscription:
    """What the bridge reads, made in the process that uses it. consumer: its name within the group, one at a time.

    Raises PublisherError with the remedy where it cannot work as configured. The queue need not be there yet.
    """
    if bridge.source == "redis_streams":
        from outboxd.bridge.redis import RedisSubscription

        return RedisSubscription(bridge.url or "", bridge.stream, bridge.group, consumer, invisible_s=INVISIBLE_S)
    if bridge.source == "rocketmq" and bridge.server is not None:
        from outboxd.bridge.rocketmq import RocketMqSubscription

        return RocketMqSubscription(bridge.server, bridge.topic, bridge.group, INVISIBLE_S)
    raise PublisherError(f"bridge.source: there is no source {bridge.source!r}")
