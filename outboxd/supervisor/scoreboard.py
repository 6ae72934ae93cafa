"""What the supervisor and its children know of each other: one shared memory map, one fixed-size slot for each child.

Invariants:
- While a child lives, only it writes its slot; the supervisor writes before the fork and after the reap.
- Every field is eight aligned bytes, so a reader in another process sees the old value or the new one, never a mixture.
  Different fields of a slot may be of different moments.
- The words, and the order of the totals, are those of vitals.py.
- Totals only grow, also over the deaths of a slot's children: a new child goes on from what the last one left.
"""

import mmap
from typing import NamedTuple

from outboxd.vitals import TOTALS, State

_PID, _STATE, _IN_FLIGHT, _STARTS, _HEARTBEAT, _STARTED, _TOTALS = range(7)
_SLOT_WORDS = 32
"""Words of eight bytes; a multiple of a cache line, so that neighbours do not slow each other down."""


class SlotView(NamedTuple):
    """A slot as read at one moment. Times are time.monotonic(); `starts` counts the children that the slot has had."""

    pid: int
    state: State
    heartbeat_s: float
    started_s: float
    in_flight: int
    starts: int
    totals: tuple[int, ...]

    def total(self, name: str) -> int:
        """The total of that name in TOTALS."""
        return self.totals[TOTALS.index(name)]


class Slot:
    """One child's part of the scoreboard. Each writer is a store or two: cheap enough for every turn of a loop."""

    __slots__ = ("_floats", "_words", "index")

    def __init__(self, index: int, words: "memoryview[int]", floats: "memoryview[float]") -> None:
        self.index = index
        self._words = words
        self._floats = floats

    def beat(self, now_s: float) -> None:
        """The child's main loop was alive at now_s (time.monotonic())."""
        self._floats[_HEARTBEAT] = now_s

    def set_state(self, state: State) -> None:
        """What the slot's child is doing."""
        self._words[_STATE] = state

    def set_in_flight(self, count: int) -> None:
        """How many events the child holds."""
        self._words[_IN_FLIGHT] = count

    def add(self, total: int, n: int = 1) -> None:
        """Raise one of the totals (CLAIMED, DELIVERED, ...) by n. One thread of the child only."""
        self._words[_TOTALS + total] += n

    def begin(self, now_s: float) -> None:
        """By the supervisor, before a fork: a new child starts now; totals stay. Its start counts as its first beat."""
        self._words[_PID] = 0
        self._words[_IN_FLIGHT] = 0
        self._words[_STARTS] += 1
        self._floats[_STARTED] = now_s
        self._floats[_HEARTBEAT] = now_s
        self._words[_STATE] = State.STARTING

    def set_pid(self, pid: int) -> None:
        """By the child, first of all, and by the supervisor."""
        self._words[_PID] = pid

    def end(self, state: State) -> None:
        """By the supervisor, after a reap: the child is gone and with it what it had in flight."""
        self._words[_PID] = 0
        self._words[_IN_FLIGHT] = 0
        self._words[_STATE] = state

    def read(self) -> SlotView:
        """The slot as it stands now."""
        words = self._words
        return SlotView(
            pid=words[_PID],
            state=State(words[_STATE]),
            heartbeat_s=self._floats[_HEARTBEAT],
            started_s=self._floats[_STARTED],
            in_flight=words[_IN_FLIGHT],
            starts=words[_STARTS],
            totals=tuple(words[_TOTALS : _TOTALS + len(TOTALS)]),
        )


class Scoreboard:
    """Made once, before the first fork; every child inherits it. It lives as long as a process that has it."""

    def __init__(self, slots: int) -> None:
        memory = memoryview(mmap.mmap(-1, max(1, slots) * _SLOT_WORDS * 8))
        words, floats = memory.cast("q"), memory.cast("d")
        parts = [slice(i * _SLOT_WORDS, (i + 1) * _SLOT_WORDS) for i in range(slots)]
        self._slots = tuple(Slot(i, words[part], floats[part]) for i, part in enumerate(parts))

    def __len__(self) -> int:
        return len(self._slots)

    def slot(self, index: int) -> Slot:
        """The slot of that number, for its writer."""
        return self._slots[index]

    def read(self, index: int) -> SlotView:
        """The slot of that number as it stands now."""
        return self._slots[index].read()
