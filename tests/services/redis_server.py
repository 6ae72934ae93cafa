"""Redis for the tests: the server that OUTBOXD_TEST_REDIS_URL names, or a private one.

A private server keeps what it has accepted (append-only file, synced at every write), and can be stopped, killed and
started again by the test that uses it; one at an address cannot.
"""

import contextlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from tests.services import children
from tests.services.find import free_port, program, require
from tests.services.wait import wait_for

STARTUP_TIMEOUT_S = 20


class RedisServer:
    """A server of our own on a directory of its own. `url` names its database 0."""

    def __init__(self, directory: Path, binary: str, *options: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.log = directory / "redis.log"
        self._command = [
            binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no", *options,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def start(self) -> None:
        """Start it if it is down, and wait until it answers."""
        if self._process is None or self._process.poll() is not None:
            self._process = children.start(self._command, self.log)
        process = self._process

        def is_up() -> bool:
            assert process.poll() is None, f"redis ended with {process.returncode}:\n{children.tail(self.log)}"
            return answers(self.url)

        wait_for(is_up, STARTUP_TIMEOUT_S, "redis to answer")

    def stop(self, signum: int = signal.SIGTERM) -> None:
        """End it."""
        if self._process is not None:
            children.stop(self._process, signum)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.stop(signal.SIGKILL)


def client(url: str) -> Redis:
    """An ordinary client, as a test has one."""
    return Redis.from_url(url, socket_timeout=10, socket_connect_timeout=5)


def answers(url: str) -> bool:
    """Does it answer now? One that wants a password does, too."""
    with contextlib.closing(client(url)) as asking:
        try:
            asking.ping()
        except RedisError as error:
            return "Authentication" in type(error).__name__
    return True


def redis_binary() -> str:
    """Where the server is; else the test is skipped."""
    return require("redis", program("redis-server"), "redis-server is not installed")


@contextlib.contextmanager
def private_redis(*options: str) -> Iterator[RedisServer]:
    """One that the test may end."""
    directory = Path(tempfile.mkdtemp(prefix="outboxd-redis-"))
    server = RedisServer(directory, redis_binary(), *options)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A private server for one test."""
    with private_redis() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """The URL of a server for the whole run; each test uses keys of its own."""
    with private_redis() as server:
        yield server.url
