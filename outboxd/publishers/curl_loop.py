"""Drives curl handles without blocking: libcurl's multi interface, seen from outside as one descriptor.

Invariants: at most as many handles are in curl as there are transfers, each with one event, so nothing ever waits
inside curl. A body goes through a read function without a seek function, so curl cannot rewind it and send it again
behind our back (G1).

Imported only in the process that publishes: it loads pycurl.
"""

import select
import threading
import time
from collections.abc import Iterable
from typing import NamedTuple

import pycurl

from outboxd.event import PARKED, Event, Retry
from outboxd.publishers.api import Waits
from outboxd.publishers.http_answer import Failure
from outboxd.publishers.transfer import Transfer, failure_of

LATE_S = 0.25
"""A worker that was elsewhere for longer (a database call) may find answers that came in time after their deadline."""
READ_ROUNDS = 64
DEAD_LOOKUP_S = 1.1
"""curl looks for connections that died while idle once a second, no sooner."""
NOT_STARTED = -1
"""The status of a transfer that was never given to curl, since its deadline had passed; NOT_SENT says so."""
NOT_SENT = Retry(PARKED, "not sent: the worker was held up until the deadline had passed", counted=False)

_EPOLL = {
    pycurl.POLL_NONE: 0,
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}


class Ended(NamedTuple):
    """A transfer that is over. status: the answer's, 0 if none came. failure: why curl gave it up, else None."""

    transfer: Transfer
    status: int
    failure: Failure | None


class CurlLoop:
    """The transfers of one publisher. Whoever gets one from `load` or `run` loads it again or releases it."""

    def __init__(self, transfers: Iterable[Transfer]) -> None:
        self._transfers = {transfer.handle: transfer for transfer in transfers}
        self.capacity = len(self._transfers)
        self._idle = list(self._transfers.values())
        self._loaded: list[Transfer] = []
        self._ended: list[Ended] = []
        self._epoll = select.epoll()
        self._masks: dict[int, int] = {}
        self._unwatched: set[int] = set()
        self._fresh_until_s = 0.0
        self._ran_s = time.monotonic()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_MAXCONNECTS, self.capacity)
        self._read = (self._epoll.fileno(),)

    @property
    def is_full(self) -> bool:
        """Every transfer is busy."""
        return not self._idle

    def load(self, event: Event, deadline_s: float, headers: list[str], body: bytes) -> Transfer:
        """Put a request for an event into an idle transfer. It leaves in the next `run`."""
        transfer = self._idle.pop()
        transfer.load(event, deadline_s, headers, body)
        self._loaded.append(transfer)
        return transfer

    def reload(self, transfer: Transfer, headers: list[str], body: bytes) -> None:
        """Put another request for the same event into a transfer that came out of `run`, with the same deadline."""
        transfer.forget_answer()
        transfer.load(transfer.event, transfer.deadline_s, headers, body)
        self._loaded.append(transfer)

    def release(self, transfer: Transfer) -> None:
        """The event is done with: the transfer is idle again."""
        transfer.unload()
        self._idle.append(transfer)

    def run(self) -> list[Ended]:
        """Do what curl has to do now: read answers, start requests, run timers. Returns what is over."""
        now_s = time.monotonic()
        if now_s - self._ran_s > LATE_S:
            self._catch_up(now_s)
        self._ran_s = now_s
        self._read_sockets()
        if self._loaded:
            self._start()
        if self._multi.timeout() == 0:
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._finish()
        ended, self._ended = self._ended, []
        return ended

    def wait_on(self) -> Waits:
        """The one descriptor that stands for all connections, and curl's next timer."""
        if self._loaded:
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
        found = self._epoll.poll(0, 2 * self.capacity)
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
            self._gave_up(transfer, pycurl.E_OPERATION_TIMEDOUT, "timed out")
            self._multi.remove_handle(transfer.handle)

    def _in_curl(self) -> list[Transfer]:
        elsewhere = {id(transfer) for transfer in (*self._idle, *self._loaded)}
        elsewhere |= {id(ended.transfer) for ended in self._ended}
        return [transfer for transfer in self._transfers.values() if id(transfer) not in elsewhere]

    def _start(self) -> None:
        """Give loaded handles to curl. The time that is left is taken here, right before the bytes leave (G4)."""
        now_s = time.monotonic()
        for transfer in self._loaded:
            left_s = transfer.deadline_s - now_s
            if left_s <= 0:
                self._ended.append(Ended(transfer, NOT_STARTED, None))
                continue
            transfer.started_s = now_s
            transfer.start(left_s, is_fresh=now_s < self._fresh_until_s)
            self._multi.add_handle(transfer.handle)
        self._loaded.clear()

    def _finish(self) -> None:
        """Take what curl has finished out of it."""
        more = 1
        while more:
            more, done, broken = self._multi.info_read(self.capacity)
            for handle in done:
                self._multi.remove_handle(handle)
                self._ended.append(Ended(self._transfers[handle], int(handle.getinfo(pycurl.RESPONSE_CODE)), None))
            for handle, code, message in broken:
                self._multi.remove_handle(handle)
                self._gave_up(self._transfers[handle], code, message)

    def _gave_up(self, transfer: Transfer, code: int, message: str) -> None:
        failure = failure_of(transfer.handle, code, message)
        self._ended.append(Ended(transfer, failure.status, failure))

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
