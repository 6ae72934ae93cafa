"""Sends events to a RocketMQ topic of type NORMAL: keys = event_id, tag = event_type, CloudEvents' attributes as
properties, and the message that every queue carries as the body.

Imported only in the process that publishes: it loads rocketmq.
"""

from typing import Any

from outboxd.clients.rocketmq_library import (
    MessageType,
    SendMessageRequest,
)
from outboxd.clients.rocketmq_server import try_topic
from outboxd.config.schema import RocketMq
from outboxd.event import Event
from outboxd.message import encode, headers_of
from outboxd.publishers.rocketmq_sending import CONTROL, NO_KEY, NO_TAG, SendingPublisher, encoded

TRACE_HEADERS = ("traceparent", "tracestate")


def open_rocketmq(settings: RocketMq, publish_timeout_s: float) -> SendingPublisher:
    """The publisher. Raises PublisherError."""
    return SendingPublisher(settings.server, settings.topic, MessageType.NORMAL, fill)


def try_rocketmq(settings: RocketMq, timeout_s: float) -> str:
    """One line on server and topic. Raises PublisherError."""
    return try_topic(settings.server, settings.topic, MessageType.NORMAL, timeout_s)


def fill(event: Event, request: SendMessageRequest) -> None:
    """The event as a message. Raises InvalidEvent."""
    message = request.messages[0]
    message.body = encode(event)
    if event_type := encoded(event.event_type, NO_TAG):
        message.system_properties.tag = event_type
    if event_id := encoded(event.event_id, NO_KEY):
        message.system_properties.keys.append(event_id)
    properties = {
        "id": event.event_id,
        "source": f"/outboxd/{event.lane}",
        "type": event.event_type,
        "subject": event.room_id,
        "partitionkey": event.room_id,
        "appcode": event.app_code,
    }
    headers: dict[str, Any] = headers_of(event) if event.headers else {}
    for name in TRACE_HEADERS:
        if isinstance(value := headers.get(name), str):
            properties[name] = value
    for name, text in properties.items():
        if value := encoded(text, CONTROL):
            message.user_properties[name] = value
