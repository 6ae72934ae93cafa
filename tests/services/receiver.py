"""A real HTTP receiver that can be told to misbehave, and remembers what reached it.

In a thread of the test: `with Receiver() as receiver: receiver.answer(event_id="e1", status=500)`. As a process of its
own: `python -m tests.services.receiver --port 9000 --rule '{"path": "/slow", "delay_s": 2}' --log requests.jsonl`.
One thread, one selector, raw sockets: thousands of requests a second.
"""

import argparse
import heapq
import itertools
import json
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TextIO

from tests.services import receiver_answers
from tests.services.receiver_answers import Behaviour, Chosen, Request, Rule
from tests.services.receiver_wire import READ_BYTES, Answering, Connection


@dataclass
class Receiver:
    """Listens on 127.0.0.1. `requests` grows in the order in which requests were complete.

    port: 0 takes a free one. tls: speaks TLS. keep_bodies: False keeps only heads, for long runs. log: one JSON line
    for each request is written and flushed there before the answer leaves.
    """

    port: int = 0
    tls: ssl.SSLContext | None = None
    keep_bodies: bool = True
    log: TextIO | None = None
    requests: list[Request] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._connections: dict[int, Connection] = {}
        self._accepted = 0
        self._todo: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Connection, Callable[[], None]]] = []
        self._timer_numbers = itertools.count()
        self._is_ending = False
        self._thread = threading.Thread(target=self._loop, name="receiver", daemon=True)
        self._listener: socket.socket | None = None
        self._listen()

    @property
    def url(self) -> str:
        """Where it listens, any path is served."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/events"

    @property
    def accepted(self) -> int:
        """How many connections were made since the start."""
        return self._accepted

    @property
    def connected(self) -> int:
        """How many connections are open now."""
        return len(self._connections)

    def event_ids(self) -> list[str]:
        """Of the requests so far, in order."""
        return [request.event_id for request in self.requests]

    def answer(
        self, path: str | None = None, event_id: str | None = None, times: int | None = None, **behaviour: object
    ) -> None:
        """Answer matching requests so from now on, or for so many times; the last rule given comes first."""
        self.rules.insert(0, Rule(path, event_id, times, Behaviour(**behaviour)))  # type: ignore[arg-type]

    def choose(self, behaviour_of: Callable[[Request], Behaviour | None]) -> None:
        """Ask a function how to answer, from now on; it is called in the receiver's thread. None: the other rules."""
        self.rules.insert(0, Chosen(behaviour_of))

    def refuse(self) -> None:
        """Close the listener: connecting is refused from now on. Connections that are open stay."""
        self._in_loop(self._stop_listening)

    def listen_again(self) -> None:
        """Undo `refuse`, on the same port."""
        self._in_loop(self._listen)

    def cut(self) -> None:
        """Close every connection as it is."""

        def drop_all() -> None:
            for connection in list(self._connections.values()):
                self.drop(connection)

        self._in_loop(drop_all)

    def __enter__(self) -> "Receiver":
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._is_ending = True
        self._waker.send(b"x")
        self._thread.join(10)
        for end in (self._wake, self._waker):
            end.close()
        self._selector.close()

    def serve(self) -> None:
        """Run in this thread until the process ends."""
        self._loop()

    def _in_loop(self, action: Callable[[], object]) -> None:
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self._todo.append(act)
        self._waker.send(b"x")
        assert done.wait(10), "the receiver's loop is stuck"

    def _listen(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(512)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, listener)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _loop(self) -> None:
        while not self._is_ending:
            for key, mask in self._selector.select(self._until_next_s()):
                if isinstance(key.data, Connection):
                    if mask & selectors.EVENT_READ:
                        self._read(key.data)
                    if mask & selectors.EVENT_WRITE:
                        self.flush(key.data)
                elif key.data is not None:
                    self._accept(key.data)
                else:
                    self._wake.recv(4096)
            while self._todo:
                self._todo.popleft()()
            self._run_due()
        for connection in list(self._connections.values()):
            self.drop(connection)
        self._stop_listening()

    def _until_next_s(self) -> float | None:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _run_due(self) -> None:
        now_s = time.monotonic()
        due = []
        while self._timers and self._timers[0][0] <= now_s:
            due.append(heapq.heappop(self._timers))
        for _, _, connection, action in due:  # which may set timers of their own, for the next turn
            if connection.link.fileno() in self._connections:
                action()

    def later(self, connection: Connection, after_s: float, action: Callable[[], None]) -> None:
        """Act in the loop, unless the connection is gone by then."""
        heapq.heappush(self._timers, (time.monotonic() + after_s, next(self._timer_numbers), connection, action))

    def _accept(self, listener: socket.socket) -> None:
        try:
            link, _ = listener.accept()
        except OSError:  # gone again, or refused in the meantime
            return
        self._accepted += 1
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is not None:
            link = self.tls.wrap_socket(link, server_side=True, do_handshake_on_connect=False)
        connection = Connection(self._accepted, link)
        self._connections[link.fileno()] = connection
        self._selector.register(link, selectors.EVENT_READ, connection)

    def _read(self, connection: Connection) -> None:
        while True:
            try:
                data = connection.link.recv(READ_BYTES)
            except (ssl.SSLWantReadError, BlockingIOError):
                break
            except OSError:  # reset, or a handshake that failed
                data = b""
            if not data:
                self.drop(connection)
                return
            connection.received += data
            if self.tls is None:
                break
        if connection.is_deaf:
            connection.received.clear()
        while (request := receiver_answers.take_request(connection.number, connection.received)) is not None:
            self._serve(connection, request)

    def _serve(self, connection: Connection, request: Request) -> None:
        self.requests.append(request if self.keep_bodies else request.without_body())
        if self.log is not None:
            self.log.write(json.dumps(request.as_json()) + "\n")
            self.log.flush()
        rule = next((rule for rule in self.rules if rule.matches(request)), None)
        if rule is not None and rule.times is not None:
            rule.times -= 1
        Answering(self, connection).follow(rule.behaviour if rule else receiver_answers.DEFAULT)

    def flush(self, connection: Connection) -> None:
        """Send what the socket takes."""
        if connection.link.fileno() not in self._connections:
            return
        try:
            while connection.to_send:
                del connection.to_send[: connection.link.send(connection.to_send[:READ_BYTES])]
        except (ssl.SSLWantWriteError, BlockingIOError):
            pass
        except OSError:
            self.drop(connection)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.to_send else 0)
        if self._selector.get_key(connection.link).events != events:
            self._selector.modify(connection.link, events, connection)
        if connection.closes_when_sent and not connection.to_send:
            self.drop(connection)

    def drop(self, connection: Connection) -> None:
        """Close it as it is."""
        if self._connections.pop(connection.link.fileno(), None) is not None:
            self._selector.unregister(connection.link)
            connection.link.close()


def main() -> None:
    """Serve until killed; prints the port once it listens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rule", action="append", default=[], type=json.loads)
    parser.add_argument("--log", type=argparse.FileType("a"), default=None)
    arguments = parser.parse_args()
    receiver = Receiver(port=arguments.port, keep_bodies=False, log=arguments.log)
    for rule in arguments.rule:
        receiver.answer(**rule)
    print(receiver.port, flush=True)
    receiver.serve()


if __name__ == "__main__":
    main()
