"""Appends events to a Redis stream: one pipeline a batch, no retries behind our back (redis-py's default is ten).

Imported only in the process that publishes: it loads redis.
"""

import contextlib
from collections.abc import Sequence

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
        self._stream = settings.stream
        self._cut = {"maxlen": settings.max_length, "approximate": True} if settings.max_length else {}

    def send(self, events: Sequence[Event], deadline_s: float) -> Sequence[Outcome]:
        """One pipeline; an answer for each."""
        outcomes: dict[int, Outcome] = {}
        pipeline = self._redis.pipeline(transaction=False)
        sent: list[int] = []
        for place, event in enumerate(events):
            try:
                pipeline.xadd(self._stream, {FIELD: encode(event)}, **self._cut)  # type: ignore[arg-type]
                sent.append(place)
            except InvalidEvent as error:
                outcomes[place] = Dead(INVALID, str(error))
        failure = self._reach()
        if failure is not None:
            return [outcomes.get(place, failure) for place in range(len(events))]
        answers: Sequence[object]
        try:
            answers = pipeline.execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001  a client that fails in an unknown way must not end the thread
            answers = [error] * len(sent)
        for place, answer in zip(sent, answers, strict=True):
            outcomes[place] = outcome_of(answer)
        return [outcomes[place] for place in range(len(events))]

    def _reach(self) -> Retry | None:
        """See that there is a connection, before anything is sent over it; the failure, if there is none."""
        pool = self._redis.connection_pool
        try:
            pool.release(pool.get_connection())
        except (AuthenticationError, AuthorizationError) as error:
            return Retry(MISCONFIGURED, _text(error), counted=False)
        except Exception as error:  # noqa: BLE001  a client that fails in an unknown way must not end the thread
            return Retry(CONNECT, f"cannot connect: {_text(error)}", counted=False)
        return None

    def close(self) -> None:
        """Give the connection back."""
        with contextlib.suppress(RedisError, OSError):
            self._redis.close()


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


def _text(error: BaseException) -> str:
    return clip(redact(str(error) or type(error).__name__), ERROR_CHARACTERS)
