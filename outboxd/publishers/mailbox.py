"""Outcomes that a client tells from threads of its own, brought to the loop: each event once, each by its deadline.

A client's callback may come late, twice or never. An event past its deadline is given up and told as a time-out; what
the client says of it afterwards changes nothing.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Iterable

from outboxd.event import TIMEOUT, Event, Outcome, Retry
from outboxd.publishers.api import Waits

GIVEN_UP = Retry(TIMEOUT, "no complete answer in time")


class Call:
    """One event in the client's hands. late: its outcome if it is given up."""

    __slots__ = ("deadline_s", "event", "late")

    def __init__(self, event: Event, deadline_s: float, late: Outcome) -> None:
        self.event = event
        self.deadline_s = deadline_s
        self.late = late


class Mailbox:
    """What is in flight, and what has come back. Any thread may call `drop` and `drop_all`, the rest is the loop's."""

    def __init__(self) -> None:
        self._calls: dict[Call, None] = {}  # in flight
        self._first_s = 0.0  # none of their deadlines is before it
        self._dropped: deque[tuple[Call, Outcome]] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many are in flight."""
        return len(self._calls)

    def __contains__(self, call: Call) -> bool:
        """Is it in flight, and not given up?"""
        return call in self._calls

    def add(self, event: Event, deadline_s: float, late: Outcome = GIVEN_UP) -> Call:
        """An event goes to the client."""
        call = Call(event, deadline_s, late)
        self._first_s = min(self._first_s, deadline_s) if self._calls else deadline_s
        self._calls[call] = None
        return call

    def excuse(self, late: Outcome) -> None:
        """From now on this is the outcome of what is in flight, where it is given up."""
        for call in self._calls:
            call.late = late

    def forget(self, call: Call) -> None:
        """The client did not take it: nothing is told of it."""
        self._calls.pop(call, None)

    def drop(self, call: Call, outcome: Outcome) -> None:
        """The client has said what became of it."""
        self.drop_all([(call, outcome)])

    def drop_all(self, ended: Iterable[tuple[Call, Outcome]]) -> None:
        """The same for many."""
        with self._lock:
            if self._bell < 0:  # closed: the number may belong to something else by now
                return
            was_empty = not self._dropped
            self._dropped.extend(ended)
            if was_empty and self._dropped:  # one ring for all that is dropped before the loop looks
                os.eventfd_write(self._bell, 1)

    def collect(self) -> list[tuple[Event, Outcome]]:
        """What has come back since the last call, and what is given up."""
        outcomes: list[tuple[Event, Outcome]] = []
        for call, outcome in self._emptied():
            if call in self._calls:
                del self._calls[call]
                outcomes.append((call.event, outcome))
        if self._calls and self._first_s <= (now_s := time.monotonic()):
            late = [call for call in self._calls if call.deadline_s <= now_s]
            for call in late:
                del self._calls[call]
            outcomes += [(call.event, call.late) for call in late]
            self._first_s = min((call.deadline_s for call in self._calls), default=0.0)
        return outcomes

    def _emptied(self) -> deque[tuple[Call, Outcome]]:
        with self._lock:
            dropped = self._dropped
            if dropped:
                os.eventfd_read(self._bell)
                self._dropped = deque()
        return dropped

    def wait_on(self) -> Waits:
        """The bell, and the first deadline, or a little before it."""
        return Waits((self._bell,), (), self._first_s if self._calls else None)

    def close(self) -> None:
        """What is still in flight is forgotten."""
        with self._lock:
            if self._bell >= 0:
                os.close(self._bell)
                self._bell = -1
        self._calls.clear()
