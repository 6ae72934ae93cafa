"""The EventEnvelope that room services write: what Tencent IM, the activity service and the rocket read. As JSON:

{"event_id": "…", "app_code": "…", "event_type": "RoomUserKicked", "room_id": "…", "room_version": 7,
 "occurred_at_ms": 1732900000000, "body": {"user_id": "…"}}

or as protobuf, see proto/room_events.proto. The event's content type says which.
"""

from typing import Any

import msgspec

from outboxd.event import Event
from outboxd.message import InvalidEvent, is_json

# Protobuf is an extra: imported when it is asked for.
# ruff: noqa: PLC0415

PROTOBUF_TYPES = frozenset({"application/protobuf", "application/x-protobuf", "application/vnd.google.protobuf"})


class NoProtobuf(Exception):
    """The library that reads and writes protobuf is not installed: nothing is wrong with the event."""

    def __init__(self) -> None:
        super().__init__("protobuf is not installed: pip install 'outboxd[grpc]'")


class Envelope(msgspec.Struct, frozen=True):
    """What happened in a room. body: what is particular to the type. room_version rises with every change of the room;
    occurred_at_ms: UTC epoch milliseconds. Both are 0 where unknown.
    """

    event_id: str
    event_type: str
    app_code: str = ""
    room_id: str = ""
    room_version: int = 0
    occurred_at_ms: int = 0
    body: dict[str, Any] = {}


_json = msgspec.json.Decoder(Envelope)


def read(event: Event) -> Envelope:
    """The envelope of an event, whose content type says how it is written. Fields that are unknown are passed over.

    Raises InvalidEvent for what is no EventEnvelope, NoProtobuf where that is needed and missing.
    """
    if is_json(event.content_type):
        try:
            return _json.decode(event.envelope)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidEvent(f"envelope is no EventEnvelope: {error}") from error
    if not is_protobuf(event.content_type):
        raise InvalidEvent(f"envelope is no EventEnvelope: content type {event.content_type!r} is not known")
    try:
        from outboxd.proto.messages import read_envelope
    except ImportError as error:
        raise NoProtobuf from error
    try:
        envelope = Envelope(**read_envelope(event.envelope))
    except ValueError as error:
        raise InvalidEvent(f"envelope is no EventEnvelope: {error}") from error
    # Protobuf tells an absent text from an empty one no more; bytes of anything else often parse, without these.
    if not envelope.event_id or not envelope.event_type:
        raise InvalidEvent("envelope is no EventEnvelope: it has no event_id or no event_type")
    return envelope


def to_protobuf(event: Event) -> bytes:
    """The envelope of an event as protobuf: as the producer wrote it where it is protobuf already.

    Raises InvalidEvent and NoProtobuf as `read` does.
    """
    envelope = read(event)
    if is_protobuf(event.content_type):
        return event.envelope
    try:
        from outboxd.proto.messages import write_envelope
    except ImportError as error:
        raise NoProtobuf from error
    try:
        return write_envelope(
            envelope.body,
            event_id=envelope.event_id,
            app_code=envelope.app_code,
            event_type=envelope.event_type,
            room_id=envelope.room_id,
            room_version=envelope.room_version,
            occurred_at_ms=envelope.occurred_at_ms,
        )
    except ValueError as error:
        raise InvalidEvent(f"envelope cannot be written as protobuf: {error}") from error


def is_protobuf(content_type: str) -> bool:
    """Does the content type promise protobuf?"""
    return content_type.partition(";")[0].strip().lower() in PROTOBUF_TYPES
