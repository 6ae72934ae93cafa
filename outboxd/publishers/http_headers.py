"""Turns an event into the headers and body of its request. Pure, save the clock of the signature.

Nothing that a producer wrote can begin a header of its own: names come from the configuration, and control characters
and non-ASCII in values are percent-encoded.
"""

import re
import time

import msgspec

from outboxd.config.schema import Http
from outboxd.errors import PublisherError
from outboxd.event import Event
from outboxd.message import NO_CONTENT_TYPE, InvalidEvent
from outboxd.publishers import cloudevents, signature
from outboxd.publishers.cloudevents import header_value

FORWARDED = ("traceparent", "tracestate", "baggage")
"""Of an event's own headers these are always sent."""

RESERVED = frozenset(
    {
        "connection", "content-length", "content-type", "expect", "keep-alive", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Set by the relay or by curl; they would break the framing of requests in anyone else's hands."""
RESERVED_PREFIXES = ("ce-", "webhook-", "x-outboxd-")
NEVER_FORWARDED = RESERVED | {"accept", "accept-encoding", "host", "user-agent"}

CACHED = 1000
"""Kinds of events (type, tenant, content type) whose constant headers are remembered."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_PRINTABLE_ASCII = re.compile(r"[^\x20-\x7e]")
_EXPECT_FROM_BYTES = 1024
"""Above this size some versions of curl ask with `Expect: 100-continue` first, which costs a round trip."""


class Requests:
    """Builds requests for one publisher. Raises PublisherError for headers in the settings that cannot be sent."""

    def __init__(self, settings: Http, lane: str) -> None:
        self._format = settings.format
        self._secret = settings.secret
        self._source = (settings.source or "/outboxd/{lane}").replace("{lane}", lane)
        self._constant = _constant_headers(settings)
        taken = {line.partition(":")[0].rstrip(";").lower() for line in self._constant}
        self._forwarded = frozenset(
            name for name in map(str.lower, (*FORWARDED, *settings.forward_headers)) if _may_forward(name, taken)
        )
        self._shared: dict[tuple[str, str, str], tuple[str, ...]] = {}

    def build(self, event: Event) -> tuple[list[str], bytes]:
        """Header lines for curl, and the body. Raises InvalidEvent."""
        if not event.event_id:
            raise InvalidEvent("event_id is empty; the producer must set it")
        kind = (event.event_type, event.app_code, event.content_type)
        shared = self._shared.get(kind)
        if shared is None:
            shared = self._share(kind, event)
        body = event.envelope
        if self._format == "cloudevents":
            headers = [*shared, *cloudevents.own_headers(event)]
        elif self._format == "raw":
            headers = [*shared, *_own_raw_headers(event)]
        else:
            headers = list(shared)
            body = cloudevents.structured_body(event, self._source)
        if event.headers is not None:
            headers += self._forward(event.headers)
        if self._secret is not None:
            headers += signature.headers(self._secret, header_value(event.event_id), int(time.time()), body)
        if len(body) >= _EXPECT_FROM_BYTES:
            headers.append("Expect:")
        return headers, body

    def _share(self, kind: tuple[str, str, str], event: Event) -> tuple[str, ...]:
        content_type = printable(event.content_type) or NO_CONTENT_TYPE
        lines: list[str] = []
        if self._format == "cloudevents":
            lines = cloudevents.shared_headers(event, self._source)
        elif self._format == "raw":
            lines = [
                f"X-Outboxd-{name}: {header_value(value)}"
                for name, value in (("Event-Type", event.event_type), ("App-Code", event.app_code))
                if value
            ]
        else:
            content_type = cloudevents.STRUCTURED_CONTENT_TYPE
        if len(self._shared) >= CACHED:
            self._shared.clear()
        shared = self._shared[kind] = (f"Content-Type: {content_type}", *lines, *self._constant)
        return shared

    def _forward(self, text: str) -> list[str]:
        """Header lines out of an event's own headers. Numbers and booleans are sent as JSON writes them; null, lists
        and objects have no text and are left out.
        """
        try:
            values = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise InvalidEvent(f"headers are not valid JSON ({error}); the producer must write an object") from error
        if values is None:  # many an ORM writes JSON's null for "none"
            return []
        if not isinstance(values, dict):
            raise InvalidEvent(f"headers are a JSON {type(values).__name__}; the producer must write an object")
        sent = {name.lower(): value for name, value in values.items() if name.lower() in self._forwarded}
        lines = []
        for name, value in sent.items():
            if isinstance(value, bool | int | float):
                value = msgspec.json.encode(value).decode()
            if isinstance(value, str) and value.strip():
                lines.append(f"{name}: {printable(value)}")
        return lines


def printable(text: str) -> str:
    """The text with all but printable ASCII percent-encoded, as UTF-8 bytes."""
    return _NOT_PRINTABLE_ASCII.sub(lambda found: _percent(found.group()), text)


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "replace"))


def _own_raw_headers(event: Event) -> list[str]:
    lines = [f"X-Outboxd-Event-Id: {header_value(event.event_id)}"]
    if event.room_id:
        lines.append(f"X-Outboxd-Room-Id: {header_value(event.room_id)}")
    return lines


def _may_forward(name: str, taken: set[str]) -> bool:
    return name not in NEVER_FORWARDED and name not in taken and not name.startswith(RESERVED_PREFIXES)


def _constant_headers(settings: Http) -> tuple[str, ...]:
    where = f"publishers.{settings.name}"
    for name in settings.forward_headers:
        if _TOKEN.fullmatch(name) is None:
            raise PublisherError(f"{where}.forward_headers: {name!r} is no name of a header; remove it")
    given = dict(settings.headers)
    if settings.authorization is not None:
        if any(name.lower() == "authorization" for name in given):
            raise PublisherError(f"{where}: headers and authorization_file both set Authorization; keep one of them")
        given["Authorization"] = settings.authorization
    lines = []
    for name, value in given.items():
        if _TOKEN.fullmatch(name) is None:
            raise PublisherError(f"{where}.headers: {name!r} is no name of a header; correct it")
        if name.lower() in RESERVED or name.lower().startswith(RESERVED_PREFIXES):
            raise PublisherError(f"{where}.headers.{name}: is set by outboxd itself; remove it")
        if _NOT_PRINTABLE_ASCII.search(value):  # not shown: it may be a secret
            raise PublisherError(f"{where}.headers.{name}: only printable ASCII can be sent; correct the value")
        # curl's way of sending a header that is empty; without the semicolon it would send none
        lines.append(f"{name}: {value}" if value.strip() else f"{name};")
    return tuple(lines)
