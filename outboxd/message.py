"""`room_outbox_event`: the one message that every queue carries, made by the relay and read by consumers.

    from outboxd.message import decode

    message = decode(body)              # bytes, as they came from the queue
    message.event_id, message.envelope  # what to remember, what to do

docs/message-format.md shows it. Consumers get an event at least once: remember `event_id` (outboxd.inbox does).
"""

import base64
import binascii
import functools
from typing import Any

import msgspec

from outboxd.event import Event

VERSION = 1
NO_CONTENT_TYPE = "application/octet-stream"
"""What an event without a content type is said to be."""


class InvalidEvent(Exception):
    """The event cannot be turned into a message. Its text says why."""


class InvalidMessage(ValueError):
    """The bytes are no `room_outbox_event` that this version can read. Its text says why."""


class Message(msgspec.Struct, frozen=True):
    """An event as a consumer gets it.

    lane, outbox_id: the row it came from. event_id is unique within lane and app_code. envelope: the payload, byte
    for byte as the producer wrote it, of content_type. headers: as the producer wrote them. created_at_ms: UTC epoch
    milliseconds, 0 where unknown.
    """

    lane: str
    outbox_id: int
    event_id: str
    event_type: str
    room_id: str
    app_code: str
    created_at_ms: int
    content_type: str
    headers: dict[str, Any]
    envelope: bytes


class _Version(msgspec.Struct):
    v: int


class _Wire(msgspec.Struct):
    v: int
    lane: str
    outbox_id: int
    event_id: str
    event_type: str
    room_id: str = ""
    app_code: str = ""
    created_at_ms: int = 0
    content_type: str = NO_CONTENT_TYPE
    headers: dict[str, Any] = {}
    envelope: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    envelope_base64: str | msgspec.UnsetType = msgspec.UNSET


_version = msgspec.json.Decoder(_Version)
_wire = msgspec.json.Decoder(_Wire)


def encode(event: Event) -> bytes:
    """The message of an event. A JSON envelope is spliced in unchanged; what is not valid JSON goes as base64.

    Raises InvalidEvent.
    """
    content_type = event.content_type or NO_CONTENT_TYPE
    head = {
        "v": VERSION,
        "lane": event.lane,
        "outbox_id": event.id,
        "event_id": event.event_id,
        "event_type": event.event_type,
        "room_id": event.room_id,
        "app_code": event.app_code,
        "created_at_ms": event.created_at_ms,
        "content_type": content_type,
        "headers": headers_of(event),
    }
    try:
        start = msgspec.json.encode(head)[:-1]
    except UnicodeEncodeError as error:
        raise InvalidEvent(f"a column holds text that is no valid unicode: {error.reason}") from error
    if is_json(content_type) and is_valid_json(event.envelope):
        return b'%b,"envelope":%b}' % (start, event.envelope)
    return b'%b,"envelope_base64":"%b"}' % (start, base64.b64encode(event.envelope))


def decode(data: bytes | str) -> Message:
    """The event that a message carries. Fields that a later version adds are ignored.

    Raises InvalidMessage for what is no message, or one of another version.
    """
    try:
        wire = _wire.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _check_version(data)
        raise InvalidMessage(f"no room_outbox_event: {error}") from error
    _must_be_ours(wire.v)
    if isinstance(wire.envelope, msgspec.Raw):
        if wire.envelope_base64 is not msgspec.UNSET:
            raise InvalidMessage("both envelope and envelope_base64: one of them is expected")
        envelope = bytes(wire.envelope)
    elif isinstance(wire.envelope_base64, str):
        try:
            envelope = base64.b64decode(wire.envelope_base64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidMessage(f"envelope_base64: {error}") from error
    else:
        raise InvalidMessage("neither envelope nor envelope_base64: one of them is expected")
    return Message(
        lane=wire.lane,
        outbox_id=wire.outbox_id,
        event_id=wire.event_id,
        event_type=wire.event_type,
        room_id=wire.room_id,
        app_code=wire.app_code,
        created_at_ms=wire.created_at_ms,
        content_type=wire.content_type,
        headers=wire.headers,
        envelope=envelope,
    )


def _check_version(data: bytes | str) -> None:
    """Another version has other fields: that they are missing is not what is to be told of it."""
    try:
        version = _version.decode(data).v
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    _must_be_ours(version)


def _must_be_ours(version: int) -> None:
    if version != VERSION:
        raise InvalidMessage(f"a room_outbox_event of version {version}: this outboxd reads version {VERSION}")


def headers_of(event: Event) -> dict[str, Any]:
    """The event's headers; JSON null means none. Raises InvalidEvent where they are no JSON object."""
    if event.headers is None:
        return {}
    try:
        return msgspec.json.decode(event.headers, type=dict[str, Any] | None) or {}
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidEvent(f"headers are no JSON object: {error}") from error


@functools.lru_cache(maxsize=256)
def is_json(content_type: str) -> bool:
    """Does the content type promise JSON (application/json, text/json, application/anything+json)?"""
    subtype = content_type.partition(";")[0].strip().lower().rpartition("/")[2]
    return subtype == "json" or subtype.endswith("+json")


def is_valid_json(data: bytes) -> bool:
    """Would every JSON parser read these bytes?"""
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
