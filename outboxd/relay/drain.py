"""The end of a worker (G5): nothing new is claimed, publishes in flight end and are settled, the rest is released."""

import os
import select
import threading
import time
from typing import Protocol

GRACE_S = 0.3
"""Beyond publish_timeout: for the last outcomes to be settled."""

LAST_RESORT_S = 1.5
"""Beyond publish_timeout: a call that hangs in the database's driver ends with the process; the leases run out."""


class Held(Protocol):
    """What the ledger tells."""

    @property
    def publishing(self) -> bool: ...
    @property
    def unsettled(self) -> bool: ...


class Drain:
    """One drain: when it began and when it is over."""

    def __init__(self, now_s: float, publish_timeout_s: float) -> None:
        self._began_s = now_s
        self.deadline_s = now_s + publish_timeout_s + GRACE_S
        self.hurry = False
        _end_after(publish_timeout_s + LAST_RESORT_S)

    def age_s(self) -> float:
        """How long it has lasted."""
        return time.monotonic() - self._began_s

    def over(self, now_s: float, held: Held) -> bool:
        """Is there nothing left to wait for, or no time? What is unsettled then keeps its lease until that runs out."""
        return self.hurry or now_s >= self.deadline_s or not (held.publishing or held.unsettled)


def guard_drain(doorbell: int, publish_timeout_s: float) -> None:
    """Keep the drain's limit even if the signal finds the loop in a call of the database's driver, which no signal
    interrupts and which may last longer: a thread hears the doorbell too."""

    def listen() -> None:
        poll = select.poll()
        poll.register(doorbell, select.POLLIN)
        if poll.poll():
            _end_after(publish_timeout_s + LAST_RESORT_S)

    threading.Thread(target=listen, name="drain-guard", daemon=True).start()


def _end_after(limit_s: float) -> None:
    """End the process then, with 0: it was asked to. One that has ended by itself before takes the timer along."""
    timer = threading.Timer(limit_s, os._exit, args=(0,))
    timer.daemon = True
    timer.start()
