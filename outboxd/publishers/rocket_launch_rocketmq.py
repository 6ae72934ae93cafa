"""Wake-ups of rockets as messages of a RocketMQ topic of type DELAY: keys = command_id.

The broker delivers at whole seconds, rounded up: a wake-up is never early, and up to a second late by that. Imported
only in the process that publishes: it loads rocketmq.
"""

from outboxd.clients.rocketmq_library import (
    MessageType,
    SendMessageRequest,
)
from outboxd.clients.rocketmq_server import try_topic
from outboxd.config.schema import RocketLaunch, RocketMqServer
from outboxd.errors import PublisherError
from outboxd.event import Event
from outboxd.publishers.rocketmq_sending import NO_KEY, SendingPublisher, encoded
from outboxd.wakeups import encode, wakeup_of

TAG = "rocket_launch"


def open_rocketmq_launch(settings: RocketLaunch, publish_timeout_s: float) -> SendingPublisher:
    """The publisher. Raises PublisherError."""
    return SendingPublisher(_server(settings), settings.topic, MessageType.DELAY, fill)


def try_rocketmq_launch(settings: RocketLaunch, timeout_s: float) -> str:
    """One line on server and topic. Raises PublisherError."""
    return try_topic(_server(settings), settings.topic, MessageType.DELAY, timeout_s)


def fill(event: Event, request: SendMessageRequest) -> None:
    """The event's wake-up as a message. Raises InvalidEvent."""
    wakeup = wakeup_of(event)
    message = request.messages[0]
    message.body = encode(wakeup)
    message.system_properties.keys.append(encoded(wakeup.command_id, NO_KEY))
    message.system_properties.tag = TAG
    message.system_properties.delivery_timestamp.FromMilliseconds(wakeup.launch_at_ms)


def _server(settings: RocketLaunch) -> RocketMqServer:
    if settings.server is None:
        raise PublisherError(f"publishers.{settings.name}: the carrier rocketmq needs the section rocketmq")
    return settings.server
