"""One curl handle and the event it is busy with. Imported only in the process that publishes: it loads pycurl."""

import io
from collections import deque

import pycurl

from outboxd.event import Event
from outboxd.publishers.http_answer import SHOWN_CHARACTERS, Failure

MAX_BODY_BYTES = 64 * 1024
"""An answer's body beyond this is not read; its status decides."""
KEPT_BODY_BYTES = 8 * SHOWN_CHARACTERS
KEPT_HEADERS = 128
"""Lines of an answer's head that are kept; curl bounds their length (300 KB together)."""


def failure_of(handle: pycurl.Curl, code: int, message: str) -> Failure:
    """Why curl gave a request up, and how far it had come."""
    info = handle.getinfo
    return Failure(
        code=code,
        message=message,
        resolved=info(pycurl.NAMELOOKUP_TIME) > 0,
        connected=info(pycurl.CONNECT_TIME) > 0,
        secured=info(pycurl.APPCONNECT_TIME) > 0,
        sent=info(pycurl.REQUEST_SIZE) > 0,
        status=int(info(pycurl.RESPONSE_CODE)),
    )


class Transfer:
    """One curl handle and what it is busy with. kept_bytes: how much of an answer's body is worth keeping, about."""

    __slots__ = (
        "_is_fresh", "_kept_bytes", "answer", "body", "deadline_s", "event", "handle", "has_body", "headers",
        "read_bytes", "started_s",
    )  # fmt: skip

    def __init__(self, handle: pycurl.Curl, kept_bytes: int = KEPT_BODY_BYTES) -> None:
        self.handle = handle
        self._kept_bytes = kept_bytes
        self.event: Event
        self.deadline_s = 0.0
        self.started_s = 0.0
        self.body = io.BytesIO()
        self.has_body = False
        self._is_fresh = False
        self.answer = bytearray()
        self.read_bytes = 0
        self.headers: deque[bytes] = deque(maxlen=KEPT_HEADERS)
        handle.setopt(pycurl.HEADERFUNCTION, self.headers.append)
        handle.setopt(pycurl.WRITEFUNCTION, self.write)

    def load(self, event: Event, deadline_s: float, headers: list[str], body: bytes) -> None:
        """Make the handle ready to be given to curl."""
        self.event = event
        self.deadline_s = deadline_s
        self.body = io.BytesIO(body)
        setopt = self.handle.setopt
        setopt(pycurl.HTTPHEADER, headers)
        setopt(pycurl.POSTFIELDSIZE_LARGE, len(body))
        setopt(pycurl.READFUNCTION, self.body.read)
        self.has_body = bool(body)

    def start(self, left_s: float, is_fresh: bool) -> None:
        """Set what is known only when it is given to curl: the time that is left, a new connection or any."""
        self.handle.setopt(pycurl.TIMEOUT_MS, max(1, int(left_s * 1000)))
        # A body without bytes needs no rewinding, so curl would send it again: not over a connection of its own.
        is_fresh = is_fresh or not self.has_body
        if is_fresh is not self._is_fresh:
            self.handle.setopt(pycurl.FRESH_CONNECT, is_fresh)
            self._is_fresh = is_fresh

    def write(self, data: bytes) -> int | None:
        """Called by curl with a piece of the answer's body; -1 ends the transfer."""
        self.read_bytes += len(data)
        if len(self.answer) < self._kept_bytes:
            self.answer += data[: self._kept_bytes]
        return -1 if self.read_bytes > MAX_BODY_BYTES else None

    def unload(self) -> None:
        """Free what the event and its answer held."""
        del self.event
        self.body.close()
        self.forget_answer()

    def forget_answer(self) -> None:
        """Make room for another one."""
        self.headers.clear()
        if self.read_bytes:
            self.answer.clear()
            self.read_bytes = 0
