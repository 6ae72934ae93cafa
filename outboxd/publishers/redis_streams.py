"""Appends events to a Redis stream: one pipeline a batch, no retries behind our back (redis-py's default is ten).

Imported only in the process that publishes: it loads redis.
"""

import contextlib
import time
from collections.abc import Sequence

from redis.connection import AbstractConnection
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import TimeoutError as TimedOut

from outboxd.clients.redis import connect
from outboxd.config.schema import RedisStreams
from outboxd.errors import PublisherError
from outboxd.event import (
    CONNECT,
    DELIVERED,
    INVALID,
    MISCONFIGURED,
    RESET,
    SERVER_ERROR,
    TIMEOUT,
    UNAVAILABLE,
    Dead,
    Event,
    Outcome,
    Retry,
)
from outboxd.message import InvalidEvent, encode
from outboxd.publishers.courier import Courier
from outboxd.redact import clip, redact

CAPACITY = 512
FIELD = b"m"
"""The one field of an entry: the message."""
ERROR_CHARACTERS = 300

# redis-py has a class for some of the server's error codes, and cuts the code off their text.
_PASSING_ERRORS = (BusyLoadingError, ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
_PASSING = ("BUSY", "MISCONF", "NOREPLICAS", "UNBLOCKED")
_REFUSED = ("NOAUTH", "NOPERM", "WRONGPASS", "WRONGTYPE", "MOVED", "ASK")


class _Stream:
    """The blocking side: what the thread does."""

    def __init__(self, settings: RedisStreams, publish_timeout_s: float) -> None:
        # A connection attempt and an answer both fit into a publish.
        self._redis = connect(settings.url or "", publish_timeout_s / 2)
        cut = ("MAXLEN", "~", str(settings.max_length)) if settings.max_length else ()
        self._head = ("XADD", settings.stream, *cut, "*", FIELD)

    def send(self, events: Sequence[Event], deadline_s: float) -> Sequence[Outcome]:
        """All in one write, as a pipeline; an answer for each, also for those before a connection breaks."""
        outcomes: dict[int, Outcome] = {}
        commands = []
        sent: list[int] = []
        for place, event in enumerate(events):
            try:
                commands.append((*self._head, encode(event)))
                sent.append(place)
            except InvalidEvent as error:
                outcomes[place] = Dead(INVALID, str(error))
        if sent:
            outcomes |= zip(sent, self._exchange(commands, deadline_s), strict=True)
        return [outcomes[place] for place in range(len(events))]

    def _exchange(self, commands: Sequence[tuple[str | bytes, ...]], deadline_s: float) -> list[Outcome]:
        pool = self._redis.connection_pool
        try:
            connection = pool.get_connection()  # connected, and nothing sent over it yet
        except (AuthenticationError, AuthorizationError) as error:
            return [Retry(MISCONFIGURED, _text(error), counted=False)] * len(commands)
        except Exception as error:  # noqa: BLE001  a client that fails in an unknown way must not end the thread
            return [Retry(CONNECT, f"cannot connect: {_text(error)}", counted=False)] * len(commands)
        outcomes: list[Outcome] = []
        try:
            connection.send_packed_command(connection.pack_commands(commands))
            while len(outcomes) < len(commands):
                if time.monotonic() >= deadline_s:
                    raise TimedOut("the answers come too slowly")
                outcomes.append(outcome_of(_answer(connection)))
        except Exception as error:  # noqa: BLE001  as above
            outcomes += [outcome_of(error)] * (len(commands) - len(outcomes))
            connection.disconnect()  # answers that still come belong to nobody
        finally:
            pool.release(connection)
        return outcomes

    def close(self) -> None:
        """Give the connection back."""
        with contextlib.suppress(RedisError, OSError):
            self._redis.close()


def _answer(connection: AbstractConnection) -> object:
    """The next one; an error of this command alone is an answer, too."""
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


def outcome_of(answer: object) -> Outcome:
    """What the server's answer to one command, or the lack of it, means for its event."""
    if isinstance(answer, TimedOut):
        return Retry(TIMEOUT, f"no complete answer in time: {_text(answer)}")
    if isinstance(answer, NoPermissionError | AuthenticationError | AuthorizationError):
        return Retry(MISCONFIGURED, _text(answer), counted=False)
    if isinstance(answer, ResponseError | RedisError) and not isinstance(answer, Disconnected):
        word = str(answer).partition(" ")[0]
        if word in _REFUSED:
            return Retry(MISCONFIGURED, _text(answer), counted=False)
        if word in _PASSING or isinstance(answer, _PASSING_ERRORS):
            return Retry(UNAVAILABLE, _text(answer), counted=False)
        return Retry(SERVER_ERROR, _text(answer))
    if isinstance(answer, BaseException):
        return Retry(RESET, f"the connection ended before the answer did: {_text(answer)}")
    return DELIVERED


def open_redis_streams(settings: RedisStreams, publish_timeout_s: float) -> Courier:
    """The publisher. Raises PublisherError."""
    stream = _Stream(settings, publish_timeout_s)
    return Courier(settings.name, CAPACITY, stream.send, stream.close)


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
        raise PublisherError(f"{redact(settings.url or '')}: {_text(error)}") from error
    finally:
        redis.close()
    if kind == b"stream":
        return f"reachable, {settings.stream} has {length} entries"
    if kind != b"none":
        found = kind.decode() if isinstance(kind, bytes) else kind
        raise PublisherError(f"{settings.stream} is a {found}, not a stream: name another key in stream")
    return f"reachable, {settings.stream} will be made with the first event"


def _text(error: BaseException) -> str:
    return clip(redact(str(error) or type(error).__name__), ERROR_CHARACTERS)
