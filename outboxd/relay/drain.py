"""The end of a worker (G5): nothing new is claimed, publishes in flight end and are settled, the rest is released."""

import time
from typing import Protocol

GRACE_S = 0.3
"""Beyond publish_timeout: for the last outcomes to be settled."""


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
