"""Message queues as the relay's tests see them: a real server, its part of the configuration, an ordinary consumer."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from outboxd.message import Message, decode
from tests.services.redis_server import RedisServer, client, private_redis


class Arrived(NamedTuple):
    """A message as a consumer of the queue gets it. key, kind: the queue's own key and tag, "" where it has none."""

    message: Message
    body: bytes
    key: str
    kind: str


class Queue(Protocol):
    """A server of our own, and one topic of it. name: of the publisher in `publishers` or, for rocketmq, implied."""

    name: str

    def publishers(self, **keys: object) -> dict[str, Any]:
        """What the section `publishers` says of it; keys: more of the publisher's."""

    def sections(self) -> dict[str, Any]:
        """Further sections of the configuration."""

    def arrived(self) -> list[Arrived]:
        """Everything in the topic so far, in its order, read by the queue's own client."""

    def count(self) -> int:
        """How many messages there are so far, or at least how many; cheap."""

    def stop(self) -> None:
        """The server goes away in order, and keeps what it has accepted."""

    def start(self) -> None:
        """It is back, at the same address."""


class RedisQueue:
    """A Redis stream."""

    name = "bus"

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.stream = "room_outbox"

    def publishers(self, **keys: object) -> dict[str, Any]:
        return {self.name: {"type": "redis_streams", "url": self.server.url, "stream": self.stream, **keys}}

    def sections(self) -> dict[str, Any]:
        return {}

    def arrived(self) -> list[Arrived]:
        """By a consumer group, as consumers do."""
        found: list[Arrived] = []
        with contextlib.closing(client(self.server.url)) as redis:
            if not redis.exists(self.stream):
                return []
            group = "onlooker"
            redis.xgroup_create(self.stream, group, id="0")
            while answer := redis.xreadgroup(group, "one", {self.stream: ">"}, count=1000):
                for _, fields in streams_of(answer)[self.stream.encode()]:
                    assert list(fields) == [b"m"]
                    message = decode(fields[b"m"])
                    found.append(Arrived(message, fields[b"m"], message.event_id, message.event_type))
            redis.xgroup_destroy(self.stream, group)
        return found

    def count(self) -> int:
        with contextlib.closing(client(self.server.url)) as redis:
            return int(redis.xlen(self.stream))

    def stop(self) -> None:
        self.server.stop()

    def start(self) -> None:
        self.server.start()


def streams_of(answer: Any) -> dict[bytes, list[tuple[bytes, dict[bytes, bytes]]]]:
    """The entries of each stream in an XREADGROUP's answer, of either protocol version."""
    if isinstance(answer, dict):
        return {name: [entry for batch in batches for entry in batch] for name, batches in answer.items()}
    return dict(answer)


@contextlib.contextmanager
def redis_queue() -> Iterator[RedisQueue]:
    with private_redis() as server:
        yield RedisQueue(server)


QUEUES: dict[str, Callable[[], contextlib.AbstractContextManager[Queue]]] = {"redis_streams": redis_queue}
