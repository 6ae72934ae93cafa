"""Prints every event as one JSON line on standard output, to be looked at or piped on.

Standard output may be a pipe that nobody reads, shared with other workers and with whoever started them. So it is
never waited for, and never made non-blocking itself, since that flag belongs to all who share it: a pipe or terminal is
opened a second time for this. What cannot be written is blamed on the publisher.
"""

import base64
import errno
import os
import select
import socket
import stat
import time
from collections import deque
from collections.abc import Callable

import msgspec

from outboxd.event import CONNECT, DELIVERED, Event, Outcome, Retry
from outboxd.message import is_json, is_valid_json
from outboxd.publishers.api import NOTHING, Waits

CAPACITY = 256
WRITE_BYTES = 64 * 1024
"""How much is handed to one write, unless one event is larger."""


def line_of(event: Event) -> bytes:
    """An event as one line: its columns, and the payload as it is if it is JSON, else as text or base64."""
    head = msgspec.json.encode(
        {
            "lane": event.lane,
            "id": event.id,
            "event_id": event.event_id,
            "event_type": event.event_type,
            "room_id": event.room_id,
            "app_code": event.app_code,
            "created_at_ms": event.created_at_ms,
            "retry_count": event.retry_count,
            "content_type": event.content_type,
            "headers": event.headers,
        }
    )[:-1]
    envelope = event.envelope
    if is_json(event.content_type) and is_valid_json(envelope):
        # In valid JSON a line break can only stand between tokens.
        return b'%b,"envelope":%b}\n' % (head, envelope.replace(b"\n", b" ").replace(b"\r", b" "))
    return b'%b,"envelope_base64":"%b"}\n' % (head, base64.b64encode(envelope))


class Line:
    """What is left to write of an event's line."""

    __slots__ = ("deadline_s", "event", "is_begun", "rest")

    def __init__(self, event: Event, deadline_s: float, rest: bytes) -> None:
        self.event = event
        self.deadline_s = deadline_s
        self.rest = memoryview(rest)
        self.is_begun = False


class ConsolePublisher:
    """A Publisher; see api.py. `descriptor` is written to; it stays open."""

    capacity = CAPACITY

    def __init__(self, descriptor: int | None = None) -> None:
        self._stdout = 1 if descriptor is None else descriptor
        self._write, self._own = _writer(self._stdout)
        self._waiting: deque[Line] = deque()
        self._done: list[tuple[Event, Outcome]] = []
        self._is_full = False
        self._is_cut = False

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Queue an event; it is written in the next `collect`."""
        if len(self._waiting) + len(self._done) >= CAPACITY:
            return False
        try:
            line = line_of(event)
        except UnicodeEncodeError:  # a column with half a surrogate pair: print what can be printed
            line = repr(event).encode("utf-8", "backslashreplace") + b"\n"
        self._waiting.append(Line(event, deadline_s, line))
        return True

    def collect(self) -> list[tuple[Event, Outcome]]:
        """Write as much as goes at once."""
        self._is_full = False
        while self._waiting and not self._is_full:
            self._write_some()
        if self._waiting:
            self._give_up_late(time.monotonic())
        done, self._done = self._done, []
        return done

    def wait_on(self) -> Waits:
        """Room in the pipe, or the first deadline."""
        if self._done or (self._waiting and not self._is_full):
            return Waits((), (), 0.0)
        if not self._waiting:
            return NOTHING
        until_s = min(line.deadline_s for line in self._waiting)
        return Waits((), (self._stdout if self._own is None else self._own,), until_s)

    def close(self, deadline_s: float) -> None:
        """Drop what is not written. Standard output stays open."""
        self._waiting.clear()
        if self._own is not None:
            os.close(self._own)
            self._own = None
            self._write = _closed

    def _write_some(self) -> None:
        pieces: list[bytes | memoryview] = [b"\n"] if self._is_cut else []
        size_bytes = len(pieces)
        for line in self._waiting:
            pieces.append(line.rest)
            size_bytes += len(line.rest)
            if size_bytes >= WRITE_BYTES:
                break
        try:
            written = self._write(b"".join(pieces))
        except BlockingIOError:
            self._is_full = True
        except OSError as error:
            while self._waiting:
                self._give_up(self._waiting.popleft(), f"standard output cannot be written: {error.strerror}")
        else:
            self._is_full = written < size_bytes
            self._note_written(written)

    def _note_written(self, written: int) -> None:
        if self._is_cut and written:
            self._is_cut = False
            written -= 1
        while self._waiting and written:
            line = self._waiting[0]
            if written < len(line.rest):
                line.rest = line.rest[written:]
                line.is_begun = True
                return
            written -= len(line.rest)
            self._waiting.popleft()
            self._done.append((line.event, DELIVERED))

    def _give_up_late(self, now_s: float) -> None:
        late = [line for line in self._waiting if line.deadline_s <= now_s]
        for line in late:
            self._waiting.remove(line)
            self._give_up(line, "standard output takes no more: whoever reads it has stopped")

    def _give_up(self, line: Line, why: str) -> None:
        # Half a line may be out: what comes next begins on a line of its own.
        self._is_cut = self._is_cut or line.is_begun
        self._done.append((line.event, Retry(CONNECT, why, counted=False)))


def _writer(descriptor: int) -> tuple[Callable[[bytes], int], int | None]:
    """A write that never blocks, and the descriptor that was opened for it, if any."""
    try:
        kind = os.fstat(descriptor).st_mode
    except OSError:
        return _closed, None
    if stat.S_ISSOCK(kind):
        copy = os.dup(descriptor)
        connection = socket.socket(fileno=copy)
        connection.detach()
        return lambda data: _send(copy, data), copy
    if stat.S_ISFIFO(kind) or os.isatty(descriptor):
        try:
            own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:  # it belongs to another user, as a container's does
            return lambda data: _write_if_there_is_room(descriptor, data), None
        return lambda data: os.write(own, data), own
    return lambda data: os.write(descriptor, data), None  # a file never blocks


def _send(descriptor: int, data: bytes) -> int:
    connection = socket.socket(fileno=descriptor)
    try:
        return connection.send(data, socket.MSG_DONTWAIT)
    finally:
        connection.detach()


def _write_if_there_is_room(descriptor: int, data: bytes) -> int:
    """Does not block, unless another process takes the room in the very moment between."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    if not poll.poll(0):
        raise BlockingIOError
    return os.write(descriptor, data[: select.PIPE_BUF])


def _closed(data: bytes) -> int:
    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
