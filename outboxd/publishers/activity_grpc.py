"""Calls ActivityService.ConsumeRoomEvent: one channel, many calls in flight.

Imported only in the process that publishes: it loads grpc.
"""

import time
from typing import Any

from grpc import StatusCode

from outboxd.config.schema import ActivityGrpc
from outboxd.envelope import NoProtobuf, to_protobuf
from outboxd.event import DELIVERED, EXCEPTION, INVALID, MISCONFIGURED, Dead, Event, Outcome, Retry
from outboxd.message import InvalidEvent, headers_of
from outboxd.proto.messages import CONSUME_ROOM_EVENT, retry_delay_s
from outboxd.publishers.api import Waits
from outboxd.publishers.cloudevents import header_value
from outboxd.publishers.grpc_answer import has_no_connection, outcome_of
from outboxd.publishers.grpc_channel import open_channel
from outboxd.publishers.http_headers import printable
from outboxd.publishers.mailbox import Call, Mailbox
from outboxd.redact import clip, redact

CAPACITY = 128
MARGIN_S = 0.05
"""The client ends a call so long before the event's deadline: it knows why, which the deadline does not."""
WEDGED_S = 5.0
"""A call that the client has not ended so long after its deadline shows that it never will."""
FORWARDED = ("traceparent", "tracestate")
LONGEST_FORWARDED = 1024
"""Longer ones are left out: servers refuse a call with more than some kilobytes of metadata."""
DETAILS = "grpc-status-details-bin"


class ActivityGrpcPublisher:
    """A Publisher; see api.py."""

    def __init__(self, settings: ActivityGrpc, publish_timeout_s: float) -> None:
        self._channel = open_channel(settings, publish_timeout_s)
        # Bytes in and bytes out: what is sent may be the producer's own, and the answer says nothing.
        self._consume = self._channel.unary_unary(CONSUME_ROOM_EVENT)
        self._mailbox = Mailbox()
        self._at_once: list[tuple[Event, Outcome]] = []
        self._held: dict[Call, None] = {}  # in the client's hands, also those that are given up
        self._is_connected = False
        self._is_closed = False

    @property
    def capacity(self) -> int:
        """Calls at once."""
        return CAPACITY

    @property
    def worn_out(self) -> bool:
        """Does the client not end its calls any more?"""
        first = next(iter(tuple(self._held)), None)  # at once: the client's thread takes from it
        return first is not None and first.deadline_s + WEDGED_S < time.monotonic()

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Start the call."""
        # Those that are given up are in the client's hands still; those that it has ended wait for `collect`.
        if max(len(self._held), len(self._mailbox)) + len(self._at_once) >= CAPACITY or self._is_closed:
            return False
        try:
            request = to_protobuf(event)
            metadata = _metadata(event)
        except InvalidEvent as error:
            self._at_once.append((event, Dead(INVALID, clip(redact(str(error)), 300))))
            return True
        except NoProtobuf as error:
            self._at_once.append((event, Retry(MISCONFIGURED, str(error), counted=False)))
            return True
        call = self._mailbox.add(event, deadline_s)
        self._held[call] = None
        timeout_s = max(0.0, deadline_s - time.monotonic() - MARGIN_S)
        try:
            future = self._consume.future(request, timeout=timeout_s, metadata=metadata)
        except Exception as error:  # noqa: BLE001  whatever it raises, submit does not
            self._end(call, Retry(EXCEPTION, clip(redact(f"{type(error).__name__}: {error}"), 300)))
            return True
        future.add_done_callback(lambda ended: self._end(call, self._outcome_of(ended)))
        return True

    def collect(self) -> list[tuple[Event, Outcome]]:
        """Answers, and what is given up."""
        outcomes = self._mailbox.collect()
        if self._at_once:
            outcomes += self._at_once
            self._at_once = []
        return outcomes

    def wait_on(self) -> Waits:
        """The mailbox's bell."""
        if self._at_once:
            return Waits((), (), 0.0)
        return self._mailbox.wait_on()

    def close(self, deadline_s: float) -> None:
        """Cancel what is in flight. The client's own thread frees the connection."""
        self._is_closed = True
        self._mailbox.close()
        self._channel.close()

    def _end(self, call: Call, outcome: Outcome) -> None:
        self._mailbox.drop(call, outcome)
        self._held.pop(call, None)

    def _outcome_of(self, ended: Any) -> Outcome:
        """In the client's thread."""
        code = ended.code()
        if code is StatusCode.OK:
            self._is_connected = True
            return DELIVERED
        details = ended.details() or ""
        was_connected = self._is_connected
        if code is not StatusCode.DEADLINE_EXCEEDED:
            self._is_connected = not has_no_connection(code, details)
        return outcome_of(code, details, _retry_after_s(ended), was_connected)


def _retry_after_s(ended: Any) -> float | None:
    for key, value in ended.trailing_metadata() or ():
        if key == DETAILS and isinstance(value, bytes):
            return retry_delay_s(value)
    return None


def _metadata(event: Event) -> tuple[tuple[str, str], ...]:
    """Printable ASCII only, which is all that gRPC takes; event-id is percent-encoded like a CloudEvents header."""
    metadata = [("event-id", header_value(event.event_id)), ("lane", event.lane), ("outbox-id", str(event.id))]
    if event.headers is not None:
        for name, value in headers_of(event).items():
            key = name.lower()
            if key in FORWARDED and isinstance(value, str) and value and len(value) <= LONGEST_FORWARDED:
                metadata.append((key, printable(value)))
    return tuple(metadata)
