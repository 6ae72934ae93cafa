"""POSTs events to one URL, many at a time over kept-alive connections: libcurl's multi interface.

Invariants: at most `connections` handles are in curl, each with one event, so nothing ever waits inside curl. A body
goes through a read function without a seek function, so curl cannot rewind it and send it again behind our back (G1).

Imported only in the process that publishes: it loads pycurl.
"""

import select
import threading
import time

import pycurl

from outboxd.config.schema import Http
from outboxd.event import DELIVERED, INVALID, PARKED, Dead, Event, Outcome, Retry
from outboxd.message import InvalidEvent
from outboxd.publishers.api import Waits
from outboxd.publishers.curl_options import make_handle
from outboxd.publishers.http_answer import Failure, answered, failed
from outboxd.publishers.http_headers import Requests
from outboxd.publishers.transfer import MAX_BODY_BYTES, Transfer

LATE_S = 0.25
"""A worker that was elsewhere for longer (a database call) may find answers that came in time after their deadline."""
READ_ROUNDS = 64
DEAD_LOOKUP_S = 1.1
"""curl looks for connections that died while idle once a second, no sooner."""

_EPOLL = {
    pycurl.POLL_NONE: 0,
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}


class HttpPublisher:
    """A Publisher; see api.py. Raises PublisherError where the settings cannot work."""

    def __init__(self, settings: Http, lane: str, publish_timeout_s: float) -> None:
        self._requests = Requests(settings, lane)
        self._permanent = settings.permanent_statuses
        self._capacity = settings.connections
        self._transfers = {
            transfer.handle: transfer
            for transfer in (Transfer(make_handle(settings, publish_timeout_s)) for _ in range(settings.connections))
        }
        self._idle = list(self._transfers.values())
        self._loaded: list[Transfer] = []
        self._outcomes: list[tuple[Event, Outcome]] = []
        self._epoll = select.epoll()
        self._masks: dict[int, int] = {}
        self._unwatched: set[int] = set()
        self._fresh_until_s = 0.0
        self._collected_s = time.monotonic()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_MAXCONNECTS, settings.connections)
        self._read = (self._epoll.fileno(),)

    @property
    def capacity(self) -> int:
        """The number of connections."""
        return self._capacity

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Build the request. It leaves in the next `collect`, which wait_on asks for at once."""
        if not self._idle or len(self._outcomes) >= self._capacity:
            return False
        try:
            headers, body = self._requests.build(event)
        except InvalidEvent as error:
            self._outcomes.append((event, Dead(INVALID, str(error))))
            return True
        transfer = self._idle.pop()
        transfer.load(event, deadline_s, headers, body)
        self._loaded.append(transfer)
        return True

    def collect(self) -> list[tuple[Event, Outcome]]:
        """Do what curl has to do now: read answers, start requests, run timers."""
        now_s = time.monotonic()
        if now_s - self._collected_s > LATE_S:
            self._catch_up(now_s)
        self._collected_s = now_s
        self._read_sockets()
        if self._loaded:
            self._start()
        if self._multi.timeout() == 0:
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._finish()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def wait_on(self) -> Waits:
        """The one descriptor that stands for all connections, and curl's next timer."""
        if self._loaded or self._outcomes:
            return Waits(self._read, (), time.monotonic())
        timeout_ms = self._multi.timeout()
        return Waits(self._read, (), None if timeout_ms < 0 else time.monotonic() + timeout_ms / 1000)

    def close(self, deadline_s: float) -> None:
        """Drop every connection. What hangs in curl's threads (a name server) is left to the end of the process."""
        for transfer in self._in_curl():
            self._multi.remove_handle(transfer.handle)
        transfers, self._transfers = self._transfers, {}
        if not transfers:  # closed before
            return
        # curl waits for its resolver threads, and has no time-out for that.
        closer = threading.Thread(target=self._multi.close, name="curl-close", daemon=True)
        closer.start()
        closer.join(max(0.0, deadline_s - time.monotonic()))
        if not closer.is_alive():
            for transfer in transfers.values():
                transfer.handle.close()
            self._epoll.close()

    def _read_sockets(self) -> bool:
        """Let curl read and write where it can; False if there was nothing to do."""
        found = self._epoll.poll(0, 2 * self._capacity)
        for fd, ready in found:
            if fd in self._unwatched:
                self._note_idle(fd)
                continue
            # An error or a hang-up counts as readable: curl then reads and finds out.
            mask = pycurl.CSELECT_OUT if ready & select.EPOLLOUT else 0
            self._multi.socket_action(fd, mask | (pycurl.CSELECT_IN if ready & ~select.EPOLLOUT else 0))
        return bool(found)

    def _catch_up(self, now_s: float) -> None:
        """Read what has arrived before curl looks at its clock: an answer that came in time must not become a time-out
        only because nobody was there to read it. What has no answer then is given up here, for curl's timer is set
        back.
        """
        late = [transfer for transfer in self._in_curl() if transfer.deadline_s <= now_s]
        if not late:
            return
        for transfer in late:
            transfer.handle.setopt(pycurl.TIMEOUT_MS, int((now_s - transfer.started_s) * 1000) + 60_000)
        rounds = 0
        while self._read_sockets() and rounds < READ_ROUNDS and time.monotonic() < now_s + LATE_S:
            rounds += 1
        self._finish()
        for transfer in set(self._in_curl()).intersection(late):
            outcome = self._failed(transfer, pycurl.E_OPERATION_TIMEDOUT, "timed out")
            self._multi.remove_handle(transfer.handle)
            self._release(transfer, outcome)

    def _in_curl(self) -> list[Transfer]:
        elsewhere = {id(transfer) for transfer in (*self._idle, *self._loaded)}
        return [transfer for transfer in self._transfers.values() if id(transfer) not in elsewhere]

    def _start(self) -> None:
        """Give loaded handles to curl. The time that is left is taken here, right before the bytes leave (G4)."""
        now_s = time.monotonic()
        for transfer in self._loaded:
            left_s = transfer.deadline_s - now_s
            if left_s <= 0:
                late = Retry(PARKED, "not sent: the worker was held up until the deadline had passed", counted=False)
                self._release(transfer, late)
                continue
            transfer.started_s = now_s
            transfer.start(left_s, is_fresh=now_s < self._fresh_until_s)
            self._multi.add_handle(transfer.handle)
        self._loaded.clear()

    def _finish(self) -> None:
        """Turn what curl has finished into outcomes."""
        more = 1
        while more:
            more, done, broken = self._multi.info_read(self._capacity)
            for handle in done:
                transfer = self._transfers[handle]
                self._multi.remove_handle(handle)
                status = int(handle.getinfo(pycurl.RESPONSE_CODE))
                self._release(transfer, DELIVERED if 200 <= status < 300 else self._answered(transfer, status))
            for handle, code, message in broken:
                transfer = self._transfers[handle]
                self._multi.remove_handle(handle)
                self._release(transfer, self._failed(transfer, code, message))

    def _release(self, transfer: Transfer, outcome: Outcome) -> None:
        self._outcomes.append((transfer.event, outcome))
        transfer.unload()
        self._idle.append(transfer)

    def _answered(self, transfer: Transfer, status: int) -> Outcome:
        return answered(status, bytes(transfer.answer), transfer.headers, self._permanent, time.time())

    def _failed(self, transfer: Transfer, code: int, message: str) -> Outcome:
        info = transfer.handle.getinfo
        status = int(info(pycurl.RESPONSE_CODE))
        if code == pycurl.E_WRITE_ERROR and transfer.read_bytes > MAX_BODY_BYTES:
            return self._answered(transfer, status)
        failure = Failure(
            code=code,
            message=message,
            resolved=info(pycurl.NAMELOOKUP_TIME) > 0,
            connected=info(pycurl.CONNECT_TIME) > 0,
            secured=info(pycurl.APPCONNECT_TIME) > 0,
            sent=info(pycurl.REQUEST_SIZE) > 0,
            status=status,
        )
        return failed(failure, bytes(transfer.answer), transfer.headers, self._permanent, time.time())

    def _watch(self, what: int, fd: int, multi: object, data: object) -> None:
        """Called by curl when its interest in a socket changes.

        A socket that curl lets go of stays registered: the next request will use it, which saves system calls, and if
        the far side closes it meanwhile, it becomes readable and `_note_idle` knows.
        """
        if what == pycurl.POLL_REMOVE:
            self._unwatched.add(fd)
            return
        self._unwatched.discard(fd)
        mask = _EPOLL[what]
        known = self._masks.get(fd)
        self._masks[fd] = mask
        if known is not None:
            try:
                self._epoll.modify(fd, mask)
                return
            except FileNotFoundError:  # closed by curl, and the number was given to a new socket
                pass
        self._epoll.register(fd, mask)

    def _note_idle(self, fd: int) -> None:
        """Something came over an idle connection. If that was its end, the next event must not be sent into it: until
        curl has found it too, requests go over new connections.
        """
        poll = select.poll()
        poll.register(fd, select.POLLRDHUP)
        if poll.poll(0):
            self._fresh_until_s = time.monotonic() + DEAD_LOOKUP_S
        self._unwatched.discard(fd)
        self._masks.pop(fd, None)
        try:
            self._epoll.unregister(fd)
        except OSError:  # closed since
            pass
