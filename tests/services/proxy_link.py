"""One connection through the proxy: two sockets, and what is on its way in each direction."""

import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable

from tests.services.proxy_rules import Fault

READ_BYTES = 65536
NEVER_S = float("inf")

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Pipe:
    """One direction. ended: the source has said its last. shut: the target knows, or was told so by a fault."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.ended = False
        self.shut = False
        self._target = target
        self._queue: deque[tuple[float, bytes]] = deque()

    @property
    def due_s(self) -> float:
        """When the next bytes are to be sent, or never."""
        return self._queue[0][0] if self._queue else NEVER_S

    def put(self, data: bytes, due_s: float = 0.0) -> None:
        """Send it then, and not before what was put earlier."""
        if not self.shut:
            self._queue.append((due_s, data))

    def flush(self, now_s: float) -> bool:
        """Send what is due, and the end behind it; False: the connection is broken."""
        try:
            while self._queue and self._queue[0][0] <= now_s:
                due_s, data = self._queue[0]
                sent = self._target.send(data)
                if sent < len(data):
                    self._queue[0] = (due_s, data[sent:])
                else:
                    self._queue.popleft()
            if self.ended and not self._queue and not self.shut:
                self.shut_down()
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def shut_down(self) -> None:
        """Tell the target that nothing more comes; what is on its way or comes later is dropped."""
        self._queue.clear()
        self.shut = True
        self._target.shutdown(socket.SHUT_WR)


class Link:
    """One client's connection. transaction: its statements since the last START TRANSACTION. answer: the fault that the
    server's next words meet. silent: nothing is forwarded."""

    def __init__(self, client: socket.socket, server: socket.socket, forget: Callable[[socket.socket], None]) -> None:
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.to_server = Pipe(client, server)
        self.to_client = Pipe(server, client)
        self.pipes = (self.to_server, self.to_client)
        self.received = bytearray()
        self.greeting: bytearray | None = bytearray()
        self.has_spoken = False
        self.transaction: list[str] = []
        self.answer: Fault | None = None
        self.silent = False
        self.closed = False
        self._ends = (client, server)
        self._forget = forget

    def note(self, statement: str) -> None:
        """It was sent."""
        if statement.upper().startswith("START TRANSACTION"):
            self.transaction = []
        self.transaction.append(statement)

    def close(self, reset: bool = False) -> None:
        """Close it to both sides."""
        if self.closed:
            return
        self.closed = True
        for end in self._ends:
            self._forget(end)
            if reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            end.close()


def listening(port: int) -> socket.socket:
    """A socket of 127.0.0.1 to accept from."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    listener.setblocking(False)
    return listener


def want(selector: selectors.BaseSelector, end: socket.socket, mask: int, data: object = None) -> None:
    """Let the selector wait for that from now on; 0: for nothing, not even for an end."""
    known = selector.get_map().get(end)
    if known is None and mask:
        selector.register(end, mask, data)
    elif known is not None and not mask:
        selector.unregister(end)
    elif known is not None and known.events != mask:
        selector.modify(end, mask, data)
