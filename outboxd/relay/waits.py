"""Events of an ordered lane that keep those behind them, by what ends that. Pure."""

import heapq
from collections.abc import Iterator

from outboxd.relay.room import FOREVER_S, LEASED, SUSPECT, UNSURE, WAITING, Blocker, Room


class Waits:
    """Each is there once, for its newest reason. unsure: ids of rows to be looked at."""

    def __init__(self) -> None:
        self._timers: list[tuple[float, int]] = []
        self._suspects: dict[int, Room] = {}
        self.unsure: set[int] = set()

    def add(self, room: Room, row_id: int, blocker: Blocker) -> None:
        """It keeps its room."""
        if blocker.why in (WAITING, LEASED):
            heapq.heappush(self._timers, (blocker.until_s, row_id))
        elif blocker.why == SUSPECT:
            self._suspects[row_id] = room
        elif blocker.why == UNSURE:
            self.unsure.add(row_id)

    def remove(self, row_id: int) -> None:
        """It keeps nobody any more."""
        self._suspects.pop(row_id, None)
        self.unsure.discard(row_id)

    def over(self, now_s: float) -> Iterator[int]:
        """Those whose time may be over; each comes once."""
        while self._timers and self._timers[0][0] <= now_s:
            yield heapq.heappop(self._timers)[1]

    def suspect(self) -> int | None:
        """A suspect with nothing in front of it in its room, the oldest one."""
        for row_id in sorted(self._suspects):
            room = self._suspects[row_id]
            if room.open_until == row_id and not room.held and not room.is_claimable:
                return row_id
        return None

    @property
    def next_s(self) -> float:
        """When something changes by the clock alone, or forever."""
        return self._timers[0][0] if self._timers else FOREVER_S
