"""What the supervisor and its children know of each other: one shared memory map, one fixed-size slot for each child.

Invariants:
- A slot belongs to a name (`room_outbox-01`) for good: a name that goes and comes back finds its totals again.
- The map is made before the first fork and never grows, so that every child sees the slots that are taken later too;
  what nobody has taken costs no memory.
- While a child lives, only it writes its slot; the supervisor writes before the fork and after the reap.
- Every field is eight aligned bytes, so a reader in another process sees the old value or the new one, never a mixture.
  Different fields of a slot may be of different moments.
- The words, and the order of the totals, are those of vitals.py.
- Totals only grow, also over the deaths of a slot's children: a new child goes on from what the last one left.
"""

import mmap

from outboxd.vitals import RESTARTS, TOTALS, SlotView, State

_PID, _STATE, _IN_FLIGHT, _STARTS, _HEARTBEAT, _STARTED, _BREAKERS, _NAME = range(8)
_NAME_WORDS = 10
_RESTARTS = _NAME + _NAME_WORDS
_TOTALS = _RESTARTS + len(RESTARTS)
_SLOT_WORDS = 48
"""Words of eight bytes; a multiple of a cache line, so that neighbours do not slow each other down."""

_TAKEN, _DRAINING = range(2)  # words of the first part of the map, which is no slot


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

    def set_open(self, breakers: int) -> None:
        """Whose breakers are open: a bit for each publisher of the lane, the first one's the lowest."""
        self._words[_BREAKERS] = breakers

    def note_restart(self, reason: int) -> None:
        """By the supervisor: another child follows, for that one of RESTARTS."""
        self._words[_RESTARTS + reason] += 1

    def add(self, total: int, n: int = 1) -> None:
        """Raise one of the totals (CLAIMED, DELIVERED, ...) by n. One thread of the child only."""
        self._words[_TOTALS + total] += n

    def begin(self, now_s: float) -> None:
        """By the supervisor, before a fork: a new child starts now; totals stay. Its start counts as its first beat."""
        self._words[_PID] = 0
        self._words[_IN_FLIGHT] = 0
        self._words[_BREAKERS] = 0
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
        self._words[_BREAKERS] = 0
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
            breakers=words[_BREAKERS],
            restarts=tuple(words[_RESTARTS : _RESTARTS + len(RESTARTS)]),
            totals=tuple(words[_TOTALS : _TOTALS + len(TOTALS)]),
        )


class Scoreboard:
    """Made once, before the first fork; every child inherits it. It lives as long as a process that has it.

    capacity: slots that can ever be taken. Slots that are taken have the numbers from 0 to len - 1.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        memory = memoryview(mmap.mmap(-1, (capacity + 1) * _SLOT_WORDS * 8))
        self._words, self._floats, self._bytes = memory.cast("q"), memory.cast("d"), memory.cast("B")

    def __len__(self) -> int:
        return self._words[_TAKEN]

    @property
    def is_draining(self) -> bool:
        """Does everything end?"""
        return bool(self._words[_DRAINING])

    def set_draining(self) -> None:
        """By the supervisor: everything ends from now on."""
        self._words[_DRAINING] = 1

    def take(self, name: str) -> Slot:
        """By the supervisor: the slot of that name, a fresh one if it has none. Raises ValueError if all are taken."""
        for index in range(len(self)):
            if self.name(index) == name:
                return self.slot(index)
        index = len(self)
        if index == self.capacity:
            raise ValueError(f"all {self.capacity} slots are taken")
        raw = name.encode("ascii").ljust(_NAME_WORDS * 8, b"\0")
        first = (self._first(index) + _NAME) * 8
        self._bytes[first : first + _NAME_WORDS * 8] = raw
        self._words[_TAKEN] = index + 1  # last, so that whoever reads meanwhile sees whole slots only
        return self.slot(index)

    def slot(self, index: int) -> Slot:
        """The slot of that number, for its writer."""
        part = slice(self._first(index), self._first(index + 1))
        return Slot(index, self._words[part], self._floats[part])

    def name(self, index: int) -> str:
        """Whose slot it is."""
        first = (self._first(index) + _NAME) * 8
        return bytes(self._bytes[first : first + _NAME_WORDS * 8]).rstrip(b"\0").decode("ascii")

    def read(self, index: int) -> SlotView:
        """The slot of that number as it stands now."""
        return self.slot(index).read()

    @staticmethod
    def _first(index: int) -> int:
        return (index + 1) * _SLOT_WORDS  # the first part of the map holds how many are taken
