"""Commands to Redis, many in one write, and what each answer means for its event. No retries behind our back.

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
from outboxd.event import (
    CONNECT,
    DELIVERED,
    MISCONFIGURED,
    RESET,
    SERVER_ERROR,
    TIMEOUT,
    UNAVAILABLE,
    Outcome,
    Retry,
    blameless,
)
from outboxd.redact import clip, redact

ERROR_CHARACTERS = 300
Command = tuple[str | bytes, ...]

# redis-py has a class for some of the server's error codes, and cuts the code off their text.
_PASSING_ERRORS = (ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
_PASSING = ("BUSY", "MISCONF", "NOREPLICAS", "UNBLOCKED")
_REFUSED = ("NOAUTH", "NOPERM", "WRONGPASS", "WRONGTYPE", "MOVED", "ASK")


class Pipe:
    """One connection, used by one thread."""

    def __init__(self, url: str, publish_timeout_s: float) -> None:
        # A connection attempt and an answer both fit into a publish.
        self._redis = connect(url, publish_timeout_s / 2)

    def exchange(self, commands: Sequence[Command], deadline_s: float) -> list[Outcome]:
        """All in one write; an outcome for each, also for those answered before a connection breaks. Never raises."""
        pool = self._redis.connection_pool
        try:
            connection = pool.get_connection()  # connected, and nothing sent over it yet
        except (AuthenticationError, AuthorizationError) as error:
            return [blameless(MISCONFIGURED, text_of(error))] * len(commands)
        except Exception as error:  # noqa: BLE001  a client that fails in an unknown way must not end the thread
            return [blameless(CONNECT, text_of(error))] * len(commands)
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
        return Retry(TIMEOUT, f"no complete answer in time: {text_of(answer)}")
    if isinstance(answer, NoPermissionError | AuthenticationError | AuthorizationError):
        return blameless(MISCONFIGURED, text_of(answer))
    if isinstance(answer, BusyLoadingError):  # redis-py takes it for a connection error, and hangs up
        return blameless(UNAVAILABLE, text_of(answer))
    if isinstance(answer, ResponseError | RedisError) and not isinstance(answer, Disconnected):
        word = str(answer).partition(" ")[0]
        if word in _REFUSED:
            return blameless(MISCONFIGURED, text_of(answer))
        if word in _PASSING or isinstance(answer, _PASSING_ERRORS):
            return blameless(UNAVAILABLE, text_of(answer))
        return Retry(SERVER_ERROR, text_of(answer))
    if isinstance(answer, BaseException):
        return Retry(RESET, f"the connection ended before the answer did: {text_of(answer)}")
    return DELIVERED


def text_of(error: BaseException) -> str:
    """An error's text, fit to be shown."""
    return clip(redact(str(error) or type(error).__name__), ERROR_CHARACTERS)
