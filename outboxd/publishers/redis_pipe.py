"""Commands to Redis, many in one write, and what each answer means for its event. No retries behind our back.

Imported only in the process that publishes: it loads redis.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence

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
    INVALID,
    MISCONFIGURED,
    RESET,
    SERVER_ERROR,
    TIMEOUT,
    UNAVAILABLE,
    Dead,
    Outcome,
    Retry,
    blameless,
)
from outboxd.redact import clip, redact

ERROR_CHARACTERS = 300
WRITE_BYTES = 256 * 1024
"""Commands are written in pieces of about this size, or of one command."""
Command = tuple[str | bytes, ...]

# redis-py has a class for some of the server's error codes, and cuts the code off their text.
_PASSING_ERRORS = (ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
_PASSING = ("BUSY", "MISCONF", "NOREPLICAS", "UNBLOCKED")
_PROTOCOL, _TOO_LONG, _UNKNOWN_USER = "Protocol error", "invalid bulk length", "unauthenticated"
_REFUSED = ("NOAUTH", "NOPERM", "WRONGPASS", "WRONGTYPE", "MOVED", "ASK")


class Pipe:
    """One connection, used by one thread."""

    def __init__(self, url: str, publish_timeout_s: float) -> None:
        # A connection attempt and an answer both fit into a publish.
        self._redis = connect(url, publish_timeout_s / 2)

    def exchange(self, commands: Sequence[Command], deadline_s: float) -> list[Outcome]:
        """All in one write; an outcome for each, also for those answered before a connection breaks. Never raises."""
        outcomes = [outcome_of(answer) for answer in self._answers(commands, deadline_s)]
        # The server does one after the other: what broke the connection is the first that has no answer, if it is any
        # of them. Those behind it are blamed for nothing.
        return outcomes + [_behind(outcomes[-1])] * (len(commands) - len(outcomes))

    def exchange_all(self, commands: Sequence[Command], deadline_s: float) -> list[Outcome]:
        """The same as one transaction: all of them or none, in their order. Never raises."""
        answers = self._answers([("MULTI",), *commands, ("EXEC",)], deadline_s)
        done = answers[-1]
        if isinstance(done, list) and len(done) == len(commands):
            return [outcome_of(answer) for answer in done]
        # Which one the server refused, or did not answer; it is that one's fault if it is anybody's.
        bad = next((n for n, answer in enumerate(answers) if isinstance(answer, BaseException)), len(answers) - 1)
        place = bad - 1 if 1 <= bad <= len(commands) else 0
        outcomes = [_behind(outcome_of(answers[bad]))] * len(commands)
        outcomes[place] = outcome_of(answers[bad])
        return outcomes

    def _answers(self, commands: Sequence[Command], deadline_s: float) -> list[object]:
        """The server's answers, each a value or an error of its command alone; where the connection ends before they
        do, the last one is why."""
        pool = self._redis.connection_pool
        try:
            connection = pool.get_connection()  # connected, and nothing sent over it yet
        except (AuthenticationError, AuthorizationError) as error:
            return [NotConnected(blameless(MISCONFIGURED, text_of(error)))]
        except Exception as error:  # noqa: BLE001  a client that fails in an unknown way must not end the thread
            return [NotConnected(blameless(CONNECT, text_of(error)))]
        answers: list[object] = []
        try:
            _write(connection, commands)
            while len(answers) < len(commands):
                if time.monotonic() >= deadline_s:
                    raise TimedOut("the answers come too slowly")
                answers.append(_answer(connection))
        except Exception as error:  # noqa: BLE001  as above
            answers.append(error.args[0] if isinstance(error, _Unreadable) else error)
            connection.disconnect()  # answers that still come belong to nobody
        finally:
            pool.release(connection)
        return answers

    def close(self) -> None:
        """Give the connection back."""
        with contextlib.suppress(RedisError, OSError):
            self._redis.close()


class NotConnected(Exception):
    """Nothing was sent, for the reason that this carries."""


class _Unreadable(Exception):
    """The server could not read the command, says so in the ResponseError that this carries, and reads no further."""


def _write(connection: AbstractConnection, commands: Sequence[Command]) -> None:
    """All of them. Raises TimedOut; a connection that breaks meanwhile is left to the reading, since the server may
    have said why. redis-py's own writing would throw that away.
    """
    writer = connection._get_socket()
    if writer is None:
        raise Disconnected("it was closed")
    try:
        for piece in packed(commands):
            writer.sendall(piece)
    except TimeoutError as error:
        raise TimedOut("the server does not read") from error
    except OSError:
        return


def packed(commands: Sequence[Command]) -> Iterator[bytes]:
    """What is written for them. The commands of a batch differ in their last word alone, as a rule: what stands before
    it is put together once, which takes a tenth of what redis-py spends on the words one by one.
    """
    starts: dict[Command, bytes] = {}
    ready: list[bytes] = []
    size_bytes = 0
    for command in commands:
        start = starts.get(command[:-1])
        if start is None:
            start = starts[command[:-1]] = b"*%d\r\n%b" % (len(command), b"".join(map(_word, command[:-1])))
        ready += (start, _word(command[-1]))
        size_bytes += len(start) + len(ready[-1])
        if size_bytes >= WRITE_BYTES:
            yield b"".join(ready)
            ready.clear()
            size_bytes = 0
    if ready:
        yield b"".join(ready)


def _word(word: str | bytes) -> bytes:
    raw = word.encode() if isinstance(word, str) else word
    return b"$%d\r\n%b\r\n" % (len(raw), raw)


def _answer(connection: AbstractConnection) -> object:
    """The next one; an error of this command alone is an answer, too."""
    try:
        return connection.read_response()
    except ResponseError as error:
        if _PROTOCOL in str(error):
            raise _Unreadable(error) from error
        return error


def _behind(first: Outcome) -> Outcome:
    """What becomes of those that were sent with one that the connection, or the transaction, ended with."""
    if isinstance(first, Retry) and first.reason in (CONNECT, MISCONFIGURED):
        return first
    why = first.error if isinstance(first, Retry | Dead) else ""
    return Retry(RESET, clip(f"the connection ended with an earlier event: {why}", ERROR_CHARACTERS), counted=False)


def outcome_of(answer: object) -> Outcome:
    """What the server's answer to one command, or the lack of it, means for its event."""
    if not isinstance(answer, BaseException):
        return DELIVERED
    if isinstance(answer, NotConnected):
        outcome: Outcome = answer.args[0]
        return outcome
    if isinstance(answer, TimedOut):
        return Retry(TIMEOUT, f"no complete answer in time: {text_of(answer)}")
    if isinstance(answer, NoPermissionError | AuthenticationError | AuthorizationError):
        return blameless(MISCONFIGURED, text_of(answer))
    if isinstance(answer, BusyLoadingError):  # redis-py takes it for a connection error, and hangs up
        return blameless(UNAVAILABLE, text_of(answer))
    if isinstance(answer, ResponseError | RedisError) and not isinstance(answer, Disconnected):
        text = str(answer)
        word = text.partition(" ")[0]
        if _PROTOCOL in text and _TOO_LONG in text:
            return Dead(INVALID, f"the server refuses an entry of that size, see its proto-max-bulk-len: {text}")
        if _PROTOCOL in text and _UNKNOWN_USER in text:
            return Retry(MISCONFIGURED, text_of(answer), counted=False)
        if word in _REFUSED:
            return blameless(MISCONFIGURED, text_of(answer))
        if word in _PASSING or isinstance(answer, _PASSING_ERRORS):
            return blameless(UNAVAILABLE, text_of(answer))
        return Retry(SERVER_ERROR, text_of(answer))
    return Retry(RESET, f"the connection ended before the answer did: {text_of(answer)}")


def text_of(error: BaseException) -> str:
    """An error's text, fit to be shown."""
    return clip(redact(str(error) or type(error).__name__), ERROR_CHARACTERS)
