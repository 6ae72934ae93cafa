"""A publisher that fails when it is told to."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

FAIL = "fail"
"""Raises, the receiver has seen nothing."""
HANG = "hang"
"""Does not return until `release`, at the latest after a minute; the receiver has seen nothing."""
LOSE_ANSWER = "lose_answer"
"""The receiver has it, and the caller is told that it failed: the next attempt is a duplicate."""
KINDS = (FAIL, HANG, LOSE_ANSWER)

HANG_S = 60.0


class Fault(Exception):
    """What a publish raises that was made to fail."""


class Faulty:
    """A publisher in front of a receiver, which fails at the calls that are named, counted from 1. In threads, too.

    calls: the event ids of all calls, failed ones too.

    >>> from outboxd.producer import Event
    >>> publish = Faulty(lambda event: print("got", event.event_id), {1: FAIL, 2: LOSE_ANSWER})
    >>> for _ in range(3):
    ...     try:
    ...         publish(Event(event_id="e1", event_type="T", room_id="r", envelope=""))
    ...     except Fault as fault:
    ...         print(fault)
    call 1 was made to fail
    got e1
    the answer to call 2 was made to be lost
    got e1
    """

    def __init__(self, receiver: Callable[[Any], object], faults: Mapping[int, str]) -> None:
        unknown = set(faults.values()) - set(KINDS)
        if unknown:
            raise ValueError(f"{sorted(unknown)} is no fault: choose among {', '.join(KINDS)}")
        self.calls: list[str] = []
        self._receiver = receiver
        self._faults = dict(faults)
        self._lock = threading.Lock()
        self._gate = threading.Event()

    def __call__(self, event: Any) -> None:
        with self._lock:
            self.calls.append(event.event_id)
            number = len(self.calls)
        kind = self._faults.get(number)
        if kind == FAIL:
            raise Fault(f"call {number} was made to fail")
        if kind == HANG:
            self._gate.wait(HANG_S)
            raise Fault(f"call {number} was made to hang")
        self._receiver(event)
        if kind == LOSE_ANSWER:
            raise Fault(f"the answer to call {number} was made to be lost")

    def release(self) -> None:
        """Let the calls that hang return, with a failure."""
        self._gate.set()
