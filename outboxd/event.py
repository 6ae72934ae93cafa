"""What flows through a relay: an event, and the outcome of publishing it. Frozen data, no I/O.

`msgspec.Struct` instead of a dataclass: one is made for every event relayed, at a tenth of the cost.
"""

import msgspec

NAME_PATTERN = r"[a-z][a-z0-9_]{0,23}"
"""What a publisher's name looks like: it is written into `published_to`, where 8 of them and their marks must fit."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One row of a lane, as claimed.

    `id` orders events of a lane. `envelope` is the payload, byte for byte as the producer wrote it. `headers` is the
    stored JSON text or None; it is parsed only by publishers that send headers. `retry_count` counts failed attempts
    before this claim. `created_at_ms` is UTC epoch milliseconds, 0 where unknown. `published_to` names publishers that
    are done with the event: `"a,!b"` means accepted by a, refused by b.
    """

    id: int
    event_id: str
    event_type: str
    room_id: str
    app_code: str
    envelope: bytes
    content_type: str
    headers: str | None
    retry_count: int
    created_at_ms: int
    published_to: str
    last_error: str | None
    lane: str


RoomKey = tuple[str, str] | int


def room_of(event: Event) -> RoomKey:
    """What stands for its room; an event without one has its own."""
    return (event.app_code, event.room_id) if event.room_id else event.id


class Delivered(msgspec.Struct, frozen=True):
    """Every publisher asked accepted the event. `accepted` is filled by the fan-out."""

    accepted: tuple[str, ...] = ()


class Retry(msgspec.Struct, frozen=True):
    """The event was not accepted now; another attempt may succeed.

    `counted` says whom the failure is blamed on: True, the event (it uses up one of its attempts); False, the publisher
    (an outage, a throttle, a misconfiguration: no attempt is used). `retry_after_s` is what the far side asked for; it
    holds the publisher, not the event alone. `reason` is one of REASONS.
    """

    reason: str
    error: str
    counted: bool = True
    retry_after_s: float | None = None
    accepted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


class Dead(msgspec.Struct, frozen=True):
    """The event can never be accepted: it becomes a dead letter."""

    reason: str
    error: str
    accepted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


Outcome = Delivered | Retry | Dead

DELIVERED = Delivered()

# Reasons, a fixed list: they become a metric's label.
CONNECT = "connect"  # refused, unreachable, connect time-out: the request never left
DNS = "dns"
TLS = "tls"
TIMEOUT = "timeout"  # no complete answer within publish_timeout, after the request was sent
RESET = "reset"  # the connection ended before the answer did
THROTTLED = "throttled"  # 429
UNAVAILABLE = "unavailable"  # 502, 503, 504
SERVER_ERROR = "server_error"  # 500 and the other answers that are not listed here
MISCONFIGURED = "misconfigured"  # 401, 403, 404, redirects: a person must change something; never dead
REJECTED = "rejected"  # the receiver says that this event can never be accepted
INVALID = "invalid"  # the event cannot be turned into a request: too large, headers that are no object
EXCEPTION = "exception"  # a Python publisher raised
PARKED = "parked"  # not tried: the publisher's breaker is open or it asked for a pause
RETRY_LIMIT = "retry_limit"

REASONS = (
    CONNECT, DNS, TLS, TIMEOUT, RESET, THROTTLED, UNAVAILABLE, SERVER_ERROR, MISCONFIGURED, REJECTED, INVALID,
    EXCEPTION, PARKED, RETRY_LIMIT,
)  # fmt: skip

BLAMELESS = {
    CONNECT: "no connection: ",
    DNS: "no such host: ",
    TLS: "TLS failed: ",
    THROTTLED: "busy: ",
    UNAVAILABLE: "unavailable: ",
    MISCONFIGURED: "refused: ",
}
"""How the text of a failure begins that is not the event's: the row keeps the text alone, and it must tell."""
REJECTION = "rejected: "
"""How the text begins of what can never be accepted."""


def blameless(reason: str, error: str, retry_after_s: float | None = None) -> Retry:
    """A failure of the publisher, which uses up no attempt. reason: of BLAMELESS."""
    return Retry(reason, BLAMELESS[reason] + error, counted=False, retry_after_s=retry_after_s)


def rejected(error: str) -> Dead:
    """The receiver can never accept it."""
    return Dead(REJECTED, REJECTION + error)
