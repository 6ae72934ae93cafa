"""The end of a worker (G5): nothing new is claimed, publishes in flight end and are settled, the rest is released."""

import os
import threading
import time
from typing import Protocol

GRACE_S = 0.3
"""Beyond publish_timeout: for the last outcomes to be settled."""

LAST_RESORT_S = 1.5
"""Beyond publish_timeout: a statement that hangs in the driver ends with the process, and the leases run out."""


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
        # The driver may hang in a network call for longer than the drain may last, and no signal interrupts it there.
        timer = threading.Timer(publish_timeout_s + LAST_RESORT_S, os._exit, args=(0,))  # 0: as asked; what is unsettled keeps its lease until that runs out
        timer.daemon = True
        timer.start()

    def age_s(self) -> float:
        """How long it has lasted."""
        return time.monotonic() - self._began_s

    def over(self, now_s: float, held: Held) -> bool:
        """Is there nothing left to wait for, or no time left? What is unsettled then keeps its lease until that runs out."""
        return self.hurry or now_s >= self.deadline_s or not (held.publishing or held.unsettled)
