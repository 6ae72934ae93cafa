"""What a child tells of itself through its slot of the scoreboard: the words that writer and reader share."""

from enum import IntEnum
from typing import NamedTuple, Protocol


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
    "claims", "settles", "looks", "reconnects", "rings", "stale_discarded", "cleaned_active", "cleaned_terminal",
)  # fmt: skip
"""The totals of a slot, in their order in it. Add at the end."""

(
    CLAIMED, DELIVERED, RETRIED, DEAD, RELEASED, LEASE_LOST, EVENT_GONE, UNMATCHED, SUSPECTS,
    CLAIMS, SETTLES, LOOKS, RECONNECTS, RINGS, STALE_DISCARDED, CLEANED_ACTIVE, CLEANED_TERMINAL,
) = range(len(TOTALS))  # fmt: skip


BRIDGE = "im_bridge"
"""The name of the bridge's slots (`im_bridge-01`), which is no lane's."""

JOBS = "jobs"
"""The name of the slot of the role that runs jobs; there is one, and it has no number."""

RESTARTS = ("crashed", "killed", "hung", "ended")
"""Why a slot got another child: the last one crashed; was killed by a signal; was silent too long; ended unasked."""
CRASHED, KILLED, HUNG, ENDED = range(len(RESTARTS))


EXIT_OK, EXIT_CRASH, EXIT_NEEDS_PERSON = 0, 70, 78
"""A child's exit statuses: asked to stop or done; crashed; no restart mends it, and the log says what would."""


class Slot(Protocol):
    """The child's side of its slot: each call is a store or two in shared memory."""

    index: int
    """Its number: it stays the slot's over all its children."""

    def beat(self, now_s: float) -> None:
        """The main loop was alive at now_s (time.monotonic())."""

    def set_state(self, state: State) -> None:
        """What the child is doing."""

    def set_in_flight(self, count: int) -> None:
        """How many events the child holds."""

    def set_open(self, breakers: int) -> None:
        """Whose breakers are open: a bit for each publisher of the lane, the first one's the lowest."""

    def add(self, total: int, n: int = 1) -> None:
        """Raise one of the totals by n."""


class SlotView(NamedTuple):
    """A slot as read at one moment. Times are time.monotonic(); `starts` counts the children that the slot has had.
    breakers: as bits, see Slot.set_open. restarts: in the order of RESTARTS.
    """

    pid: int
    state: State
    heartbeat_s: float
    started_s: float
    in_flight: int
    starts: int
    breakers: int
    restarts: tuple[int, ...]
    totals: tuple[int, ...]

    def total(self, name: str) -> int:
        """The total of that name in TOTALS."""
        return self.totals[TOTALS.index(name)]


class Board(Protocol):
    """What a child may read of all slots, and of the supervisor."""

    def __len__(self) -> int:
        """Slots that are taken: their numbers are from 0 on."""

    @property
    def is_draining(self) -> bool:
        """Does everything end?"""

    def name(self, index: int) -> str:
        """Whose slot it is: `room_outbox-01`."""

    def read(self, index: int) -> SlotView:
        """The slot as it stands now."""


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
    def board(self) -> Board: ...
    @property
    def worker_id(self) -> str: ...
    def orphaned(self) -> bool:
        """Is the supervisor gone?"""
