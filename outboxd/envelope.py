"""The EventEnvelope that room services write: what Tencent IM, the activity service and the rocket read.

{"event_id": "…", "app_code": "…", "event_type": "RoomUserKicked", "room_id": "…", "room_version": 7,
 "occurred_at_ms": 1732900000000, "body": {"user_id": "…"}}
"""

from typing import Any

import msgspec

from outboxd.event import Event
from outboxd.message import InvalidEvent, is_json


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

    Raises InvalidEvent for what is no EventEnvelope.
    """
    if is_json(event.content_type):
        try:
            return _json.decode(event.envelope)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidEvent(f"envelope is no EventEnvelope: {error}") from error
    raise InvalidEvent(f"envelope is no EventEnvelope: content type {event.content_type!r} is not known")
