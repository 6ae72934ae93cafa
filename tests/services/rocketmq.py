"""RocketMQ for the tests: an address in the environment, or a name server and a broker with proxy, started privately.

The private broker can be stopped, killed and started again by the test that uses it; one at an address cannot.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree

import pytest

from tests.services import children, rocketmq_admin
from tests.services.find import free_port, program, require
from tests.services.wait import wait_for

POM = Path(__file__).with_suffix(".pom.xml")
STARTUP_TIMEOUT_S = 90
MISSING = "there is no OUTBOXD_TEST_ROCKETMQ, and no java with RocketMQ's classes (tests/services/install.sh test)"

# Room for a few thousand messages, in files that are made at once; a disk that is nearly full is no reason to refuse.
BROKER = """\
brokerClusterName=tests
brokerName=broker
brokerId=0
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
autoCreateTopicEnable=false
autoCreateSubscriptionGroup=false
namesrvAddr=127.0.0.1:{names}
brokerIP1=127.0.0.1
bindAddress=127.0.0.1
listenPort={broker}
haListenPort={replicas}
storePathRootDir={directory}/store
storePathCommitLog={directory}/store/commitlog
mappedFileSizeCommitLog=67108864
mappedFileSizeConsumeQueue=600000
mappedFileSizeTimerLog=1048576
maxIndexNum=20000
maxHashSlotNum=5000
timerWheelSlots=100000
timerFlushIntervalMs=20000
diskMaxUsedSpaceRatio=99
"""
# What the broker has of topics and groups is asked for again after a second, and what is hidden may come again after
# one, so that a test need not wait for it.
PROXY = {
    "rocketMQClusterName": "tests",
    "localServeAddr": "127.0.0.1",
    "enableTopicMessageTypeCheck": True,
    "minInvisibleTimeMillsForRecv": 1000,
    "topicRouteServiceCacheExpiredSeconds": 1,
    "topicRouteServiceCacheRefreshSeconds": 1,
    "topicConfigCacheExpiredSeconds": 1,
    "topicConfigCacheRefreshSeconds": 1,
    "subscriptionGroupConfigCacheExpiredSeconds": 1,
    "subscriptionGroupConfigCacheRefreshSeconds": 1,
}
JAVA = [
    "-Xms256m", "-Xmx256m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in (
        "jdk.internal.ref", "java.nio", "java.util", "java.lang", "sun.nio.ch")),
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    *(f"-Drocketmq.broker.diskSpace{name}Ratio=0.99" for name in ("WarningLevel", "CleanForcibly")),
]  # fmt: skip


class RocketMq(Protocol):
    """A running server. endpoints: of its proxy, as clients have it. broker: where topics are made."""

    @property
    def endpoints(self) -> str: ...

    @property
    def broker(self) -> str: ...

    def start(self) -> None:
        """Start broker and proxy if they are down, and wait until they answer."""

    def stop(self) -> None:
        """Shut them down in order."""

    def kill(self) -> None:
        """End them at once, as a crash would."""


def classes() -> Path:
    """Where install.sh puts RocketMQ's classes; the version is the pom's own."""
    version = ElementTree.parse(POM).findtext("{http://maven.apache.org/POM/4.0.0}version")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outboxd" / f"rocketmq-{version}"


class PrivateRocketMq:
    """A name server, and broker and proxy as one process, with all their files in one directory."""

    def __init__(self, directory: Path, java: str) -> None:
        self._directory = directory
        self._java = java
        ports = {name: free_port() for name in ("names", "replicas", "proxy", "remoting")}
        ports["broker"] = _two_ports_up()
        self.endpoints = f"127.0.0.1:{ports['proxy']}"
        self.broker = f"127.0.0.1:{ports['broker']}"
        self._names = f"127.0.0.1:{ports['names']}"
        (directory / "broker.conf").write_text(BROKER.format(directory=directory, **ports))
        (directory / "names.conf").write_text(f"listenPort={ports['names']}\nbindAddress=127.0.0.1\n")
        proxy = PROXY | {"grpcServerPort": ports["proxy"], "remotingListenPort": ports["remoting"]}
        (directory / "proxy.json").write_text(json.dumps(proxy))
        self._name_server = self._run("namesrv.NamesrvStartup", "names", "-c", f"{directory}/names.conf")
        self._process: subprocess.Popen[bytes] | None = None
        self._await(self._name_server, "names", self._names)
        self.start()

    @property
    def pid(self) -> int:
        """Of broker and proxy."""
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    def start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._process = self._run(
            "proxy.ProxyStartup", "broker", "-n", self._names, "-pm", "local",
            "-bc", f"{self._directory}/broker.conf", "-pc", f"{self._directory}/proxy.json",
        )  # fmt: skip
        self._await(self._process, "broker", self.broker, self.endpoints)

    def stop(self) -> None:
        if self._process is not None:
            children.stop(self._process)

    def kill(self) -> None:
        if self._process is not None:
            children.stop(self._process, signal.SIGKILL)

    def end(self) -> None:
        """The name server too."""
        self.kill()
        children.stop(self._name_server, signal.SIGKILL)

    def _run(self, main: str, log: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = [f"-Duser.home={self._directory}", f"-Drocketmq.home.dir={self._directory}"]
        command = [self._java, *JAVA, *home, "-cp", f"{classes()}/*", f"org.apache.rocketmq.{main}", *arguments]
        return children.start(command, self._directory / f"{log}.log")

    def _await(self, process: subprocess.Popen[bytes], name: str, *addresses: str) -> None:
        log = self._directory / f"{name}.log"

        def listens() -> bool:
            assert process.poll() is None, f"RocketMQ's {name} ended with {process.returncode}:\n{children.tail(log)}"
            return all(map(_takes_connections, addresses))

        wait_for(listens, STARTUP_TIMEOUT_S, f"RocketMQ's {name} to listen (its log is {log})")


class GivenRocketMq:
    """The server that OUTBOXD_TEST_ROCKETMQ names: somebody else's, so a test that would end it is skipped."""

    def __init__(self, endpoints: str) -> None:
        self.endpoints = endpoints
        host = endpoints.partition(";")[0].rpartition(":")[0]
        self.broker = os.environ.get("OUTBOXD_TEST_ROCKETMQ_BROKER") or f"{host}:10911"

    def start(self) -> None:
        assert all(map(_takes_connections, self.endpoints.split(";"))), "nothing answers at OUTBOXD_TEST_ROCKETMQ"

    def stop(self) -> None:
        self._refuse()

    def kill(self) -> None:
        self._refuse()

    def _refuse(self) -> None:
        require("private-rocketmq", None, "this test ends the broker, and OUTBOXD_TEST_ROCKETMQ names one of yours")


