"""What a test needs and this machine may lack: skipped, or a failure where it was promised."""

import os
import random
import shutil
import socket
from typing import TypeVar

import pytest

Thing = TypeVar("Thing")


def require(name: str, thing: Thing | None, reason: str) -> Thing:
    """The thing, if there is one. Else the test is skipped with the reason, or fails if OUTBOXD_TEST_REQUIRE (names
    with commas between them) holds the name.
    """
    if thing is not None:
        return thing
    if name in os.environ.get("OUTBOXD_TEST_REQUIRE", "").split(","):
        pytest.fail(f"{name} is in OUTBOXD_TEST_REQUIRE, but {reason}", pytrace=False)
    pytest.skip(reason)


def program(*names: str) -> str | None:
    """The path of the first program that is installed. Servers live in sbin, which is not on every user's PATH."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now, and that no client gets as its own.

    The kernel's choice (port 0) would come from the range that it gives to clients. While a server on such a port is
    down, a client that keeps trying may be given the very port and connect to itself; the server then cannot return.
    """
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(15_000, 32_000)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def outside_address() -> str | None:
    """An address of this machine that is no loopback one; None if it has none. Nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("198.51.100.1", 9))
        except OSError:
            return None
        address = str(asking.getsockname()[0])
    return None if address.startswith("127.") else address
