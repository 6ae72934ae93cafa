"""Every kind of publisher, each with a far side that accepts and with one that says nothing."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from outboxd.config.schema import (
    ActivityGrpc,
    Http,
    Kafka,
    Null,
    PythonCallable,
    RedisStreams,
    RocketMq,
    RocketMqServer,
)
from outboxd.publishers import open_publisher
from outboxd.publishers.api import Publisher
from outboxd.publishers.console import ConsolePublisher
from tests.services import python_targets
from tests.services.find import free_port
from tests.services.receiver import Receiver
from tests.services.redis_server import private_redis
from tests.services.rocketmq import make_topics
from tests.services.silent import silent_server
from tests.services.tencent import TencentServer
from tests.services.tencent_rooms import KEYS, im_settings


@dataclass(frozen=True)
class Kind:
    """One implementation: with a far side that accepts, and with one that says nothing."""

    accepting: Publisher
    make_stuck: Callable[[], Publisher]


def null_kind(_: pytest.FixtureRequest) -> Iterator[Kind]:
    publisher = open_publisher(Null(name="nothing"), "room_outbox", 1.0)
    yield Kind(publisher, lambda: publisher)
    publisher.close(time.monotonic() + 1)


def http_kind(_: pytest.FixtureRequest) -> Iterator[Kind]:
    with Receiver() as receiver:
        receiver.answer(path="/hang", hang=True)
        urls = (receiver.url, f"http://127.0.0.1:{receiver.port}/hang")
        settings = [Http(name="web", url=url, connections=4) for url in urls]
        accepting, stuck = (open_publisher(one, "room_outbox", 1.0) for one in settings)
        yield Kind(accepting, lambda: stuck)
        for publisher in (accepting, stuck):
            publisher.close(time.monotonic() + 1)


def grpc_kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    target = request.getfixturevalue("activity_target")
    with silent_server(port := free_port()):
        accepting, stuck = (
            open_publisher(ActivityGrpc(name="activity", target=one), "room_outbox", 1.0)
            for one in (target, f"127.0.0.1:{port}")
        )
        yield Kind(accepting, lambda: stuck)
        for publisher in (accepting, stuck):
            publisher.close(time.monotonic() + 1)


def python_kind(_: pytest.FixtureRequest) -> Iterator[Kind]:
    python_targets.gate.clear()
    made = [
        open_publisher(PythonCallable(name=name, target=f"tests.services.python_targets:{name}", threads=4), "l", 1.0)
        for name in ("accept", "wait_for_gate")
    ]
    yield Kind(made[0], lambda: made[1])
    python_targets.gate.set()
    for publisher in made:
        publisher.close(time.monotonic() + 5)


def console_kind(_: pytest.FixtureRequest) -> Iterator[Kind]:
    reading, writing = os.pipe()
    full_reading, full_writing = os.pipe()
    reader = threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(reading, 65536), b"")])
    reader.start()
    os.set_blocking(full_writing, False)
    try:
        while True:
            os.write(full_writing, b"x" * 4096)
    except BlockingIOError:
        pass
    accepting, stuck = ConsolePublisher(writing), ConsolePublisher(full_writing)
    yield Kind(accepting, lambda: stuck)
    for publisher in (accepting, stuck):
        publisher.close(time.monotonic() + 1)
    os.close(writing)
    reader.join(10)
    for descriptor in (reading, full_reading, full_writing):
        os.close(descriptor)


def redis_streams_kind(_: pytest.FixtureRequest) -> Iterator[Kind]:
    port = free_port()
    with private_redis() as server, silent_server(port):
        urls = (server.url, f"redis://127.0.0.1:{port}/0")
        accepting, stuck = (
            open_publisher(RedisStreams(name="bus", url=url, max_length=100), "room_outbox", 1.0) for url in urls
        )
        yield Kind(accepting, lambda: stuck)
        for publisher in (accepting, stuck):
            publisher.close(time.monotonic() + 2)


def kafka_kind(_: pytest.FixtureRequest) -> Iterator[Kind]:
    with silent_server(port := free_port()):
        accepting, stuck = (
            open_publisher(Kafka(name="m", bootstrap_servers=f"127.0.0.1:{port}", topic="t", options=options), "l", 3.0)
            for options in ({"test.mock.num.brokers": "1"}, {})  # the client library has a broker in it
        )
        yield Kind(accepting, lambda: stuck)
        for publisher in (accepting, stuck):
            publisher.close(time.monotonic() + 1)


def tencent_im_kind(_: pytest.FixtureRequest) -> Iterator[Kind]:
    with TencentServer(KEYS) as server, TencentServer(KEYS) as silent:
        silent.behave(None, hang=True)
        settings = [im_settings(one.url) for one in (server, silent)]
        accepting, stuck = (open_publisher(one, "room_outbox", 1.0) for one in settings)
        yield Kind(accepting, lambda: stuck)
        for publisher in (accepting, stuck):
            publisher.close(time.monotonic() + 1)


def rocketmq_kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    server = request.getfixturevalue("rocketmq")
    make_topics(server, [topic := "test_contract"])
    with silent_server(port := free_port()):
        accepting, stuck = (
            open_publisher(
                RocketMq(name="queue", server=RocketMqServer(endpoints=endpoints), topic=topic), "room_outbox", 1.0
            )
            for endpoints in (server.endpoints, f"127.0.0.1:{port}")
        )
        yield Kind(accepting, lambda: stuck)
        for publisher in (accepting, stuck):
            publisher.close(time.monotonic() + 1)


KINDS: dict[str, Callable[[pytest.FixtureRequest], Iterator[Kind]]] = {
    "console": console_kind,
    "null": null_kind,
    "http": http_kind,
    "python": python_kind,
    "redis_streams": redis_streams_kind,
    "grpc": grpc_kind,
    "kafka": kafka_kind,
    "tencent_im": tencent_im_kind,
    "rocketmq": rocketmq_kind,
}
NEVER_STUCK = ("null",)  # what is null never waits for anybody