def make_topics(server: RocketMq, topics: Sequence[str], message_type: str = "NORMAL", queues: int = 1) -> None:
    """Topics of one type; clients find them when this returns."""
    for topic in topics:
        rocketmq_admin.make_topic(server.broker, topic, message_type, queues)
    for topic in topics:
        wait_for(partial(rocketmq_admin.has_route, server.endpoints, topic), 30, f"a route to the topic {topic}")


def _two_ports_up() -> int:
    """A port for the broker, which listens on the one two below it, too."""
    while True:
        port = free_port()
        with socket.socket() as listener:
            if listener.connect_ex(("127.0.0.1", port - 2)) != 0:
                return port


def _takes_connections(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0


@pytest.fixture(scope="session")
def rocketmq_server() -> Iterator[RocketMq]:
    """One for the whole run. A test may stop, kill and start its broker; `rocketmq` starts it again."""
    address = os.environ.get("OUTBOXD_TEST_ROCKETMQ")
    if address:
        yield GivenRocketMq(address)
        return
    java = require("rocketmq", program("java") if classes().is_dir() else None, MISSING)
    directory = Path(tempfile.mkdtemp(prefix="outboxd-rocketmq-"))
    server = PrivateRocketMq(directory, java)
    yield server
    server.end()
    shutil.rmtree(directory)


@pytest.fixture
def rocketmq(rocketmq_server: RocketMq) -> RocketMq:
    """A server that runs, whatever the tests before did to it."""
    rocketmq_server.start()
    return rocketmq_server
