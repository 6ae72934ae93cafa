"""Locks of jobs in Redis, as tests open them: closed when the test ends."""

from outboxd.jobs.lock import HELD_FOR_S, RedisLock

_opened: list[RedisLock] = []


def redis_lock(url: str, held_for_s: float = HELD_FOR_S, mark: str = "") -> RedisLock:
    """One with a connection of its own, as a node has it."""
    _opened.append(RedisLock(url, mark, held_for_s))
    return _opened[-1]


def close_locks() -> None:
    """Those that were opened so far."""
    while _opened:
        _opened.pop().close()
