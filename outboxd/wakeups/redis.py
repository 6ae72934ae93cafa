"""Wake-ups from a Redis sorted set. Any number of nodes serve the same set; what one of them took and did not finish
comes due again.

Loads redis.
"""

import contextlib
import logging
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from redis.exceptions import RedisError

from outboxd.clients.redis import connect
from outboxd.errors import SubscriptionError
from outboxd.redact import clip, redact
from outboxd.wakeups import InvalidWakeup, Taken, decode

KEY = "outboxd:wakeups"
POLL_S = 0.2
"""So often the set is looked at while nothing is due: a wake-up that was added meanwhile is this late at the most."""

# Takes what is due by moving its score behind the lease: the member stays in the set until it is done, so that nothing
# is lost when whoever took it dies. The server's clock is everybody's.
_TAKE = """
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms, 'LIMIT', 0, ARGV[1])
for _, member in ipairs(due) do
  redis.call('ZADD', KEYS[1], 'XX', string.format('%.0f', now_ms + ARGV[2]), member)
end
return due
"""


class RedisWakeups:
    """A Wakeups; see outboxd.wakeups. lease_s: how long a wake-up stays hidden once it is taken. Every call ends within
    timeout_s (receive: and wait_s); it raises SubscriptionError when the server cannot be asked.
    """

    def __init__(
        self, url: str, key: str = KEY, *, lease_s: float = 30.0, limit: int = 20, timeout_s: float = 5.0
    ) -> None:
        self._redis = connect(url, timeout_s / 2)
        self._key = key
        self._take = self._redis.register_script(_TAKE)
        self._arguments = (limit, round(lease_s * 1000))

    def __enter__(self) -> "RedisWakeups":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def receive(self, wait_s: float) -> list[Taken]:
        """What is due now, or as soon as something is, at the latest after wait_s."""
        until_s = time.monotonic() + wait_s
        while True:
            with self._errors():
                members: Any = self._take(keys=[self._key], args=self._arguments)
                taken = [one for member in members if (one := self._read(member)) is not None]
            left_s = until_s - time.monotonic()
            if taken or left_s <= 0:
                return taken
            time.sleep(min(left_s, POLL_S))

    def _read(self, member: bytes) -> Taken | None:
        try:
            return Taken(decode(member), member, 0)
        except InvalidWakeup as error:  # someone else's: kept for a person, out of the way of the others
            why = f"{self._key}: moved to {self._key}:unreadable: {error}"
            logging.getLogger(__name__).error(why)  # noqa: TRY400  a trace of where it was read would say nothing
            pipeline = self._redis.pipeline(transaction=True)
            pipeline.sadd(f"{self._key}:unreadable", member)
            pipeline.zrem(self._key, member)
            pipeline.execute()
            return None

    def done(self, taken: Taken) -> None:
        """It has had its effect."""
        with self._errors():
            self._redis.zrem(self._key, taken.handle)  # type: ignore[arg-type]  # bytes, as made above

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            raise SubscriptionError(f"wake-ups in {self._key}: {clip(redact(str(error)), 300)}") from error

    def close(self) -> None:
        """What is not done comes due again when its lease is over."""
        self._redis.close()
