"""Connections to Redis that repeat nothing behind our back: redis-py would try ten times, each a possible duplicate."""

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from outboxd.errors import PublisherError
from outboxd.redact import redact


def connect(url: str, timeout_s: float) -> Redis:
    """A client of one connection that repeats nothing; each of its waits ends within timeout_s. Nothing is sent yet.

    Raises PublisherError for a URL that it cannot use.
    """
    try:
        return Redis.from_url(
            url, retry=Retry(NoBackoff(), 0), socket_timeout=timeout_s, socket_connect_timeout=timeout_s,
            socket_keepalive=True, max_connections=1, decode_responses=False,
        )  # fmt: skip
    except (RedisError, ValueError) as error:
        raise PublisherError(f"cannot use {redact(url)}: {redact(str(error))}") from error
