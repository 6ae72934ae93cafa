"""Waiting for what another process does."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

POLL_S = 0.02


def let_pass(duration_s: float) -> None:
    """Wait for nothing but the time: the moment at which a fault is to come."""
    deadline_s = time.monotonic() + duration_s
    while (rest_s := deadline_s - time.monotonic()) > 0:
        time.sleep(min(rest_s, POLL_S))


def wait_for(condition: Callable[[], Value | None], timeout_s: float, what: str) -> Value:
    """The first true value of the condition, asked every 20 ms, and once more at the deadline.

    what: what is waited for, for the message: "the row to be delivered". Raises AssertionError with the last value
    when the time is over; what the condition raises ends the wait.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        is_last = time.monotonic() >= deadline_s
        value = condition()
        if value:
            return value
        if is_last:
            raise AssertionError(f"waited {timeout_s:g} s for {what}; the last answer was {value!r}")
        time.sleep(POLL_S)
