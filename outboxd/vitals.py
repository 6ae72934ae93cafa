"""What a child tells of itself through its slot of the scoreboard: the words that writer and reader share."""

from enum import IntEnum
from typing import Protocol


class State(IntEnum):
    """Of a slot. A child sets RUNNING when it is up and STOPPING while it drains; the rest is the supervisor's."""

    EMPTY = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    KILLING = 4  # the supervisor has given the child up and waits for its end
    BACKOFF = 5  # dead; the next child starts when the wait is over
    DONE = 6  # dead; no other child follows


TOTALS = (
    "claimed", "delivered", "retried", "dead", "released", "lease_lost", "event_gone", "unmatched", "suspects",
    "claims", "settles", "looks", "reconnects",
)  # fmt: skip
"""The totals of a slot, in their order in it. Add at the end."""

(
    CLAIMED, DELIVERED, RETRIED, DEAD, RELEASED, LEASE_LOST, EVENT_GONE, UNMATCHED, SUSPECTS,
    CLAIMS, SETTLES, LOOKS, RECONNECTS,
) = range(len(TOTALS))  # fmt: skip


EXIT_OK, EXIT_CRASH, EXIT_NEEDS_PERSON = 0, 70, 78
"""A child's exit statuses: asked to stop or done; crashed; no restart mends it, and the log says what would."""


class Slot(Protocol):
    """The child's side of its slot: each call is a store or two in shared memory."""

    def beat(self, now_s: float) -> None:
        """The main loop was alive at now_s (time.monotonic())."""

    def set_state(self, state: State) -> None:
        """What the child is doing."""

    def set_in_flight(self, count: int) -> None:
        """How many events the child holds."""

    def add(self, total: int, n: int = 1) -> None:
        """Raise one of the totals by n."""


class Stop(Protocol):
    """Has the child been asked to end?"""

    @property
    def requested(self) -> int:
        """0: go on. 1: drain, then end. 2: end at once."""

    def fileno(self) -> int:
        """Readable when a signal has come; then call `clear` and look at `requested`."""

    def clear(self) -> None:
        """Make the descriptor silent until the next signal."""


class Context(Protocol):
    """What a role is given when it starts."""

    @property
    def slot(self) -> Slot: ...
    @property
    def stop(self) -> Stop: ...
    @property
    def worker_id(self) -> str: ...
    def orphaned(self) -> bool:
        """Is the supervisor gone?"""
