"""CloudEvents 1.0 out of a lane's events: attributes, header values, the structured form. Pure.

An event becomes: id = event_id, source = configured, type = event_type, subject and partitionkey = room_id, appcode =
app_code, time = created_at_ms. Attributes whose column is empty are left out.
"""

import base64
import functools
import re
import time
from urllib.parse import quote

import msgspec

from outboxd.event import Event
from outboxd.message import NO_CONTENT_TYPE, InvalidEvent, is_json, is_valid_json

STRUCTURED_CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"

_LATEST_MS = 253_402_300_799_999  # the end of the year 9999, the last that RFC 3339 can write
# The HTTP binding: all but U+0021 to U+007E is percent-encoded, and of those the quotation mark and the percent sign.
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_PLAIN = re.compile(f"[{re.escape(_SAFE)}]*")


def header_value(text: str) -> str:
    """A value as the HTTP binding wants it: ASCII without spaces, controls, quotation marks and bare percent signs."""
    if _PLAIN.fullmatch(text):  # nearly always; quote takes three times as long to find out
        return text
    return quote(text, safe=_SAFE, errors="replace")


@functools.lru_cache(maxsize=1024)
def _to_the_second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def timestamp(epoch_ms: int) -> str | None:
    """RFC 3339 in UTC with milliseconds; None for 0 (unknown) and what is no date of our era."""
    if not 0 < epoch_ms <= _LATEST_MS:
        return None
    second, millisecond = divmod(epoch_ms, 1000)
    return f"{_to_the_second(second)}.{millisecond:03d}Z"


def shared_headers(event: Event, source: str) -> list[str]:
    """Header lines of the binary form that all events of this event_type and app_code share. Raises InvalidEvent."""
    lines = ["ce-specversion: 1.0", f"ce-source: {header_value(source)}", f"ce-type: {header_value(_type(event))}"]
    if event.app_code:
        lines.append(f"ce-appcode: {header_value(event.app_code)}")
    return lines


def own_headers(event: Event) -> list[str]:
    """Header lines of the binary form that only this event has."""
    lines = [f"ce-id: {header_value(event.event_id)}"]
    if event.room_id:
        room = header_value(event.room_id)
        lines += (f"ce-subject: {room}", f"ce-partitionkey: {room}")
    at = timestamp(event.created_at_ms)
    if at is not None:
        lines.append(f"ce-time: {at}")
    return lines


def _type(event: Event) -> str:
    if not event.event_type:
        raise InvalidEvent("event_type is empty, which CloudEvents does not allow; the producer must set it")
    return event.event_type


def structured_body(event: Event, source: str) -> bytes:
    """The structured form. JSON data is spliced in unchanged; what is not valid JSON goes as data_base64.

    Raises InvalidEvent.
    """
    content_type = event.content_type or NO_CONTENT_TYPE
    attributes = {
        "specversion": "1.0",
        "id": event.event_id,
        "source": source,
        "type": _type(event),
        "subject": event.room_id,
        "partitionkey": event.room_id,
        "appcode": event.app_code,
        "time": timestamp(event.created_at_ms),
        "datacontenttype": content_type,
    }
    try:
        head = msgspec.json.encode({name: value for name, value in attributes.items() if value})[:-1]
    except UnicodeEncodeError as error:
        raise InvalidEvent(f"a column holds text that is no valid unicode: {error.reason}") from error
    if is_json(content_type) and is_valid_json(event.envelope):
        return b'%b,"data":%b}' % (head, event.envelope)
    return b'%b,"data_base64":"%b"}' % (head, base64.b64encode(event.envelope))
