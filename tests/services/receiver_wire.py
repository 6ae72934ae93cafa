"""Carries a behaviour out, byte by byte, over one connection of the receiver."""

import socket
import struct
from collections.abc import Callable
from typing import Protocol

from tests.services.receiver_answers import Behaviour

READ_BYTES = 256 * 1024
RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Connection:
    """One accepted connection: what came and is not yet a request, what is to be sent."""

    def __init__(self, number: int, link: socket.socket) -> None:
        self.number = number
        self.link = link
        self.received = bytearray()
        self.to_send = bytearray()
        self.closes_when_sent = False
        self.is_deaf = False
        """Reads on but answers nothing more."""


class Wire(Protocol):
    """What the receiver does for its connections."""

    def flush(self, connection: Connection) -> None: ...
    def drop(self, connection: Connection) -> None: ...
    def later(self, connection: Connection, after_s: float, action: Callable[[], None]) -> None: ...


class Answering:
    """Carries out one behaviour on one connection."""

    def __init__(self, wire: Wire, connection: Connection) -> None:
        self.wire = wire
        self.connection = connection

    def follow(self, behaviour: Behaviour) -> None:
        """Begin now; what takes time goes on in the receiver's loop."""
        if behaviour.delay_s:
            self._later(behaviour.delay_s, lambda: self._begin(behaviour))
        else:
            self._begin(behaviour)

    def _begin(self, behaviour: Behaviour) -> None:
        if behaviour.hang:
            self.connection.is_deaf = True
            return
        if behaviour.close == "reset":
            self.connection.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        if behaviour.close in ("before_answer", "reset"):
            self.wire.drop(self.connection)
            return
        self.connection.closes_when_sent = behaviour.close is not None
        if behaviour.repeat:
            self._send(behaviour.wire())
            self._repeat(behaviour)
        elif behaviour.drip_s:
            self._drip(behaviour.wire(), behaviour.drip_s)
        else:
            self._send(behaviour.wire())

    def _repeat(self, behaviour: Behaviour) -> None:
        if len(self.connection.to_send) < READ_BYTES:
            self._send(behaviour.repeat)
        if behaviour.repeat:
            self._later(behaviour.repeat_every_s, lambda: self._repeat(behaviour))

    def _drip(self, data: bytes, every_s: float) -> None:
        self._send(data[:1])
        if data[1:]:
            self._later(every_s, lambda: self._drip(data[1:], every_s))

    def _send(self, data: bytes) -> None:
        self.connection.to_send += data
        self.wire.flush(self.connection)

    def _later(self, after_s: float, action: Callable[[], None]) -> None:
        self.wire.later(self.connection, after_s, action)
