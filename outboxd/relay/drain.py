"""The end of a worker (G5): nothing new is claimed, publishes in flight end and are settled, the rest is released."""

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Protocol

from outboxd.vitals import EXIT_OK

GRACE_S = 0.3
"""Beyond publish_timeout: for the last outcomes to be settled."""

LAST_RESORT_S = 1.5
"""Beyond publish_timeout: a call that hangs, in the database's driver or a publisher's own code, ends with the process;
the leases run out."""


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

    def age_s(self) -> float:
        """How long it has lasted."""
        return time.monotonic() - self._began_s

    def over(self, now_s: float, held: Held) -> bool:
        """Is there nothing left to wait for, or no time? What is unsettled then keeps its lease until that runs out."""
        return self.hurry or now_s >= self.deadline_s or not (held.publishing or held.unsettled)


def guard_drain(doorbell: int, publish_timeout_s: float) -> Callable[[], None]:
    """Keep the drain's limit wherever the loop is: in a call of the database's driver, which no signal interrupts and
    which may last longer, or in a publisher that hangs while it is set up or closed.

    A thread hears the doorbell too. What is returned tells it of a drain that no signal has asked for.
    """
    bell = os.eventfd(0, os.EFD_CLOEXEC)

    def end_in_time() -> None:
        poll = select.poll()
        poll.register(doorbell, select.POLLIN)
        poll.register(bell, select.POLLIN)
        poll.poll()
        time.sleep(publish_timeout_s + LAST_RESORT_S)
        os._exit(EXIT_OK)  # it was asked to

    threading.Thread(target=end_in_time, name="drain-guard", daemon=True).start()
    return lambda: os.eventfd_write(bell, 1)
