"""Who serves a room: a lease in Redis, one for each room, of one node at a time.

The lease keeps two nodes from working on one room at once; it is no proof. A node that was frozen may believe in one
that is over, and Redis may forget one. What nobody gets past is the room's epoch in the database (store.py).
"""

import secrets
import time
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

TIMEOUT_S = 1.0

# Each asks and acts in one step: by the time of a second question the answer might be another one.
_TAKE = """
local before = redis.call('GET', KEYS[1])
if not before then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return before
"""
_RENEW = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2])"
_RELEASE = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])"


class NoLeases(Exception):
    """Redis cannot be asked."""


class OwnedElsewhere(Exception):
    """Another node serves the room. url: where it is."""

    def __init__(self, url: str) -> None:
        super().__init__(f"the room is served by {url}")
        self.url = url


@dataclass(frozen=True, slots=True)
class Lease:
    """Of one room. until_s: the monotonic time up to which it is ours at least."""

    room_id: str
    value: str
    until_s: float


class Leases:
    """Those of one process; threads may share it. Every call ends within seconds, and raises NoLeases."""

    def __init__(self, redis_url: str, url: str, lease_ms: int) -> None:
        self._redis: Redis = Redis.from_url(
            redis_url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0)
        )
        self._url = url
        self._lease_ms = lease_ms

    def take(self, room_id: str) -> Lease:
        """A lease that nobody else has. Raises OwnedElsewhere while somebody has it."""
        value = f"{secrets.token_hex(8)} {self._url}"
        until_s = self._until_s()
        try:
            before: Any = self._redis.eval(_TAKE, 1, _key(room_id), value, str(self._lease_ms))
        except (RedisError, OSError) as error:
            raise NoLeases(f"the lease of {room_id} cannot be had: {error}") from error
        if before is not None:
            raise OwnedElsewhere(before.decode().partition(" ")[2])
        return Lease(room_id, value, until_s)

    def keep(self, lease: Lease) -> Lease | None:
        """The lease while it is ours, made longer in its second half; None if it is lost."""
        if lease.until_s - time.monotonic() > self._lease_ms / 2000:
            return lease
        until_s = self._until_s()
        try:
            kept = self._redis.eval(_RENEW, 1, _key(lease.room_id), lease.value, str(self._lease_ms))
        except (RedisError, OSError) as error:
            raise NoLeases(f"the lease of {lease.room_id} cannot be kept: {error}") from error
        return Lease(lease.room_id, lease.value, until_s) if kept else None

    def release(self, lease: Lease) -> None:
        """Let others have it at once."""
        try:
            self._redis.eval(_RELEASE, 1, _key(lease.room_id), lease.value)
        except (RedisError, OSError):  # it runs out by itself
            pass

    def _until_s(self) -> float:
        # From before the question on, so that it is over for us no later than for Redis.
        return time.monotonic() + self._lease_ms / 1000


def _key(room_id: str) -> str:
    return f"room_service:lease:{room_id}"
