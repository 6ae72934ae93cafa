"""The doorbell: an application says that something was committed.

    connection.commit()                                          # the state change, and its row in the outbox
    ring("room_outbox", "redis://redis.internal:6379/0")         # it leaves within milliseconds

A ring is a hint and carries nothing. Whoever never rings, or rings in vain, waits for the relay's next look, which
comes within the lane's `poll_interval`; no event is lost by it. Rung before the commit it is wasted, since there is
nothing to be seen yet. In other languages, and from asyncio: `PUBLISH outboxd:doorbell:<lane> 1`, after the commit.
"""

import logging
import os
import threading
import time
from typing import Protocol

from outboxd.redact import clip, redact

URL_VARIABLE = "OUTBOXD_REDIS_URL"
TIMEOUT_S = 0.25
"""So long a caller waits for a connection, and again for an answer: a Redis that hangs costs a request no more."""
REST_S = 1.0
"""After a failure nothing is tried for so long: a Redis that is away costs one request a second its time, not all."""

_log = logging.getLogger("outboxd.producer")


def channel(lane: str) -> str:
    """Where a lane's doorbell is.

    >>> channel("room_outbox")
    'outboxd:doorbell:room_outbox'
    """
    return f"outboxd:doorbell:{lane}"


class Client(Protocol):
    """A client of your own, such as redis.Redis: it blocks, and its time-outs are yours."""

    def publish(self, channel: str, message: str, /) -> object: ...


def ring(lane: str, url: str | None = None, *, client: Client | None = None) -> bool:
    """Tell the lane's workers that something was committed; call it after the commit. Did Redis take it?

    It never raises: the event is committed, and a ring that is lost costs latency only. It repeats nothing. Its own
    connection is kept for the process and the URL, made anew after a fork, and shared by threads, of which one rings at
    a time. Changes between going and failing are logged once (`outboxd.producer`), every ring's success is returned.

    Args:
        lane: the lane's name, which is its table's.
        url: of Redis, with its password; without it that in $OUTBOXD_REDIS_URL. `rediss://` is TLS.
        client: used instead of a connection of ours.
    """
    if client is not None:
        try:
            client.publish(channel(lane), "1")
        except Exception as error:  # noqa: BLE001  whatever the client raises: the caller's request goes on
            _log.debug("the doorbell of %s was not rung: %s", lane, redact(str(error)))
            return False
        return True
    url = url or os.environ.get(URL_VARIABLE, "")
    key = (os.getpid(), url)
    bell = _bells.get(key) or _bells.setdefault(key, _Bell(url))
    return bell.ring(channel(lane))


class _Bell:
    """A connection of this process. Made anew after a fork, as the lock of another thread may be held for ever."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._redis: Client | None = None
        self._rests_until_s = 0.0
        self._is_failing = False

    def ring(self, name: str) -> bool:
        if time.monotonic() < self._rests_until_s or not self._lock.acquire(timeout=2 * TIMEOUT_S):
            return False
        try:
            if time.monotonic() < self._rests_until_s:  # whoever held the lock has just found out
                return False
            return self._publish(name)
        finally:
            self._lock.release()

    def _publish(self, name: str) -> bool:
        try:
            if self._redis is None:
                self._redis = _connect(self._url)
            self._redis.publish(name, "1")
        except Exception as error:  # noqa: BLE001  whatever it is: the event is committed, the caller's request goes on
            self._rests_until_s = time.monotonic() + REST_S
            if not self._is_failing:
                _log.warning("doorbells cannot be rung, events wait for the relay's next look: %s", _text(error))
            self._is_failing = True
            return False
        if self._is_failing:
            _log.info("doorbells can be rung again")
        self._is_failing = False
        return True


_bells: dict[tuple[int, str], _Bell] = {}


def _connect(url: str) -> Client:
    if not url:
        raise ValueError(f"no URL of Redis: pass one, or set {URL_VARIABLE}")
    # Here, so that importing this module costs an application nothing.
    from outboxd.clients.redis import connect  # noqa: PLC0415

    return connect(url, TIMEOUT_S)


def _text(error: Exception) -> str:
    return clip(redact(str(error) or type(error).__name__), 300)
