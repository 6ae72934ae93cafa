"""Appends events to a Redis stream, a batch in one write.

Imported only in the process that publishes: it loads redis.
"""

from collections.abc import Sequence

from redis.exceptions import NoPermissionError, RedisError

from outboxd.clients.redis import connect
from outboxd.config.schema import RedisStreams
from outboxd.errors import PublisherError
from outboxd.event import INVALID, Dead, Event, Outcome, RoomKey, room_of
from outboxd.message import InvalidEvent, encode
from outboxd.publishers.courier import NOT_SENT, Courier, behind_failures
from outboxd.publishers.redis_pipe import Command, Pipe, text_of
from outboxd.redact import redact

CAPACITY = 512
FIELD = b"m"
"""The one field of an entry: the message."""


def open_redis_streams(settings: RedisStreams, publish_timeout_s: float, is_ordered: bool = False) -> Courier:
    """The publisher. is_ordered: a batch that has several events of a room is one transaction (MULTI), and
    nothing of a room goes behind a failure.

    Raises PublisherError.
    """
    pipe = Pipe(settings.url or "", publish_timeout_s)
    cut = ("MAXLEN", "~", str(settings.max_length)) if settings.max_length else ()
    head = ("XADD", settings.stream, *cut, "*", FIELD)

    def send(events: Sequence[Event], deadline_s: float) -> Sequence[Outcome]:
        outcomes: dict[int, Outcome] = {}
        commands: dict[int, Command] = {}
        for place, event in enumerate(events):
            try:
                commands[place] = (*head, encode(event))
            except InvalidEvent as error:
                outcomes[place] = Dead(INVALID, str(error))
        if is_ordered and outcomes:
            outcomes |= dict.fromkeys(behind_failures(events, outcomes), NOT_SENT)
            commands = {place: command for place, command in commands.items() if place not in outcomes}
        if commands:
            # A transaction answers twice for each event: not where no room has two of them.
            exchange = pipe.exchange_all if is_ordered and _has_runs(events) else pipe.exchange
            outcomes |= zip(commands, exchange(tuple(commands.values()), deadline_s), strict=True)
        return [outcomes[place] for place in range(len(events))]

    return Courier(settings.name, CAPACITY, send, pipe.close, is_ordered)


def _has_runs(events: Sequence[Event]) -> bool:
    """Has a room several of them? Mostly the first one has."""
    rooms = set[RoomKey]()
    for event in events:
        if (room := room_of(event)) in rooms:
            return True
        rooms.add(room)
    return False


def try_stream(settings: RedisStreams, timeout_s: float) -> str:
    """Log in, and look at the key; what was found. Raises PublisherError."""
    redis = connect(settings.url or "", timeout_s)
    try:
        # Nothing is written: a user who may only append is told so by the first event.
        kind = redis.type(settings.stream)
        length = redis.xlen(settings.stream) if kind == b"stream" else 0
    except NoPermissionError:
        return "reachable; its user may not look at the stream"
    except (RedisError, OSError) as error:
        raise PublisherError(f"{redact(settings.url or '')}: {text_of(error)}") from error
    finally:
        redis.close()
    if kind == b"stream":
        return f"reachable, {settings.stream} has {length} entries"
    if kind != b"none":
        found = kind.decode() if isinstance(kind, bytes) else kind
        raise PublisherError(f"{settings.stream} is a {found}, not a stream: name another key in stream")
    return f"reachable, {settings.stream} will be made with the first event"
