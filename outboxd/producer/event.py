"""An event as a service describes it, and the row that becomes of it. Pure: whatever does not fit is refused here,
before anything is written.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from outboxd.errors import EventRefused
from outboxd.producer.ids import new_event_id
from outboxd.producer.tracing import trace_headers
from outboxd.table import ASCII, LAST_MS, LIMITS, NEVER_EMPTY

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Of an envelope: the relay's own default (`max_event_bytes`), beyond which an event becomes a dead letter."""
HEADERS_BYTES = 64 * 1024
"""Of the headers' JSON text: what becomes of them is headers of HTTP requests, or of messages."""
EARLIEST_MS = 10**11
"""A `deliver_at` before this (March 1973) was meant as seconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What happened, for `record`. It is looked at when it is recorded, not before.

    event_type, room_id, app_code, event_id, content_type: as the columns of their names (docs/operations.md, "For
    producers"). event_id: a new UUIDv7 unless given; unique within its app_code. envelope: the payload; bytes and text
    go as they are, a dict or list as JSON. headers: a dict, or the text of a JSON object. deliver_at: an aware datetime
    or UTC epoch milliseconds, by the database's clock; delay: so much later than the moment of recording, by the
    database's clock; not both.

    >>> Event(event_type="RoomCreated", room_id="room-42", envelope={"room": 42}).content_type
    'application/json'
    """

    event_type: str
    room_id: str
    envelope: bytes | bytearray | memoryview | str | Mapping[str, Any] | list[Any] = field(repr=False)
    app_code: str = ""
    event_id: str = field(default_factory=new_event_id)
    content_type: str = "application/json"
    headers: Mapping[str, Any] | str | None = field(default=None, repr=False)
    deliver_at: datetime | int | None = None
    delay: timedelta | None = None

    @property
    def is_delayed(self) -> bool:
        """Is it to wait for its time?"""
        return self.deliver_at is not None or bool(self.delay)


class Row(NamedTuple):
    """The columns of an event, in the order of an INSERT. due_ms: from the epoch, or, `is_delay`, from now."""

    app_code: str
    event_id: str
    event_type: str
    room_id: str
    envelope: bytes
    content_type: str
    headers: str | None
    due_ms: int
    is_delay: bool


def rows_of(events: Sequence[Event], max_event_bytes: int) -> list[Row]:
    """All of them, or EventRefused for the first one that does not fit."""
    traced = trace_headers()
    rows = [row_of(event, max_event_bytes, traced) for event in events]
    if len(rows) > 1:
        keys = {(row.app_code, row.event_id) for row in rows}
        if len(keys) < len(rows):
            raise EventRefused("two of the events have the same event_id and app_code: give each one of its own")
    return rows


def row_of(event: Event, max_event_bytes: int, traced: Mapping[str, str]) -> Row:
    """The row of an event. traced: headers that it gets unless it has them. Raises EventRefused."""
    if not isinstance(event, Event):
        raise EventRefused(f"{type(event).__name__} is no Event: write record(connection, Event(event_type=…, …))")
    for name, limit in LIMITS.items():
        value = getattr(event, name)
        if type(value) is not str or not 0 < len(value) <= limit or not value.isascii():  # nearly all are
            _check(name, value, limit)
    envelope = _envelope(event)
    if len(envelope) > max_event_bytes:
        raise EventRefused(
            f"envelope has {len(envelope):,} bytes, {max_event_bytes:,} is the most: the relay would make it a dead "
            "letter; send less, or raise max_event_bytes here and in the relay's configuration"
        )
    due_ms, is_delay = _due(event)
    return Row(
        event.app_code, event.event_id, event.event_type, event.room_id, envelope, event.content_type,
        _headers(event.headers, traced), due_ms, is_delay,
    )  # fmt: skip


def _check(name: str, value: object, limit: int) -> None:
    if not isinstance(value, str):
        raise EventRefused(f"{name} is of type {type(value).__name__}: give a str")
    if len(value) > limit:
        raise EventRefused(f"{name} has {len(value)} characters, {limit} is the most: {value[:80]!r}")
    if not value and name in NEVER_EMPTY:
        raise EventRefused(f"{name} is empty: give one")
    if not value.isascii():
        if name in ASCII:
            raise EventRefused(f"{name} {value!r} is not ASCII: choose another")
        _encoded(name, value)


def _encoded(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise EventRefused(f"{name} is no valid text, it has half a surrogate pair: {error.reason}") from error


def _envelope(event: Event) -> bytes:
    value = event.envelope
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return _encoded("envelope", value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, Mapping | list):
        raise EventRefused(f"envelope is of type {type(value).__name__}: give bytes, a str, a dict or a list")
    if "json" not in event.content_type:
        raise EventRefused(
            f"envelope is a {type(value).__name__}, which goes as JSON and not as {event.content_type!r}"
        )
    return _encoded("envelope", _json("envelope", value))


def _json(name: str, value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise EventRefused(f"{name} cannot be written as JSON: {error}") from error


def _headers(given: Mapping[str, Any] | str | None, traced: Mapping[str, str]) -> str | None:
    if given is None and not traced:
        return None
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise EventRefused(f"headers is not the text of a JSON object: {error}") from error
    if not isinstance(given, Mapping | None):
        raise EventRefused(f"headers is a {type(given).__name__}: give a dict, or the text of a JSON object")
    # Both or none: the state of one trace says nothing of another's.
    own = dict(given or {})
    text = _json("headers", own if "traceparent" in {str(name).lower() for name in own} else {**own, **traced})
    size = len(_encoded("headers", text))
    if size > HEADERS_BYTES:
        raise EventRefused(f"headers have {size:,} bytes, {HEADERS_BYTES:,} is the most: carry them in the envelope")
    return text


def _due(event: Event) -> tuple[int, bool]:
    """`next_retry_at_ms`, and whether it is counted from now."""
    if event.deliver_at is None and event.delay is None:
        return 0, False
    if event.deliver_at is not None and event.delay is not None:
        raise EventRefused("an event has deliver_at or delay, not both")
    if event.delay is not None:
        delay_ms = _delay_ms(event.delay)
        return delay_ms, delay_ms > 0
    due_ms = _epoch_ms(event.deliver_at)
    if not EARLIEST_MS <= due_ms <= LAST_MS:
        raise EventRefused(f"deliver_at {event.deliver_at!r} is no time in UTC epoch milliseconds: {due_ms}")
    return due_ms, False


def _delay_ms(delay: timedelta) -> int:
    if not isinstance(delay, timedelta):
        raise EventRefused(f"delay is of type {type(delay).__name__}: give a timedelta")
    ms = _milliseconds(delay)
    if not 0 <= ms <= LAST_MS // 2:
        raise EventRefused(f"delay {delay!r} is {'negative' if ms < 0 else 'too long'}")
    return ms


def _epoch_ms(moment: object) -> int:
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    if not isinstance(moment, datetime):
        raise EventRefused(f"deliver_at is of type {type(moment).__name__}: give an aware datetime or milliseconds")
    if moment.utcoffset() is None:
        raise EventRefused(f"deliver_at {moment!r} has no time zone: give it one, such as datetime.now(UTC) has")
    return _milliseconds(moment - _EPOCH)


def _milliseconds(duration: timedelta) -> int:
    """Rounded up: an event never comes sooner than asked for."""
    whole, rest = divmod(duration, _MILLISECOND)
    return whole + bool(rest)
