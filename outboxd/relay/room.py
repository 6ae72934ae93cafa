"""One room of an ordered lane, as far as it is open: its events that are known and not finished. Pure."""

from bisect import bisect_left
from operator import itemgetter
from typing import Any, NamedTuple

from outboxd.store.api import DELIVERED, FAILED, FRESH, RETRYABLE, Settlement

Row = tuple[Any, ...]
Key = tuple[str, str] | int
"""(app_code, room_id); an event without a room is a room of its own, by its id."""

WAITING, LEASED, SUSPECT, DEAD, UNSURE = "waiting", "leased", "suspect", "dead", "unsure"
"""Why an event keeps those behind it: it waits for its next try; somebody else's claim holds it; its lease ran out; it
is a dead letter; it must be looked at."""

FOREVER_S = float("inf")

ROOM, APP, PAYLOAD, STATUS, DUE, SIZE, NUMBER, LEASED_MS, WAIT_MS, NEXT_RETRY = 3, 4, 5, 12, 13, 14, 15, 16, 17, 18
"""Where a row's values stand: store.api.Partitions."""


Ready = Row
"""An event that nothing but its place keeps: its row with the payload, or, where that is not at hand, (id, size)."""
LIGHT = 2
"""The length of one without its payload."""


class Blocker(NamedTuple):
    """An event that keeps those behind it: why, until when (time.monotonic()), and its size."""

    why: str
    until_s: float
    size_bytes: int


class Room:
    """ready: by their ids. held: how many this worker has claimed. more_from: from this id on fresh rows may stand in
    the table that are not remembered."""

    __slots__ = ("blockers", "held", "key", "more_from", "number", "ready")

    def __init__(self, key: Key, number: int) -> None:
        self.key = key
        self.number = number
        self.ready: list[Ready] = []
        self.blockers: dict[int, Blocker] = {}
        self.held = 0
        self.more_from: int | None = None

    @property
    def open_until(self) -> int:
        """Events below this id are kept by nothing."""
        return min(self.blockers) if self.blockers else FRESH

    @property
    def end(self) -> int:
        """Events below this id may be claimed in their order: all of them are known, and nothing keeps them."""
        return self.open_until if self.more_from is None else min(self.open_until, self.more_from)

    @property
    def is_claimable(self) -> bool:
        """Is there an event that may be claimed?"""
        if not self.ready:
            return False
        is_whole = not self.blockers and self.more_from is None  # mostly
        return is_whole or self.ready[0][0] < self.end

    @property
    def lacks(self) -> bool:
        """Must more of it be read before it can go on?"""
        return self.more_from is not None and self.more_from < self.open_until and not self.is_claimable

    @property
    def is_blocked(self) -> bool:
        """Must a person let it go on?"""
        is_dead = bool(self.blockers) and self.blockers[self.open_until].why == DEAD
        return is_dead and not (self.held or self.is_claimable)

    def offers(self, at_once: int, most_held: int) -> list[Ready]:
        """What may be claimed next: no more than at_once, and together with what is held at most most_held."""
        held = self.held
        if held > most_held // 2:  # it is topped up by many, not by each that ends
            return []
        count = at_once if at_once <= most_held - held else most_held - held
        ready = self.ready[:count]
        if not self.blockers and self.more_from is None:
            return ready
        end = self.end
        return [one for one in ready if one[0] < end]

    def drop_payloads(self, start_id: int) -> int:
        """From this id on they are read again when they are claimed; how many were at hand."""
        count = sum(len(one) > LIGHT for one in self.ready if one[0] >= start_id)
        if count:
            self.ready = [one if one[0] < start_id else light(one) for one in self.ready]
        return count

    def place(self, row_id: int) -> int | None:
        """Where an event stands among those that are ready, if it does."""
        ready = self.ready
        if not ready or ready[0][0] >= row_id:  # mostly it is the first one, or none of them
            return 0 if ready and ready[0][0] == row_id else None
        place = bisect_left(ready, row_id, key=id_of)
        return place if place < len(ready) and ready[place][0] == row_id else None


id_of = itemgetter(0)
"""What they are sorted by."""


def light(ready: Ready) -> Ready:
    """The same without its payload, which is read again when it is claimed."""
    return (ready[0], size_of(ready))


def size_of(ready: Ready) -> int:
    """Of the payload, in bytes."""
    size: int = ready[SIZE] if len(ready) > LIGHT else ready[1]
    return size


def is_open(row: Row, blocks: bool) -> bool:
    """Is it neither done with nor skipped? blocks: does a dead letter keep its room?"""
    is_skipped = row[STATUS] == FAILED and (row[NEXT_RETRY] < 0 or not blocks)
    return not is_skipped and row[STATUS] != DELIVERED


def is_delayed(row: Row) -> bool:
    """Its producer wants it later: it comes when it is due, and keeps nobody till then."""
    return bool(row[DUE] != FRESH and row[WAIT_MS] > 0 and row[STATUS] == "pending")


def blocker_of(row: Row, now_s: float) -> Blocker | None:
    """Why an open row keeps those behind it, if it does."""
    status = row[STATUS]
    if status == "delivering":
        leased_ms = row[LEASED_MS]
        return Blocker(LEASED if leased_ms > 0 else SUSPECT, now_s + leased_ms / 1000, row[SIZE])
    if status == FAILED:
        return Blocker(DEAD, FOREVER_S, row[SIZE])
    if row[DUE] != FRESH and row[WAIT_MS] > 0:
        return Blocker(WAITING, now_s + row[WAIT_MS] / 1000, row[SIZE])
    return None


def blocker_after(settlement: Settlement, size_bytes: int, blocks: bool, now_s: float) -> Blocker | None:
    """Why an event keeps those behind it once it is settled so, if it does."""
    if settlement.status == RETRYABLE:
        return Blocker(WAITING, now_s + settlement.delay_ms / 1000, size_bytes)
    return Blocker(DEAD, FOREVER_S, size_bytes) if settlement.status == FAILED and blocks else None


def fitting(chosen: list[Ready], limit: int, budget_bytes: int, may_exceed: bool) -> int:
    """How many of them may be claimed: at most so many, with so many bytes. may_exceed: the first one may."""
    if len(chosen) <= limit and sum([one[SIZE] if len(one) > LIGHT else one[1] for one in chosen]) <= budget_bytes:
        return len(chosen)  # mostly
    for place, one in enumerate(chosen[:limit]):
        budget_bytes -= size_of(one)
        if budget_bytes < 0 and not (may_exceed and place == 0):
            return place
    return min(limit, len(chosen))
