"""Idempotent consumption: "have I done this event before?", answered in the consumer's own transaction, or in Redis.

    from outboxd.inbox import first_time
    from outboxd.message import decode

    message = decode(body)
    if first_time(cursor, "billing", message.event_id, message.app_code):
        ...                                  # the effect, through the same connection
    connection.commit()                      # effect and memory together, or neither
    acknowledge(body)                        # to the queue, afterwards

Two consumers that get the same event at once: the second waits for the first one's transaction, then does nothing. If
the first rolls back, the second does it. In Redis, where the effect is outside any transaction, see RedisInbox.
"""

import contextlib
import secrets
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from redis import Redis

KEEP_S = 7 * 86_400.0
"""How long an event is remembered unless said otherwise. Longer than a queue may redeliver it."""
CONSUMER_CHARACTERS, EVENT_ID_CHARACTERS, APP_CODE_CHARACTERS = 64, 64, 32
"""The widths of the columns. What does not fit is refused: cut, two events might look like one."""

_INSERT = "INTO outboxd_inbox (consumer, app_code, event_id, done_at_ms) VALUES"


class Cursor(Protocol):
    """A DB-API cursor: of mysqlclient, PyMySQL (parameters as %s) or sqlite3 (as ?)."""

    @property
    def rowcount(self) -> int: ...
    def execute(self, sql: str, parameters: tuple[object, ...], /) -> object: ...


class Busy(Exception):
    """Another consumer of the same name is at this event right now: leave it to the queue to deliver it again."""


def check_names(consumer: str, event_id: str, app_code: str = "") -> None:
    """Raises ValueError for a name that no memory can hold: cut, or squeezed into ASCII, two might look like one."""
    for name, value, most in (
        ("consumer", consumer, CONSUMER_CHARACTERS),
        ("event_id", event_id, EVENT_ID_CHARACTERS),
        ("app_code", app_code, APP_CODE_CHARACTERS),
    ):
        if len(value) > most or (name != "app_code" and not (value and value.isascii())):
            kind = "text" if name == "app_code" else "ASCII text that is not empty"
            raise ValueError(f"{name} {value[:80]!r} does not fit: {kind} of at most {most} characters")


def first_time(cursor: Cursor, consumer: str, event_id: str, app_code: str = "") -> bool:
    """Remember that the consumer does this event, in the cursor's transaction; False if it has done it before.

    Raises ValueError for names that do not fit, and what the driver raises.
    """
    check_names(consumer, event_id, app_code)
    now_ms = time.time_ns() // 1_000_000
    # IGNORE hides other faults than the repetition, too: those of names that do not fit, which were looked at.
    if _is_sqlite(cursor):
        sql = f"INSERT OR IGNORE {_INSERT} (?, ?, ?, ?)"
    else:
        sql = f"INSERT IGNORE {_INSERT} (%s, %s, %s, %s)"
    cursor.execute(sql, (consumer, app_code, event_id, now_ms))
    return cursor.rowcount == 1


def forget(cursor: Cursor, consumer: str, older_than_s: float = KEEP_S, limit: int = 5000) -> int:
    """Delete what was done longer ago than that, at most `limit` rows; how many it were. Commit, then call it again
    while it deletes as many as `limit`.
    """
    before_ms = time.time_ns() // 1_000_000 - round(older_than_s * 1000)
    if _is_sqlite(cursor):
        key = "consumer, app_code, event_id"
        old = f"SELECT {key} FROM outboxd_inbox WHERE consumer = ? AND done_at_ms < ? LIMIT ?"
        sql = f"DELETE FROM outboxd_inbox WHERE ({key}) IN ({old})"
    else:
        sql = "DELETE FROM outboxd_inbox WHERE consumer = %s AND done_at_ms < %s ORDER BY done_at_ms LIMIT %s"
    cursor.execute(sql, (consumer, before_ms, limit))
    return cursor.rowcount


def table_sql(dialect: str) -> str:
    """The CREATE TABLE statement, for a consumer's own database; dialect: mysql (MariaDB too) or sqlite. In outboxd's
    own database `outboxd init-db` makes it.
    """
    from outboxd.store.migrations import load  # noqa: PLC0415  consumers need it once, and nothing of it later

    return load(dialect)["inbox"]


class RedisInbox:
    """The same in Redis, for effects that no transaction holds. redis: a client of yours. keep_s: how long an event
    is remembered. busy_s: how long one that is being done stays reserved; an effect must not take longer.

    An effect happens at least once: if the process ends between it and its memory, it happens again.
    """

    def __init__(self, redis: "Redis", consumer: str, keep_s: float = KEEP_S, busy_s: float = 60.0) -> None:
        self._redis = redis
        self._consumer = consumer
        self._keep_ms = round(keep_s * 1000)
        self._busy_ms = round(busy_s * 1000)

    @contextlib.contextmanager
    def once(self, event_id: str, app_code: str = "") -> Iterator[bool]:
        """`with inbox.once(id) as first: if first: ...`: remembered as done when the block ends without an exception.

        Raises Busy, ValueError, and what redis raises.
        """
        check_names(self._consumer, event_id, app_code)
        key, token = self._key(event_id, app_code), secrets.token_hex(16)
        if not self._redis.set(key, token, nx=True, px=self._busy_ms):
            if not _is_done(self._redis.get(key)):
                raise Busy(f"{event_id} is being done by another {self._consumer}")
            yield False
            return
        try:
            yield True
        except BaseException:
            with contextlib.suppress(Exception):  # it runs out by itself; the effect's own error is what counts
                self._redis.eval(_GIVE_BACK, 1, key, token)
            raise
        self._redis.set(key, DONE, px=self._keep_ms)

    def is_done(self, event_id: str, app_code: str = "") -> bool:
        """Was it done?"""
        return _is_done(self._redis.get(self._key(event_id, app_code)))

    def remember(self, event_id: str, app_code: str = "") -> None:
        """It is done."""
        self._redis.set(self._key(event_id, app_code), DONE, px=self._keep_ms)

    def _key(self, event_id: str, app_code: str) -> str:
        # With the lengths, no two triples look the same, whatever is in them.
        parts = (self._consumer, app_code, event_id)
        return "outboxd:inbox:" + ":".join(f"{len(part)}:{part}" for part in parts)


DONE = b"done"
_GIVE_BACK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


def _is_done(found: object) -> bool:
    """A client made with decode_responses answers with text."""
    return found in (DONE, DONE.decode())


def _is_sqlite(cursor: Cursor) -> bool:
    return any(kind.__module__.startswith("sqlite3") for kind in type(cursor).__mro__)
