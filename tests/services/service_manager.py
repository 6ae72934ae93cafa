"""The service manager's side of sd_notify: a datagram socket that remembers what it was told, when and by whom."""

import socket
import struct
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple

from tests.services.wait import wait_for


class Message(NamedTuple):
    """One datagram: `at_s` on the monotonic clock, `fields` in the order in which they stood."""

    at_s: float
    pid: int
    fields: dict[str, str]


@dataclass
class ServiceManager:
    """Listens at a path, or at an abstract name if it begins with @."""

    address: str
    messages: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("\0" + self.address[1:] if self.address.startswith("@") else self.address)
        self._socket.setblocking(False)

    def receive(self) -> list[Message]:
        """All messages so far."""
        size = struct.calcsize("3i")
        try:
            while True:
                data, controls, *_ = self._socket.recvmsg(4096, socket.CMSG_SPACE(size))
                pid = struct.unpack("3i", controls[0][2][:size])[0]
                fields = dict(line.split("=", 1) for line in data.decode().splitlines())
                self.messages.append(Message(time.monotonic(), pid, fields))
        except BlockingIOError:
            return self.messages

    def told(self, *names: str) -> list[str]:
        """`NAME=value` of these names, or of all but the frequent ones, in order."""
        wanted = names or ("READY", "RELOADING", "STOPPING")
        return [f"{key}={value}" for _, _, fields in self.receive() for key, value in fields.items() if key in wanted]

    def wait_for(self, text: str, count: int = 1, timeout_s: float = 10.0) -> list[Message]:
        """The messages that hold it (`READY=1`, `STATUS=4 of 4`), once there are so many."""
        name, _, value = text.partition("=")

        def found() -> list[Message] | None:
            messages = [message for message in self.receive() if value in message.fields.get(name, "\n")]
            return messages if len(messages) >= count else None

        return wait_for(found, timeout_s, f"{count} x {text} in {[message.fields for message in self.messages]}")

    def close(self) -> None:
        """Nobody listens any more."""
        self._socket.close()

    def __enter__(self) -> "ServiceManager":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()
