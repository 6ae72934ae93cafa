"""Events of an ordered lane that keep those behind them, by what ends that. Pure."""

import heapq
from collections.abc import Iterator

from outboxd.relay.room import FOREVER_S, LEASED, SUSPECT, UNSURE, WAITING, Blocker, Room

SPARE = 1000
"""So many timers may lie about that nobody waits for, beside as many as somebody does."""


class Waits:
    """Each is there once, for its newest reason. unsure: ids of rows to be looked at."""

    def __init__(self) -> None:
        self._timers: list[tuple[float, int]] = []
        self._until_s: dict[int, float] = {}  # of those that wait for the clock
        self._suspects: dict[int, Room] = {}
        self.unsure: set[int] = set()

    def add(self, room: Room, row_id: int, blocker: Blocker) -> None:
        """It keeps its room."""
        if blocker.why in (WAITING, LEASED):
            if len(self._timers) > 2 * len(self._until_s) + SPARE:
                self._timers = [(until_s, waiting) for waiting, until_s in self._until_s.items()]
                heapq.heapify(self._timers)
            self._until_s[row_id] = blocker.until_s
            heapq.heappush(self._timers, (blocker.until_s, row_id))
        elif blocker.why == SUSPECT:
            self._suspects[row_id] = room
        elif blocker.why == UNSURE:
            self.unsure.add(row_id)

    def remove(self, row_id: int) -> None:
        """It keeps nobody any more."""
        self._suspects.pop(row_id, None)
        self._until_s.pop(row_id, None)
        self.unsure.discard(row_id)

    def over(self, now_s: float) -> Iterator[int]:
        """Those whose time is over; each comes once."""
        while self._timers and self._timers[0][0] <= now_s:
            until_s, row_id = heapq.heappop(self._timers)
            if self._until_s.get(row_id) == until_s:
                del self._until_s[row_id]
                yield row_id

    def suspect(self) -> int | None:
        """A suspect with nothing in front of it in its room, the oldest one."""
        for row_id in sorted(self._suspects):
            room = self._suspects[row_id]
            if room.open_until == row_id and not (room.held or room.is_claimable or room.lacks):
                return row_id
        return None

    @property
    def next_s(self) -> float:
        """When something changes by the clock alone, or forever."""
        return self._timers[0][0] if self._timers else FOREVER_S
