"""What the receiver understands and says: requests off the wire, behaviours as bytes. Pure."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_EVENT_ID = re.compile(rb"\r\n(?:ce-id|x-outboxd-event-id|webhook-id): *([^\r]*)", re.IGNORECASE)
_STRUCTURED_ID = re.compile(rb'"(?:id|event_id)":"([^"]*)"')


@dataclass(frozen=True)
class Request:
    """One complete request. connection: number of the connection it came over, from 1. received_s: time.monotonic()."""

    connection: int
    head: bytes
    body: bytes
    received_s: float

    @property
    def method(self) -> str:
        """As in the request line."""
        return self.head.split(b" ", 1)[0].decode()

    @property
    def path(self) -> str:
        """With its query."""
        return self.head.split(b" ", 2)[1].decode()

    @cached_property
    def header_lines(self) -> list[tuple[str, str]]:
        """Names in lower case, in the order in which they came; repeated ones too."""
        pairs = (line.partition(b":") for line in self.head.split(b"\r\n")[1:] if line)
        return [(name.decode("latin-1").lower(), value.decode("latin-1").strip()) for name, _, value in pairs]

    @property
    def headers(self) -> dict[str, str]:
        """The last of each name."""
        return dict(self.header_lines)

    @cached_property
    def event_id(self) -> str:
        """From the headers, else from a structured body; empty if there is none."""
        found = _EVENT_ID.search(self.head) or _STRUCTURED_ID.search(self.body[:1000])
        return found[1].decode("latin-1").strip() if found else ""

    def without_body(self) -> "Request":
        """The same, smaller; the event's id is kept."""
        short = replace(self, body=b"")
        short.__dict__["event_id"] = self.event_id
        return short

    def as_json(self) -> dict[str, object]:
        """For the log."""
        return {
            "event_id": self.event_id,
            "connection": self.connection,
            "path": self.path,
            "headers": self.headers,
            "body_bytes": len(self.body),
            "received_s": self.received_s,
        }


def take_request(connection: int, received: bytearray) -> Request | None:
    """Cut the first complete request off what was received; None if it is not complete yet."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(received[:end])
    length = _LENGTH.search(head)
    body_end = end + 4 + (int(length[1]) if length else 0)
    if len(received) < body_end:
        return None
    body = bytes(received[end + 4 : body_end])
    del received[:body_end]
    return Request(connection, head, body, time.monotonic())


@dataclass(frozen=True)
class Behaviour:
    """How to answer.

    delay_s: before the first byte. hang: never answer. drip_s: one byte at a time, so far apart. repeat: bytes sent
    again and again behind the answer, `repeat_every_s` apart (0: as fast as they go). close: "before_answer" says
    nothing, "reset" neither, but sends a reset, "mid_answer" stops in the middle of the body, "after_answer" does not
    announce it. raw: instead of all that makes up an answer. announced_bytes: a Content-Length other than the true one;
    -1: none.
    """

    status: int = 204
    reason: str = "Whatever"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | str = b""
    retry_after: str | None = None
    location: str | None = None
    delay_s: float = 0.0
    hang: bool = False
    drip_s: float = 0.0
    repeat: bytes = b""
    repeat_every_s: float = 0.0
    close: str | None = None
    raw: bytes | None = None
    announced_bytes: int | None = None

    def wire(self) -> bytes:
        """The answer on the wire."""
        if self.raw is not None:
            return self.raw
        body = self.body.encode() if isinstance(self.body, str) else self.body
        lines = [f"HTTP/1.1 {self.status} {self.reason}", *(f"{name}: {value}" for name, value in self.headers)]
        lines += [f"Retry-After: {self.retry_after}"] if self.retry_after is not None else []
        lines += [f"Location: {self.location}"] if self.location is not None else []
        length = len(body) if self.announced_bytes is None else self.announced_bytes
        if length >= 0 and self.status != 204:
            lines.append(f"Content-Length: {length}")
        if self.close == "mid_answer":
            body = body[: len(body) // 2]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


DEFAULT = Behaviour()


@dataclass
class Rule:
    """Which requests get which behaviour; None matches all. times: how often it still applies."""

    path: str | None
    event_id: str | None
    times: int | None
    behaviour: Behaviour

    def matches(self, request: Request) -> bool:
        """Is it for this request?"""
        return (
            (self.times is None or self.times > 0)
            and (self.path is None or self.path == request.path)
            and (self.event_id is None or self.event_id == request.event_id)
        )


class Chosen(Rule):
    """Each request gets what a function says; None: what the other rules say."""

    def __init__(self, choose: Callable[[Request], Behaviour | None]) -> None:
        super().__init__(None, None, None, DEFAULT)
        self._choose = choose

    def matches(self, request: Request) -> bool:
        """Asks the function."""
        chosen = self._choose(request)
        self.behaviour = chosen or DEFAULT
        return chosen is not None
