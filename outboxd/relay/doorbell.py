"""A lane's doorbell: producers ring through Redis, and an idle worker looks at once instead of at its next poll.

Invariants:
- Whatever Redis does (refuses, hangs, goes away, floods), the worker's loop never waits for it: a thread owns the
  connection, and rings through a descriptor in the loop's selector. What is lost costs latency, up to `poll_interval`.
- A ring is told once what came before it may be seen: one that comes while the worker looks is heard after that look.
- A burst is few rings: after each the thread rests, and what has come meanwhile is read at once and thrown away.
- A worker that is rung and finds nothing hears the next ring later, up to LONGEST_DELAY_S, until it finds work. So of
  many workers one or two are quick, and the others, who hardly ask, step in where the quick ones are busy or gone.
"""

import contextlib
import math
import os
import random
import select
import socket
import threading
import time
from collections.abc import Iterator

from outboxd import log
from outboxd.backoff import exponential, jittered
from outboxd.errors import SubscriptionError
from outboxd.producer import channel
from outboxd.redact import clip, redact

REST_S = 0.001
FIRST_DELAY_S = 0.002
LONGEST_DELAY_S = 0.04
ANSWER_S = 5.0
"""The longest wait for Redis: to connect, to log in, to answer a PING."""
PING_AFTER_S = 10.0
"""A connection that has been silent for so long is asked whether it still is one."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
JITTER = 0.5
LASTED_S = 10.0
"""A subscription that has held for so long ends the count of failures."""

_READ_BYTES = 1 << 16
_PING = b"*1\r\n$4\r\nPING\r\n"
_PONGS = (b"*2\r\n$4\r\npong\r\n$0\r\n\r\n", b"+PONG\r\n")
"""Of RESP2 in a subscription, and of RESP3."""


class Doorbell:
    """The subscription of one worker. url: of Redis; None: it never rings, and there is no thread."""

    def __init__(self, url: str | None, lane: str) -> None:
        self._lane = lane
        self._is_rung = url is not None
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._has_rung = False
        self._delay_s = FIRST_DELAY_S
        self._closed = threading.Event()
        self._socket: socket.socket | None = None
        if url is not None:
            threading.Thread(target=self._listen, args=(url,), name="doorbell", daemon=True).start()

    def fileno(self) -> int:
        """Readable when it has rung; then call `heard`."""
        return self._descriptor

    def heard(self) -> bool:
        """Has it rung since the last call? Look after this, not before."""
        if not self._has_rung:
            return False
        with self._lock:
            self._has_rung = False
            os.eventfd_read(self._descriptor)
        return True

    def answered(self, found: bool) -> None:
        """What became of a ring: did the worker get work?"""
        self._delay_s = 0.0 if found else min(LONGEST_DELAY_S, max(FIRST_DELAY_S, 2 * self._delay_s))

    @property
    def is_quick(self) -> bool:
        """Did it find work when it was last rung? Then it may count on the next ring."""
        return self._is_rung and not self._delay_s

    def close(self) -> None:
        """It rings no more, and its thread ends as soon as it can."""
        self._closed.set()
        with self._lock:
            self._has_rung = False
            os.close(self._descriptor)
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    # in the thread

    def _ring(self) -> None:
        with self._lock:
            if not self._has_rung and not self._closed.is_set():
                self._has_rung = True
                os.eventfd_write(self._descriptor, 1)

    def _listen(self, url: str) -> None:
        failures, is_away = 0, False
        while not self._closed.is_set():
            since_s = math.inf
            try:
                with subscribed(url, self._lane) as connection:
                    since_s = time.monotonic()
                    if is_away:
                        log.info(log.DOORBELL_AVAILABLE, lane=self._lane)
                    is_away = False
                    self._heed(connection)
            except Exception as error:  # noqa: BLE001  the thread must go on, whatever the client thinks of
                if self._closed.is_set():
                    return
                failures = 1 if time.monotonic() - since_s >= LASTED_S else failures + 1
                if not is_away:
                    log.warning(log.DOORBELL_UNAVAILABLE, lane=self._lane, error=_text(error))
                is_away = True
                pause_s = exponential(failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
                self._closed.wait(jittered(pause_s, JITTER, random.random))

    def _heed(self, connection: socket.socket) -> None:
        """Until the connection ends, which raises OSError."""
        with self._lock:
            self._socket = connection
        try:
            self._ring()  # for what was committed while nobody listened
            has_asked = False
            while not self._closed.is_set():
                connection.settimeout(ANSWER_S if has_asked else PING_AFTER_S)
                try:
                    received = connection.recv(_READ_BYTES)
                except TimeoutError as error:
                    if has_asked:
                        raise TimeoutError("Redis does not answer any more") from error
                    connection.sendall(_PING)
                    has_asked = True
                    continue
                if not received:
                    raise ConnectionResetError("Redis has closed the connection")
                has_asked = False
                # Nobody reads further than this: a ring that is cut in two is heard twice.
                if received not in _PONGS:
                    self._pass_on(connection)
        finally:
            with self._lock:
                self._socket = None

    def _pass_on(self, connection: socket.socket) -> None:
        delay_s = self._delay_s * (0.5 + random.random())
        if not delay_s:
            self._ring()
            time.sleep(REST_S)
            return
        time.sleep(delay_s)
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        if poll.poll(0):
            connection.recv(_READ_BYTES)  # rung meanwhile; should it be the end of the connection, the next read tells
        self._ring()


@contextlib.contextmanager
def subscribed(url: str, lane: str) -> Iterator[socket.socket]:
    """A connection that is logged in, and subscribed to the lane's doorbell. It is read without the client, which would
    make an object of each ring. Raises PublisherError, SubscriptionError, and what the client and the network raise.
    """
    # Here, since the supervisor must not load the client.
    from outboxd.clients.redis import connect  # noqa: PLC0415

    redis = connect(url, ANSWER_S)
    try:
        connection = redis.connection_pool.get_connection()
        connection.send_command("SUBSCRIBE", channel(lane))
        reader = connection._get_socket()
        assert reader is not None  # it is connected
        answer = reader.recv(_READ_BYTES)
        if not answer or answer.startswith(b"-"):
            raise SubscriptionError(answer[1:].decode(errors="replace").strip() or "the connection was closed")
        yield reader
    finally:
        redis.close()


def _text(error: Exception) -> str:
    return clip(redact(str(error) or type(error).__name__), 300)
