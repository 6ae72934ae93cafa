"""What publishers to RocketMQ share: events become messages of one topic, outcomes come back through a mailbox."""

import re
from collections.abc import Callable
from functools import partial
from urllib.parse import quote

from outboxd.clients.rocketmq_library import (
    Encoding,
    MessageIdCodec,
    Misc,
    SendMessageRequest,
)
from outboxd.clients.rocketmq_sender import Sender
from outboxd.config.schema import RocketMqServer
from outboxd.envelope import NoProtobuf
from outboxd.event import CONNECT, INVALID, MISCONFIGURED, Dead, Event, Outcome, Retry, blameless
from outboxd.message import InvalidEvent
from outboxd.publishers.api import Waits
from outboxd.publishers.mailbox import GIVEN_UP, Mailbox

CAPACITY = 128
NOT_CONNECTED = blameless(CONNECT, "not in time")

# What the server refuses: Java's ISO control characters, and what parts the tags of a subscription.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
NO_TAG = re.compile(r"[\x00-\x1f\x7f-\x9f|]")
NO_KEY = re.compile(r"[\x00-\x20\x7f-\x9f]")  # keys are stored with spaces between them

Make = Callable[[Event, SendMessageRequest], None]
"""Fills a request that has a message id, a topic and a type. Raises InvalidEvent and NoProtobuf."""


class SendingPublisher:
    """A Publisher; see api.py. make: turns an event into a message."""

    def __init__(self, server: RocketMqServer, topic: str, message_type: int, make: Make) -> None:
        self._sender = Sender(server, topic, message_type)
        self._mailbox = Mailbox()
        self._namespace = server.namespace or ""
        self._topic = topic
        self._type = message_type
        self._make = make

    @property
    def capacity(self) -> int:
        """So many are with the client at once."""
        return CAPACITY

    @property
    def worn_out(self) -> bool:
        """Does the client not come back? Then the process has to go."""
        return self._sender.worn_out

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Hand it to the client."""
        if len(self._mailbox) >= CAPACITY:
            return False
        call = self._mailbox.add(event, deadline_s)
        told = partial(self._mailbox.drop, call)
        try:
            self._sender.send(self._request_for(event), deadline_s, told)
        except InvalidEvent as error:
            told(Dead(INVALID, str(error)))
        except NoProtobuf as error:
            told(Retry(MISCONFIGURED, str(error), counted=False))
        return True

    def collect(self) -> list[tuple[Event, Outcome]]:
        """What the client has told, and what is given up: for want of a connection, or of an answer."""
        outcomes = self._mailbox.collect()
        if any(outcome is GIVEN_UP for _, outcome in outcomes) and not self._sender.is_connected:
            return [(event, NOT_CONNECTED if outcome is GIVEN_UP else outcome) for event, outcome in outcomes]
        return outcomes

    def wait_on(self) -> Waits:
        """The client's word, and the first deadline."""
        return self._mailbox.wait_on()

    def close(self, deadline_s: float) -> None:
        """The client says goodbye to the server, if that is there."""
        self._mailbox.close()
        self._sender.close(deadline_s)

    def _request_for(self, event: Event) -> SendMessageRequest:
        request = SendMessageRequest()
        message = request.messages.add()
        message.topic.name = self._topic
        message.topic.resource_namespace = self._namespace
        properties = message.system_properties
        properties.message_id = MessageIdCodec().next_message_id()
        properties.message_type = self._type
        properties.body_encoding = Encoding.IDENTITY
        properties.born_timestamp.GetCurrentTime()
        properties.born_host = Misc.get_local_ip()
        self._make(event, request)
        if len(message.body) > self._sender.max_body_bytes:
            limit_bytes = self._sender.max_body_bytes
            raise InvalidEvent(f"the message has {len(message.body)} bytes, RocketMQ takes {limit_bytes} at the most")
        return request


def encoded(text: str, forbidden: re.Pattern[str]) -> str:
    """The text with what is forbidden percent-encoded; empty if nothing is to be seen of it."""
    if not text.strip():
        return ""
    return forbidden.sub(lambda found: quote(found.group(), safe=""), text)
