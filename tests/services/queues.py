"""Message queues as the relay's tests see them: a real server, its part of the configuration, an ordinary consumer."""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import pytest

from outboxd.message import Message, decode
from tests.services import rocketmq_admin
from tests.services.kafka import Kafka, count_topic, make_topic, read_topic
from tests.services.redis_server import RedisServer, client, private_redis
from tests.services.rocketmq import RocketMq
from tests.services.rocketmq_queue import QUEUES_OF_A_TOPIC, RocketMqQueue


class Arrived(NamedTuple):
    """A message as a consumer of the queue gets it. key, kind: the queue's own key and tag, "" where it has none."""

    message: Message
    body: bytes
    key: str
    kind: str


class Queue(Protocol):
    """A server of our own, and one topic of it. name: of the publisher in `publishers` or, for rocketmq, implied.
    port: where clients reach it."""

    name: str
    port: int

    def publishers(self, **keys: object) -> dict[str, Any]:
        """What the section `publishers` says of it; keys: more of the publisher's."""

    def sections(self) -> dict[str, Any]:
        """Further sections of the configuration."""

    def arrived(self) -> list[Arrived]:
        """Everything in the topic so far, in its order, read by the queue's own client."""

    def count(self) -> int:
        """How many messages there are so far, or at least how many; cheap."""

    def stop(self) -> None:
        """The server goes away, and keeps what it has accepted."""

    def start(self) -> None:
        """It is back, at the same address."""


class BridgedQueue(Queue, Protocol):
    """One that the bridge reads."""

    def bridge(self) -> dict[str, Any]:
        """What the section `bridge` says of it."""

    def put(self, body: bytes) -> None:
        """A message past the relay."""

    def dead(self, group: str) -> list[bytes]:
        """The bodies of the group's dead letters."""



class RedisQueue:
    """A Redis stream."""

    name = "bus"

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.port = server.port
        self.stream = "room_outbox"

    def publishers(self, **keys: object) -> dict[str, Any]:
        return {self.name: {"type": "redis_streams", "url": self.server.url, "stream": self.stream, **keys}}

    def sections(self) -> dict[str, Any]:
        return {"redis": {"url": self.server.url}}

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

    def bridge(self) -> dict[str, Any]:
        return {"source": "redis_streams", "stream": self.stream}

    def put(self, body: bytes) -> None:
        with contextlib.closing(client(self.server.url)) as redis:
            redis.xadd(self.stream, {b"m": body})

    def dead(self, group: str) -> list[bytes]:
        with contextlib.closing(client(self.server.url)) as redis:
            found: Any = redis.xrange(f"{self.stream}:{group}:dead")
        return [fields[b"m"] for _, fields in found]

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
def redis_queue(_: pytest.FixtureRequest) -> Iterator[RedisQueue]:
    with private_redis() as server:
        yield RedisQueue(server)


class RocketMqTopic:
    """A topic of RocketMQ. The section `rocketmq` names it."""

    name = "rocketmq"

    def __init__(self, server: RocketMq) -> None:
        self._server = server
        self.port = int(server.endpoints.rpartition(":")[2])
        self._queue = RocketMqQueue(server)
        self._groups: dict[str, str] = {}

    def publishers(self, **keys: object) -> dict[str, Any]:
        return {}

    def sections(self) -> dict[str, Any]:
        return {
            "rocketmq": {
                "enabled": True,
                "endpoints": self._server.endpoints,
                "room_outbox": {"enabled": True, "topic": self._queue.topic},
            }
        }

    def arrived(self) -> list[Arrived]:
        """By the client's own consumer."""
        found = []
        for message in self._queue.read("onlooker", self.count()):
            (key,) = message.keys
            found.append(Arrived(decode(message.body), message.body, key, message.tag))
        return found

    def count(self) -> int:
        return rocketmq_admin.count(self._server.broker, self._queue.topic, QUEUES_OF_A_TOPIC)

    def bridge(self) -> dict[str, Any]:
        return {"source": "rocketmq", "group": self._queue.group("bridge")}

    def put(self, body: bytes) -> None:
        self._queue.put([body])

    def dead(self, group: str) -> list[bytes]:
        return self._queue.dead_letters("bridge")

    def stop(self) -> None:
        self._server.kill()  # in order it would take half a minute; what it has accepted is in its files

    def start(self) -> None:
        self._server.start()


@contextlib.contextmanager
def rocketmq_topic(request: pytest.FixtureRequest) -> Iterator[RocketMqTopic]:
    yield RocketMqTopic(request.getfixturevalue("rocketmq"))


class KafkaTopic:
    """A topic of Kafka. kind: Arrived's is the CloudEvents type."""

    name = "log"

    def __init__(self, server: Kafka) -> None:
        self._server = server
        self.port = int(server.servers.rpartition(":")[2])
        self._topic = f"test-{secrets.token_hex(6)}"
        make_topic(server.servers, self._topic)

    def publishers(self, **keys: object) -> dict[str, Any]:
        kafka = {"type": "kafka", "bootstrap_servers": self._server.servers, "topic": self._topic}
        return {self.name: {**kafka, **keys}}

    def sections(self) -> dict[str, Any]:
        return {}

    def arrived(self) -> list[Arrived]:
        found = []
        for message in read_topic(self._server.servers, self._topic, 0):
            headers: dict[str, Any] = dict(message.headers() or ())
            body = message.value() or b""
            decoded = decode(body)
            assert (message.key() or b"").decode() == decoded.room_id
            found.append(Arrived(decoded, body, headers["ce_id"].decode(), headers["ce_type"].decode()))
        return found

    def count(self) -> int:
        return count_topic(self._server.servers, self._topic)

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()


@contextlib.contextmanager
def kafka_topic(request: pytest.FixtureRequest) -> Iterator[KafkaTopic]:
    yield KafkaTopic(request.getfixturevalue("kafka"))


Makes = Callable[[pytest.FixtureRequest], contextlib.AbstractContextManager[Any]]
BRIDGED: dict[str, Makes] = {"redis_streams": redis_queue, "rocketmq": rocketmq_topic}
QUEUES: dict[str, Makes] = {**BRIDGED, "kafka": kafka_topic}
"""By name: what makes a queue for one test."""
