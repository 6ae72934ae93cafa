"""Sends events in batches through a client that blocks: one thread, one batch at a time, everything else waits.

Invariants: an event comes out exactly once, by its deadline. A batch that the client does not return in time is given
up: its outcomes are told, and nothing more is handed to the thread until it comes back.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from outboxd.event import PARKED, TIMEOUT, Event, Outcome, Retry
from outboxd.publishers.api import Waits

NOT_SENT = "not sent: the batch before it took too long"
GIVEN_UP = "no complete answer in time"

Send = Callable[[Sequence[Event], float], Sequence[Outcome]]
"""Publish events by a deadline (time.monotonic()); an outcome for each, in their order. Must not raise."""


class _Batch:
    """Events in the thread's hands."""

    __slots__ = ("deadline_s", "events", "is_given_up", "outcomes")

    def __init__(self, events: Sequence[Event], deadline_s: float) -> None:
        self.events = events
        self.deadline_s = deadline_s
        self.outcomes: Sequence[Outcome] = ()
        self.is_given_up = False


class Courier:
    """A Publisher; see api.py. Whoever uses it says how a batch is sent, and how the client is closed."""

    def __init__(self, name: str, capacity: int, send: Send, close_client: Callable[[], None]) -> None:
        self._capacity = capacity
        self._send = send
        self._close_client = close_client
        self._waiting: deque[tuple[Event, float]] = deque()
        self._sending: _Batch | None = None
        self._handed: SimpleQueue[_Batch | None] = SimpleQueue()
        self._returned: deque[_Batch] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def capacity(self) -> int:
        """Events that wait or are being sent."""
        return self._capacity

    @property
    def worn_out(self) -> bool:
        """Does the client not come back? Then the process has to go."""
        return self._sending is not None and self._sending.is_given_up

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Add an event to the next batch."""
        sending = 0 if self._sending is None else len(self._sending.events)
        if len(self._waiting) + sending >= self._capacity or self._is_closed:
            return False
        self._waiting.append((event, deadline_s))
        return True

    def collect(self) -> list[tuple[Event, Outcome]]:
        """What has come back, and what is given up."""
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass
        outcomes: list[tuple[Event, Outcome]] = []
        while self._returned:
            batch = self._returned.popleft()
            self._sending = None
            if not batch.is_given_up:
                outcomes += zip(batch.events, batch.outcomes, strict=True)
        now_s = time.monotonic()
        batch_out = self._sending
        if batch_out is not None and not batch_out.is_given_up and batch_out.deadline_s <= now_s:
            batch_out.is_given_up = True
            outcomes += [(event, Retry(TIMEOUT, GIVEN_UP)) for event in batch_out.events]
        while self._waiting and self._waiting[0][1] <= now_s:
            outcomes.append((self._waiting.popleft()[0], Retry(PARKED, NOT_SENT, counted=False)))
        self._hand_over()
        return outcomes

    def wait_on(self) -> Waits:
        """The bell that the thread rings, and the first deadline."""
        self._hand_over()
        deadlines = [self._waiting[0][1]] if self._waiting else []
        if self._sending is not None and not self._sending.is_given_up:
            deadlines.append(self._sending.deadline_s)
        return Waits((self._bell,), (), min(deadlines, default=None))

    def close(self, deadline_s: float) -> None:
        """Let the thread close the client. One that hangs in it dies with the process."""
        self._is_closed = True
        if self._sending is not None:
            self._sending.is_given_up = True
        self._handed.put(None)
        self._thread.join(max(0.0, deadline_s - time.monotonic()))
        with self._lock:
            if self._bell >= 0:
                os.close(self._bell)
                self._bell = -1

    def _hand_over(self) -> None:
        if self._sending is None and self._waiting and not self._is_closed:
            # The first one's deadline is the earliest: events come with the same time-out, one after the other.
            batch = _Batch([event for event, _ in self._waiting], self._waiting[0][1])
            self._waiting.clear()
            self._sending = batch
            self._handed.put(batch)

    def _work(self) -> None:
        while (batch := self._handed.get()) is not None:
            if not batch.is_given_up:
                batch.outcomes = self._send(batch.events, batch.deadline_s)
            self._returned.append(batch)
            with self._lock:
                if self._bell >= 0:
                    os.eventfd_write(self._bell, 1)
        self._close_client()
