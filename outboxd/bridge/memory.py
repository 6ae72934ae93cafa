"""Which events the bridge has done: in Redis, or in the table outboxd_inbox of the daemon's own database."""

import contextlib
import hashlib
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from outboxd.errors import StoreError, StoreRefused, SubscriptionError
from outboxd.inbox import CONSUMER_CHARACTERS, KEEP_S, RedisInbox
from outboxd.message import Message
from outboxd.redact import clip, redact
from outboxd.store.connection import Connection

Answer = TypeVar("Answer")

CLEAN_EVERY_S = 3600.0
CLEAN_ROWS = 5000
MOST_LANES = 100


class Memory(Protocol):
    """Raises SubscriptionError when it cannot be asked now, StoreRefused when a person must act."""

    def is_done(self, message: Message) -> bool:
        """Has this group done the event?"""

    def remember(self, message: Message) -> None:
        """It has."""

    def close(self) -> None:
        """Never raises."""


def consumer_of(group: str, lane: str) -> str:
    """The name under which a group remembers: an event_id is unique within its lane only."""
    name = f"{group}/{lane}"
    if len(name) <= CONSUMER_CHARACTERS and name.isascii():
        return name
    return f"{group[:22]}/{hashlib.sha256(name.encode()).hexdigest()[:40]}"


class RedisMemory:
    """A Memory in Redis. Loads redis."""

    def __init__(self, url: str, group: str, timeout_s: float = 5.0) -> None:
        from outboxd.clients.redis import connect  # noqa: PLC0415  a client is loaded where it is used

        self._redis = connect(url, timeout_s / 2)
        self._group = group

    def is_done(self, message: Message) -> bool:
        """One GET."""
        return _asked(lambda: self._inbox(message).is_done(message.event_id, message.app_code))

    def remember(self, message: Message) -> None:
        """One SET."""
        _asked(lambda: self._inbox(message).remember(message.event_id, message.app_code))

    def _inbox(self, message: Message) -> RedisInbox:
        return RedisInbox(self._redis, consumer_of(self._group, message.lane))

    def close(self) -> None:
        """Give the connection back."""
        from redis.exceptions import RedisError  # noqa: PLC0415  as above

        with contextlib.suppress(RedisError, OSError):
            self._redis.close()


def _asked(ask: Callable[[], Answer]) -> Answer:
    from redis.exceptions import RedisError  # noqa: PLC0415  as above

    try:
        return ask()
    except (RedisError, OSError) as error:
        raise SubscriptionError(f"the memory of what is done, in redis: {clip(redact(str(error)), 300)}") from error


class TableMemory:
    """A Memory in outboxd_inbox."""

    def __init__(self, open_connection: Callable[[], Connection], group: str) -> None:
        self._open = open_connection
        self._group = group
        self._connection: Connection | None = None
        self._clean_at_s: dict[str, float] = {}

    def is_done(self, message: Message) -> bool:
        """One SELECT by the primary key."""
        sql = f"SELECT 1 FROM outboxd_inbox WHERE {_KEY}"
        return bool(self._run(lambda connection: connection.query(sql, self._key(message))))

    def remember(self, message: Message) -> None:
        """One INSERT; and, from time to time, what is old is deleted."""
        now_ms = time.time_ns() // 1_000_000
        values = {**self._key(message), "now_ms": now_ms}
        columns = "INTO outboxd_inbox (consumer, app_code, event_id, done_at_ms)"
        dialect = self._run(lambda connection: connection.dialect)
        ignore = "OR IGNORE" if dialect == "sqlite" else "IGNORE"
        sql = f"INSERT {ignore} {columns} VALUES (:consumer, :app_code, :event_id, :now_ms)"
        self._run(lambda connection: connection.execute(sql, values))
        if time.monotonic() >= self._clean_at_s.get(message.lane, 0.0):
            if len(self._clean_at_s) >= MOST_LANES:
                self._clean_at_s.clear()
            self._clean_at_s[message.lane] = time.monotonic() + CLEAN_EVERY_S
            self._clean(dialect, str(values["consumer"]), now_ms - round(KEEP_S * 1000))

    def _clean(self, dialect: str, consumer: str, before_ms: int) -> None:
        key, old = "consumer, app_code, event_id", "consumer = :consumer AND done_at_ms < :before_ms"
        sql = f"DELETE FROM outboxd_inbox WHERE {old} ORDER BY done_at_ms LIMIT {CLEAN_ROWS}"
        if dialect == "sqlite":
            rows = f"SELECT {key} FROM outboxd_inbox WHERE {old} LIMIT {CLEAN_ROWS}"
            sql = f"DELETE FROM outboxd_inbox WHERE ({key}) IN ({rows})"
        values = {"consumer": consumer, "before_ms": before_ms}
        with contextlib.suppress(SubscriptionError):  # the next hour does it
            self._run(lambda connection: connection.execute(sql, values))

    def _key(self, message: Message) -> dict[str, object]:
        consumer = consumer_of(self._group, message.lane)
        return {"consumer": consumer, "app_code": message.app_code, "event_id": message.event_id}

    def _run(self, ask: Callable[[Connection], Answer]) -> Answer:
        try:
            if self._connection is None:
                self._connection = self._open()
            return ask(self._connection)
        except StoreRefused:
            raise
        except StoreError as error:
            self.close()
            raise SubscriptionError(f"the memory of what is done, outboxd_inbox: {error}") from error

    def close(self) -> None:
        """Give the session back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_KEY = "consumer = :consumer AND app_code = :app_code AND event_id = :event_id"
