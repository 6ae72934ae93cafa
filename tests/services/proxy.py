"""A proxy in front of a MySQL server that makes faults: of the network, or of single statements.

`with Proxy(url) as proxy:` and connect to `proxy.url`. Faults of all connections: `cut`, `half_close`, `blackhole`,
`refuse`, `delay`; `heal` ends them. Faults of statements: `rule`. One thread, one selector; what tests ask for is done
in that thread before the call returns.
"""

import random
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from urllib.parse import urlsplit

from tests.services import mysql_wire
from tests.services.chaos import SEED
from tests.services.find import free_port
from tests.services.proxy_link import NEVER_S, READ_BYTES, Link, Pipe, listening, want
from tests.services.proxy_rules import GREETING, LOGIN, Fault, Rule

DEADLOCK = 1213
"""It undoes the whole transaction, as does any failure of COMMIT; else only the statement is not executed."""


class Proxy:
    """Listens on 127.0.0.1. `statements`: how often each was sent, by its normalised text. `accepted_s`: when each
    connection was accepted, time.monotonic()."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 3306)
        self._port = free_port()
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        self.url = parts._replace(netloc=f"{user}127.0.0.1:{self._port}").geturl()
        self.statements: Counter[str] = Counter()
        self.accepted_s: list[float] = []
        self._rules: list[Rule] = []
        self._links: list[Link] = []
        self._delay_s = (0.0, 0.0)
        self._chance = random.Random(SEED)
        self._silent_to_server = self._silent_to_client = False
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        self._todo: deque[Callable[[], None]] = deque()
        self._is_ending = False
        self._listener: socket.socket | None = None
        self._thread = threading.Thread(target=self._loop, name="proxy", daemon=True)

    # faults of all connections

    @property
    def connected(self) -> int:
        """How many connections are open now."""
        return len(self._links)

    def cut(self, reset: bool = False) -> None:
        """Close every connection now: by FIN, or by RST. New ones are served."""

        def close() -> None:
            for link in self._links:
                link.close(reset)

        self._in_loop(close)

    def half_close(self, to_client: bool) -> None:
        """Shut one direction of every connection down: the client, or else the server, reads an end; the other side of
        it notices nothing."""

        def shut() -> None:
            for link in self._links:
                (link.to_client if to_client else link.to_server).shut_down()

        self._in_loop(shut)

    def blackhole(self, to_server: bool = True, to_client: bool = True) -> None:
        """Forward nothing in these directions, ends included: half-open TCP. What is on its way arrives after `heal`,
        as the kernel's repeats would bring it. Unless both are False new connections are left waiting, too."""

        def silence() -> None:
            self._silent_to_server, self._silent_to_client = to_server, to_client

        self._in_loop(silence)

    def refuse(self) -> None:
        """Refuse new connections; those that are open stay."""
        self._in_loop(self._stop_listening)

    def delay(self, least_s: float, most_s: float) -> None:
        """Every answer of the server arrives so much later, how much chance decides."""
        self._delay_s = (least_s, most_s)

    def heal(self) -> None:
        """End every fault; rules, too."""

        def undo() -> None:
            self._rules.clear()
            self._delay_s = (0.0, 0.0)
            self._silent_to_server = self._silent_to_client = False
            for link in self._links:
                link.silent = False
            self._listen()

        self._in_loop(undo)

    # faults of statements

    def rule(
        self, pattern: str, fault: Fault, after: bool = False, within: str = "", every: int = 1, times: int | None = 1
    ) -> Rule:
        """Make a fault of statements whose normalised text the pattern is found in, without regard to case.

        GREETING and LOGIN stand for the first words of the server and of the client. Before the server sees the
        statement, or `after` it has executed it and before the client has its answer. within: a pattern that must be
        found in the transaction so far. Of those that match every so many-th meets the fault, `times` in all (None: no
        end). Rules are asked in the order in which they were made, the first that makes a fault ends it.
        """
        rule = Rule(pattern, fault, after, within, every, times)
        self._in_loop(lambda: self._rules.append(rule))
        return rule

    # its life

    def __enter__(self) -> "Proxy":
        self._wake.setblocking(False)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._listen()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending = True
        self._waker.send(b"x")
        self._thread.join(10)
        for end in (self._wake, self._waker):
            end.close()
        self._selector.close()

    def _in_loop(self, action: Callable[[], object]) -> None:
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self._todo.append(act)
        self._waker.send(b"x")
        assert done.wait(10), "the proxy's loop is stuck"

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = listening(self._port)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            want(self._selector, self._listener, 0)
            self._listener.close()
            self._listener = None

    # the loop

    def _loop(self) -> None:
        while not self._is_ending:
            self._want_all()
            for key, mask in self._selector.select(self._until_next_s()):
                if key.fileobj is self._wake:
                    self._wake.recv(4096)
                elif key.data is None:
                    self._accept()
                elif mask & selectors.EVENT_READ:
                    self._read(*key.data)
            while self._todo:
                self._todo.popleft()()
            for link in self._links:
                self._flush(link)
            self._links = [link for link in self._links if not link.closed]
        for link in self._links:
            link.close(reset=True)
        self._stop_listening()

    def _until_next_s(self) -> float | None:
        """Until something that is late on purpose is due; what is due already waits for its socket only."""
        now_s = time.monotonic()
        dues_s = [pipe.due_s - now_s for link in self._links for pipe in link.pipes]
        return min((due_s for due_s in dues_s if 0 < due_s < NEVER_S), default=None)

    def _want_all(self) -> None:
        """Tell the selector what is waited for: of silent directions nothing, not even their ends."""
        if self._listener is not None:
            silent = self._silent_to_server or self._silent_to_client
            want(self._selector, self._listener, 0 if silent else selectors.EVENT_READ)
        now_s = time.monotonic()
        for link in self._links:
            for pipe, back in (link.pipes, link.pipes[::-1]):  # the way back ends where this one begins
                is_read = not pipe.ended and not self._is_silent(link, pipe)
                is_written = back.due_s <= now_s and not self._is_silent(link, back)
                mask = (selectors.EVENT_READ if is_read else 0) | (selectors.EVENT_WRITE if is_written else 0)
                want(self._selector, pipe.source, mask, (link, pipe))

    def _is_silent(self, link: Link, pipe: Pipe) -> bool:
        return link.silent or (self._silent_to_server if pipe is link.to_server else self._silent_to_client)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:  # gone again
            return
        self.accepted_s.append(time.monotonic())
        try:
            server = socket.create_connection(self._server, 2)
        except OSError:  # the server itself is away
            client.close()
            return
        self._links.append(Link(client, server, lambda end: want(self._selector, end, 0)))

    def _read(self, link: Link, pipe: Pipe) -> None:
        if link.closed or self._is_silent(link, pipe):
            return
        try:
            data = pipe.source.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            link.close(reset=True)
            return
        if not data:
            pipe.ended = True
        elif pipe is link.to_server:
            self._from_client(link, data)
        else:
            self._from_server(link, data)

    def _flush(self, link: Link) -> None:
        for pipe in link.pipes:
            if not link.closed and not self._is_silent(link, pipe) and not pipe.flush(time.monotonic()):
                link.close(reset=True)
        if all(pipe.shut for pipe in link.pipes):
            link.close()

    # statements

    def _from_client(self, link: Link, data: bytes) -> None:
        link.received += data
        while not link.closed and (sent := mysql_wire.take_packet(link.received)) is not None:
            text = mysql_wire.statement_of(sent) if link.has_spoken else LOGIN
            link.has_spoken = True
            fault = None
            if text is not None:
                self.statements[text] += 1
                fault = self._fault(link, text, after=False)
                link.answer = None if fault else self._fault(link, text, after=True)
                link.note(text)
            if fault is not None and fault.kind == "error":
                self._fail(link, text or "", int(fault.number), sent[3] + 1)
            else:
                self._pass_on(link, link.to_server, sent, fault)

    def _from_server(self, link: Link, data: bytes) -> None:
        fault, link.answer = link.answer, None
        sequence = 1
        if link.greeting is not None:
            link.greeting += data
            greeting = mysql_wire.take_packet(link.greeting)
            if greeting is None:
                return
            link.greeting, sequence = None, 0
            data, fault = mysql_wire.without_tls(greeting), self._fault(link, GREETING, after=True)
        late_s = time.monotonic() + self._chance.uniform(*self._delay_s)
        if fault is not None and fault.kind == "error":
            link.to_client.put(mysql_wire.error(int(fault.number), sequence), late_s)
        else:
            self._pass_on(link, link.to_client, data, fault, late_s)

    def _fault(self, link: Link, text: str, after: bool) -> Fault | None:
        return next((rule.fault for rule in self._rules if rule.strikes(text, link.transaction, after)), None)

    def _fail(self, link: Link, text: str, number: int, sequence: int) -> None:
        """Let a statement fail that the server has not seen."""
        if number == DEADLOCK or text.upper() == "COMMIT":
            link.answer = Fault("error", number)
            link.to_server.put(mysql_wire.query("ROLLBACK"))
        else:
            link.to_client.put(mysql_wire.error(number, sequence))

    def _pass_on(self, link: Link, pipe: Pipe, data: bytes, fault: Fault | None, due_s: float = 0.0) -> None:
        kind = fault.kind if fault is not None else ""
        if kind in ("cut", "reset"):
            link.close(kind == "reset")
            return
        if kind == "blackhole":
            self._silent_to_server = self._silent_to_client = True
        elif kind == "silence":
            link.silent = True
        elif fault is not None:
            due_s = time.monotonic() + fault.number
        pipe.put(data, due_s)
