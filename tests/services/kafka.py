"""Kafka for the tests: servers in the environment, or one broker, started privately.

The private broker can be stopped, killed and started again by the test that uses it; one at an address cannot.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.services import children
from tests.services.find import free_port, program, require
from tests.services.processes import is_stopped
from tests.services.wait import wait_for

POM = Path(__file__).with_name("kafka.pom.xml")
STARTUP_TIMEOUT_S = 60
MISSING = "there is no OUTBOXD_TEST_KAFKA, and no java with Kafka's classes (tests/services/install.sh test)"

# A broker that is its own controller.
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={directory}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
group.initial.rebalance.delay.ms=0
"""
CLUSTER = "kJ3dPTZ0T0eDwI2JQwqmTw"
JAVA = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Kafka(Protocol):
    """A running broker. servers: as clients have them."""

    @property
    def servers(self) -> str: ...

    def start(self) -> None:
        """Start it if it is down, and wait until it answers."""

    def stop(self, signum: int = signal.SIGTERM) -> None:
        """Shut it down in order, or by SIGKILL as a crash would."""

    def freeze(self, is_frozen: bool) -> None:
        """Let it hang, and go on."""


def classes() -> Path:
    """Where install.sh puts Kafka's classes; the version is the pom's own."""
    version = ElementTree.parse(POM).findtext("{http://maven.apache.org/POM/4.0.0}version")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outboxd" / f"kafka-{version}"


class PrivateKafka:
    """One broker, with all its files in one directory."""

    def __init__(self, directory: Path, java: str) -> None:
        self._directory = directory
        self._command = [java, *JAVA, "-cp", f"{classes()}/*"]
        ports = {"broker": free_port(), "controller": free_port()}
        self.servers = f"127.0.0.1:{ports['broker']}"
        self._settings = str(directory / "server.properties")
        Path(self._settings).write_text(SETTINGS.format(directory=directory, **ports))
        format_it = ["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", self._settings]
        subprocess.run([*self._command, *format_it], check=True, capture_output=True, timeout=STARTUP_TIMEOUT_S)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        """Of the broker."""
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    def start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        log = self._directory / "broker.log"
        process = self._process = children.start([*self._command, "kafka.Kafka", self._settings], log)
        host, _, port = self.servers.rpartition(":")

        def listens() -> bool:
            assert process.poll() is None, f"Kafka ended with {process.returncode}:\n{children.tail(log)}"
            with socket.socket() as client:
                return client.connect_ex((host, int(port))) == 0

        wait_for(listens, STARTUP_TIMEOUT_S, f"Kafka to listen (its log is {log})")

    def stop(self, signum: int = signal.SIGTERM) -> None:
        if self._process is not None:
            children.stop(self._process, signum)

    def freeze(self, is_frozen: bool) -> None:
        os.kill(self.pid, signal.SIGSTOP if is_frozen else signal.SIGCONT)
        if is_frozen:
            wait_for(lambda: is_stopped(self.pid), 10, "Kafka to stand still")


class GivenKafka:
    """The servers that OUTBOXD_TEST_KAFKA names: somebody else's, so a test that would end them is skipped."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def start(self) -> None:
        AdminClient({"bootstrap.servers": self.servers}).list_topics(timeout=10)

    def stop(self, signum: int = signal.SIGTERM) -> None:
        require("private-kafka", None, "this test ends the broker, and OUTBOXD_TEST_KAFKA names one of yours")

    def freeze(self, is_frozen: bool) -> None:
        self.stop()


def make_topic(servers: str, topic: str, partitions: int = 4, config: Mapping[str, str] | None = None) -> None:
    """One that does not exist yet; clients find it when this returns."""
    admin = AdminClient({"bootstrap.servers": servers})

    def is_made() -> bool:
        # A broker that was frozen until just now may never answer what it is asked first.
        new = NewTopic(topic, partitions, 1, config=dict(config or {}))
        (made,) = admin.create_topics([new], request_timeout=5).values()
        try:
            made.result(10)
        except KafkaException as error:
            code = error.args[0].code()
            if code not in (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT, KafkaError.TOPIC_ALREADY_EXISTS):
                raise
            return bool(code == KafkaError.TOPIC_ALREADY_EXISTS)  # made by the one before
        except TimeoutError:
            return False
        return True

    wait_for(is_made, 60, f"the topic {topic} to be made")
    wait_for(lambda: topic in admin.list_topics(timeout=10).topics, 30, f"the topic {topic}")


def count_topic(servers: str, topic: str) -> int:
    """How many messages it has had."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "tests-count", "log_level": 0})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, number), 10)[1] for number in partitions)
    finally:
        consumer.close()


def read_topic(servers: str, topic: str, count: int, timeout_s: float = 30) -> list[Message]:
    """All messages of the topic, which must be at least so many; a consumer's view, partition by partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": f"tests-{time.monotonic_ns()}", "log_level": 0})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        ends = {number: consumer.get_watermark_offsets(TopicPartition(topic, number), 10)[1] for number in partitions}
        messages: list[Message] = []
        until_s = time.monotonic() + timeout_s
        while len(messages) < max(count, sum(ends.values())):
            assert time.monotonic() < until_s, f"{len(messages)} of {count} messages in {topic} after {timeout_s:g} s"
            messages += consumer.consume(1000, timeout=0.2)
        assert [message.error() for message in messages if message.error()] == []
        return messages
    finally:
        consumer.close()


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[Kafka]:
    """One for the whole run. A test may stop, kill and start its broker; `kafka` starts it again."""
    servers = os.environ.get("OUTBOXD_TEST_KAFKA")
    if servers:
        yield GivenKafka(servers)
        return
    java = require("kafka", program("java") if classes().is_dir() else None, MISSING)
    directory = Path(tempfile.mkdtemp(prefix="outboxd-kafka-"))
    server = PrivateKafka(directory, java)
    yield server
    server.stop(signal.SIGKILL)
    shutil.rmtree(directory)


@pytest.fixture
def kafka(kafka_server: Kafka) -> Kafka:
    """A broker that runs, whatever the tests before did to it."""
    kafka_server.start()
    return kafka_server
