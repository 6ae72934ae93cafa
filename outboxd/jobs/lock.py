"""The lock of a job, which its runs under policies 2 and 3 need: in Redis for all nodes, or in memory for this one.

Invariants:
- Whoever takes it gives a token of his own, and only a call with the same token renews or frees it.
- In Redis it is the key `job:lock:{id}`, and frees itself `held_for_s` after it was taken or renewed: a node that dies
  keeps it no longer. In memory it goes with the process.
"""

import threading
import time
from typing import Protocol

from redis.exceptions import ConnectionError as Unconnected
from redis.exceptions import RedisError

from outboxd.clients.redis import connect
from outboxd.errors import LockUnavailable
from outboxd.redact import clip, redact

HELD_FOR_S = 300.0
TIMEOUT_S = 2.0
REST_S = 1.0
"""So long after a failure Redis is not asked again: many runs would wait for its time-outs, one after the other."""
_ERROR_CHARACTERS = 200

# Each may be made twice, with the same result: an answer that was lost on the way does no harm.
TAKE = """
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
RENEW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""
FREE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return 1
"""


class JobLock(Protocol):
    """Calls may come from any thread. Each may raise LockUnavailable: then it is not known what has become of it."""

    @property
    def held_for_s(self) -> float:
        """How long it is held without being renewed."""

    def take(self, job_id: int, token: str) -> bool:
        """Is it ours now? False: somebody else has it."""

    def renew(self, job_id: int, token: str) -> bool:
        """Hold it for held_for_s from now on. False: it is not ours any more, and nothing was changed."""

    def free(self, job_id: int, token: str, after_s: float = 0.0) -> bool:
        """Give it back, or let it free itself after_s from now. False: as `renew`."""


class MemoryLock:
    """Among the threads of this process."""

    held_for_s = float("inf")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._owners: dict[int, str] = {}

    def take(self, job_id: int, token: str) -> bool:
        with self._mutex:
            return self._owners.setdefault(job_id, token) == token

    def renew(self, job_id: int, token: str) -> bool:
        with self._mutex:
            return self._owners.get(job_id) == token

    def free(self, job_id: int, token: str, after_s: float = 0.0) -> bool:
        """after_s: it stays until the process ends, which is sooner."""
        with self._mutex:
            if self._owners.get(job_id) != token:
                return False
            if not after_s:
                del self._owners[job_id]
            return True


class RedisLock:
    """Among all nodes with the same server. Times are parameters for tests."""

    def __init__(self, url: str, held_for_s: float = HELD_FOR_S, timeout_s: float = TIMEOUT_S) -> None:
        """Nothing is sent yet. Raises PublisherError for a URL that cannot be used."""
        self.held_for_s = held_for_s
        self._redis = connect(url, timeout_s)
        self._mutex = threading.Lock()  # the client has one connection
        self._rest_until_s = 0.0
        self._error = ""

    def take(self, job_id: int, token: str) -> bool:
        return self._ask(TAKE, job_id, token, self.held_for_s)

    def renew(self, job_id: int, token: str) -> bool:
        return self._ask(RENEW, job_id, token, self.held_for_s)

    def free(self, job_id: int, token: str, after_s: float = 0.0) -> bool:
        return self._ask(RENEW, job_id, token, after_s) if after_s else self._ask(FREE, job_id, token, 0.0)

    def close(self) -> None:
        """Close the connection; locks stay as they are."""
        with self._mutex:
            self._redis.close()

    def _ask(self, script: str, job_id: int, token: str, time_s: float) -> bool:
        arguments = (f"job:lock:{job_id}", token, str(round(time_s * 1000)))
        with self._mutex:
            if time.monotonic() < self._rest_until_s:
                raise LockUnavailable(self._error)
            try:
                try:
                    return bool(self._redis.eval(script, 1, *arguments))
                except Unconnected:  # the server has closed an idle connection, or was restarted
                    return bool(self._redis.eval(script, 1, *arguments))
            except RedisError as error:
                self._rest_until_s = time.monotonic() + REST_S
                self._error = clip(redact(f"{type(error).__name__}: {error}"), _ERROR_CHARACTERS)
                raise LockUnavailable(self._error) from error


def open_lock(redis_url: str | None) -> JobLock:
    """For all nodes where there is a Redis, else for this one alone."""
    return MemoryLock() if redis_url is None else RedisLock(redis_url)
