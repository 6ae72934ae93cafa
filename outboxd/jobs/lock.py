"""The lock of a job, which its runs under policies 2 and 3 need: in Redis for all nodes, or in memory for this one.

Invariants:
- Whoever takes it gives a token of his own, and only a call with the same token renews or frees it. It begins with the
  lock's mark, which tells of which database the run is: the key alone does not.
- In Redis it is the key `job:lock:{id}`, and frees itself `held_for_s` after it was taken or renewed: a node that dies
  keeps it no longer. In memory it goes with the process.
"""

import hashlib
import threading
import time
from pathlib import Path
from typing import Protocol

from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError
from redis.exceptions import ConnectionError as Unconnected

from outboxd.clients.redis import connect
from outboxd.config.schema import Database
from outboxd.errors import LockUnavailable
from outboxd.redact import clip, redact

HELD_FOR_S = 300.0
TIMEOUT_S = 2.0
REST_S = 1.0
"""So long after a failure Redis is not asked again: many runs would wait for its time-outs, one after the other."""
_ERROR_CHARACTERS = 200
RIGHTS = "~job:lock:* +eval +get +set +del +pexpire +pttl"
"""What the user of redis.url needs for locks, where Redis has access control."""
OTHER_DATABASE = (
    "held by a run of another database: give each database a Redis of its own, or another number (redis://…/1)"
)

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
# PTTL may be refused: then only that is not known. nil: the key is gone.
LOOK = """
local owner = redis.call('GET', KEYS[1])
if not owner then return nil end
local left_ms = redis.pcall('PTTL', KEYS[1])
return {owner, type(left_ms) == 'number' and left_ms or 0}
"""


class JobLock(Protocol):
    """Calls may come from any thread. Each may raise LockUnavailable: then it is not known what has become of it."""

    @property
    def held_for_s(self) -> float:
        """How long it is held without being renewed."""

    @property
    def mark(self) -> str:
        """What tokens begin with."""

    def take(self, job_id: int, token: str) -> bool:
        """Is it ours now? False: somebody else has it."""

    def renew(self, job_id: int, token: str) -> bool:
        """Hold it for held_for_s from now on. False: it is not ours any more, and nothing was changed."""

    def free(self, job_id: int, token: str, after_s: float = 0.0) -> bool:
        """Give it back, or let it free itself after_s from now. False: as `renew`."""

    def stranger(self, job_id: int) -> str:
        """Who has it, and what to do, if that is no run of this database; else ""."""


class MemoryLock:
    """Among the threads of this process."""

    held_for_s = float("inf")
    mark = ""

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

    def stranger(self, job_id: int) -> str:
        """Only threads of this process have it."""
        return ""


class RedisLock:
    """Among all nodes with the same server. Times are parameters for tests."""

    def __init__(
        self, url: str, mark: str = "", held_for_s: float = HELD_FOR_S, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Nothing is sent yet. Raises PublisherError for a URL that cannot be used."""
        self.held_for_s = held_for_s
        self.mark = mark
        self._redis = connect(url, timeout_s)
        self._mutex = threading.Lock()  # the client has one connection
        self._rest_until_s = 0.0
        self._error = ""

    def take(self, job_id: int, token: str) -> bool:
        return self._own(TAKE, job_id, token, self.held_for_s)

    def renew(self, job_id: int, token: str) -> bool:
        return self._own(RENEW, job_id, token, self.held_for_s)

    def free(self, job_id: int, token: str, after_s: float = 0.0) -> bool:
        return self._own(RENEW if after_s else FREE, job_id, token, after_s)

    def stranger(self, job_id: int) -> str:
        key = f"job:lock:{job_id}"
        try:
            found = self._ask(LOOK, job_id, "", 0.0)
        except LockOfAnotherKind as error:
            return f"the key {key} in Redis is no lock: {error}; remove it"
        if not isinstance(found, list):
            return ""
        owner, left_ms = found
        if left_ms == -1:
            return f"the key {key} in Redis never expires, so no run has set it: remove it (DEL {key})"
        return "" if bytes(owner).startswith(self.mark.encode()) else OTHER_DATABASE

    def close(self) -> None:
        """Close the connection; locks stay as they are."""
        with self._mutex:
            self._redis.close()

    def _own(self, script: str, job_id: int, token: str, time_s: float) -> bool:
        try:
            return bool(self._ask(script, job_id, token, time_s))
        except LockOfAnotherKind:  # no token of ours
            return False

    def _ask(self, script: str, job_id: int, token: str, time_s: float) -> object:
        """Raises LockUnavailable, LockOfAnotherKind."""
        arguments = (f"job:lock:{job_id}", token, str(round(time_s * 1000)))
        with self._mutex:
            if time.monotonic() < self._rest_until_s:
                raise LockUnavailable(self._error)
            try:
                try:
                    return self._redis.eval(script, 1, *arguments)
                except AuthenticationError:
                    raise
                except Unconnected:  # the server has closed an idle connection, or was restarted
                    return self._redis.eval(script, 1, *arguments)
            except (ResponseError, AuthenticationError) as error:
                raise _refused(error) from error
            except RedisError as error:
                self._rest_until_s = time.monotonic() + REST_S
                self._error = f"Redis gave no answer: {_shown(error)}"
                raise LockUnavailable(self._error) from error


class LockOfAnotherKind(Exception):
    """A key of the lock's name holds something else."""


def _refused(error: RedisError) -> Exception:
    """Redis has answered, and does not do it."""
    if isinstance(error, AuthenticationError):
        return LockUnavailable(f"Redis refused it: {_shown(error)}; look at user and password of redis.url")
    if "WRONGTYPE" in str(error):
        return LockOfAnotherKind(_shown(error))
    if isinstance(error, NoPermissionError) or "NOPERM" in str(error) or "ACL failure" in str(error):
        return LockUnavailable(f"Redis refused it: {_shown(error)}; the user of redis.url needs {RIGHTS}")
    return LockUnavailable(f"Redis refused it: {_shown(error)}")


def _shown(error: RedisError) -> str:
    return clip(redact(f"{type(error).__name__}: {error}"), _ERROR_CHARACTERS)


def mark_of(database: Database) -> str:
    """What tells runs of this database from those of others. Not its user, who may be another on each node; nobody
    reads the address out of it.
    """
    if database.scheme == "sqlite":
        address = str(Path(database.path).resolve())
    else:
        address = f"{database.unix_socket or database.host.lower()}:{database.port}/{database.name}"
    return hashlib.sha256(f"{database.scheme}:{address}".encode()).hexdigest()[:16] + ":"


def open_lock(redis_url: str | None, database: Database) -> JobLock:
    """For all nodes where there is a Redis, else for this one alone."""
    return MemoryLock() if redis_url is None else RedisLock(redis_url, mark_of(database))
