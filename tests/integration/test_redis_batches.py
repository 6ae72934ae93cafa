"""A batch that Redis answers in part: whose failure is whose."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator

from outboxd.event import INVALID, RESET, TIMEOUT, Dead, Delivered, Event, Outcome, Retry
from outboxd.message import encode
from outboxd.publishers.redis_pipe import Pipe
from tests.services.find import free_port
from tests.services.publishing import make_event
from tests.services.redis_server import RedisServer, client

TIMEOUT_S = 1.0


@contextlib.contextmanager
def piping(url: str) -> Iterator[Pipe]:
    """What the publisher writes through, a whole batch at once."""
    pipe = Pipe(url, TIMEOUT_S)
    yield pipe
    pipe.close()


def exchange(pipe: Pipe, events: list[Event]) -> list[Outcome]:
    """The batch's outcomes."""
    return pipe.exchange([("XADD", "s", "*", b"m", encode(event)) for event in events], time.monotonic() + TIMEOUT_S)


def blamed(outcome: Outcome) -> tuple[str, bool]:
    """Why it failed, and whether the event is blamed for it."""
    assert isinstance(outcome, Retry), outcome
    return outcome.reason, outcome.counted


class HalfWay:
    """A server that accepts the first events of a batch, then breaks the connection."""

    def __init__(self, answers: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0?protocol=2"
        self._answers = answers
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                data = b""
                while b"XADD" not in data:
                    received = connection.recv(65536)
                    if not received:
                        break
                    data = received
                    if b"XADD" not in data:
                        connection.sendall(b"+OK\r\n" * data.count(b"*"))
                else:
                    connection.sendall(b"$3\r\n1-1\r\n" * self._answers)

    def close(self) -> None:
        self._listener.close()


def test_answers_from_before_the_connection_broke_count() -> None:
    """G1: an event is published again only if its own answer did not arrive. G7: the first of those may be what broke
    it; those behind it are not blamed.
    """
    server = HalfWay(answers=4)
    events = [make_event() for _ in range(10)]
    with piping(server.url) as pipe:
        outcomes = exchange(pipe, events)
    server.close()
    assert [type(outcome) for outcome in outcomes] == [Delivered] * 4 + [Retry] * 6
    assert [blamed(outcome) for outcome in outcomes[4:]] == [(RESET, True)] + [(RESET, False)] * 5


def test_of_a_batch_that_is_not_answered_in_time_the_first_event_alone_is_blamed(own_redis: RedisServer) -> None:
    """G7: if it is an event that hangs the server, it is that one."""
    with piping(own_redis.url) as pipe:
        assert isinstance(exchange(pipe, [make_event()])[0], Delivered)
        os.kill(own_redis.pid, signal.SIGSTOP)
        outcomes = exchange(pipe, [make_event() for _ in range(10)])
        os.kill(own_redis.pid, signal.SIGCONT)
    assert [blamed(outcome) for outcome in outcomes] == [(TIMEOUT, True)] + [(RESET, False)] * 9


def test_an_event_too_large_for_the_server_ends_alone(own_redis: RedisServer) -> None:
    """G7: the server closes the connection over it, while the others of its batch are written. Each of them goes
    through, and none is blamed.
    """
    with contextlib.closing(client(own_redis.url)) as redis:
        redis.config_set("proto-max-bulk-len", 1024 * 1024)
    large = b'"%b"' % (b"x" * 2 * 1024 * 1024)
    events = [make_event(envelope=large) if number == 3 else make_event() for number in range(10)]
    with piping(own_redis.url) as pipe:
        outcomes = exchange(pipe, events)
        assert [type(outcome) for outcome in outcomes] == [Delivered] * 3 + [Dead] + [Retry] * 6
        dead = outcomes[3]
        assert isinstance(dead, Dead)
        assert dead.reason == INVALID
        assert "refuses an entry of that size, see its proto-max-bulk-len" in dead.error
        assert [blamed(outcome) for outcome in outcomes[4:]] == [(RESET, False)] * 6
        assert {type(outcome) for outcome in exchange(pipe, events[4:])} == {Delivered}
    with contextlib.closing(client(own_redis.url)) as redis:
        assert redis.xlen("s") == 9
