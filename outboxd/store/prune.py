"""Old rows are deleted: a walk from the lowest id upward, in small transactions whose size adapts, with pauses between.

A walk ends where rows are too young: ids ascend with time. Rows that stay behind (delivered late, created nobody knows
when) are passed over. What goes is read first, without locks, and deleted by primary key: producers wait for nothing.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outboxd.config.schema import Lane
from outboxd.errors import StoreConflict
from outboxd.store.connection import Connection
from outboxd.store.old_api import Kind, Old, OldRows, Position
from outboxd.store.old_rows import OldRowTable

LEAST_ROWS, MOST_ROWS = 250, 5000
"""Rows of one transaction. Replicas apply it as one, and everything behind it waits there; and on a machine that has no
time, a small one takes as long as a larger one."""
FIRST_ROWS = 1000
SHARE = 2
"""A transaction is followed by a pause so many times as long: the server is the producers' first."""
LEAST_PAUSE_S = 0.01
MOST_CONFLICTS = 20
"""In a row; then something holds the rows that will not let go."""
CONFLICT_PAUSE_S = 0.2
WINDOW = 5000
"""Rows that one statement of a count looks at."""
COUNT_CAP = 1_000_000


class Size:
    """How many rows the next transaction takes: fewer after a slow one or a conflict, more after quick ones.

    slow_s, quick_s: what counts as that.
    """

    def __init__(self, slow_s: float = 0.25, quick_s: float = 0.1, first: int = FIRST_ROWS) -> None:
        self._slow_s = slow_s
        self._quick_s = quick_s
        self.rows = first

    def took(self, took_s: float, rows: int) -> None:
        """A transaction over so many rows ended well."""
        if took_s > self._slow_s:
            self.halve()
        elif took_s < self._quick_s and rows >= self.rows // 2:  # a small one tells nothing of larger ones
            self.rows = min(MOST_ROWS, self.rows * 5 // 4)

    def halve(self) -> None:
        """It was slow, or undone by a lock."""
        self.rows = max(LEAST_ROWS, self.rows // 2)


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction: rows looked at and deleted; is_done: the walk has come to its end."""

    read: int
    deleted: int
    is_done: bool


class Walk:
    """Through the rows of one kind, oldest first. since_delivery: age counts from the delivery, else from creation."""

    def __init__(self, kind: Kind, since_delivery: bool = False) -> None:
        self.kind = kind
        self._since_delivery = since_delivery
        self.position = Position()

    def step(self, rows: OldRows, before_ms: int, most: int) -> Step:
        """Delete those of the next `most` rows that are older than before_ms (UTC epoch milliseconds). After a
        StoreConflict it may be made again."""
        window = rows.read(self.kind, self.position, most)
        ids = [row.id for row in window if self.is_old(row, before_ms)]
        deleted = rows.delete(self.kind, ids) if ids else 0
        return Step(len(window), deleted, self._pass(window, before_ms, most))

    def count(self, rows: OldRows, before_ms: int, most: int) -> Step:
        """The same without a change: `deleted` is how many would be."""
        window = rows.read(self.kind, self.position, most)
        count = sum(self.is_old(row, before_ms) for row in window)
        return Step(len(window), count, self._pass(window, before_ms, most))

    def _pass(self, window: Sequence[Old], before_ms: int, most: int) -> bool:
        if window:
            self.position = Position(window[-1].due_at_ms, window[-1].id)
        if len(window) < most:
            return True
        born = [self._born_ms(row) for row in window]
        # Of what has a time of its own the order tells nothing of the age.
        return self.kind is not Kind.TRIED and max(born) >= before_ms and not any(0 < ms < before_ms for ms in born)

    def is_old(self, row: Old, before_ms: int) -> bool:
        """Is it to go?"""
        since_ms = self._born_ms(row)
        if self._since_delivery:
            since_ms = row.delivered_at_ms or row.updated_at_ms or row.created_at_ms
        return 0 < since_ms < before_ms and not row.is_leased

    def _born_ms(self, row: Old) -> int:
        """When it was created. 0: unknown, of what is not finished; else it is as old as its end."""
        ended_ms = (row.delivered_at_ms or row.updated_at_ms) if self.kind.is_terminal else 0
        return row.created_at_ms or ended_ms


@dataclass(frozen=True, slots=True)
class Pruned:
    """deleted: rows. is_complete: nothing that old is left; else it was stopped, or most_rows were reached."""

    deleted: int
    is_complete: bool
    transactions: int = 0
    conflicts: int = 0


@dataclass(frozen=True, slots=True)
class Prunable:
    """count: delivered rows that old. is_more: it was counted no further."""

    count: int
    is_more: bool


def prune(
    connection: Connection,
    lane: Lane,
    older_than_s: float,
    *,
    most_rows: int | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    pause: Callable[[float], None] = time.sleep,
    tell: Callable[[int], None] = lambda deleted: None,
) -> Pruned:
    """Delete rows that were delivered more than older_than_s ago, by the database's clock; dead letters stay.

    most_rows: at the most; None: all. should_stop: asked before each transaction. pause: waits so many seconds, a few
    at the most. tell: called after each transaction with all that were deleted so far. Raises StoreConflict if locks
    stand in the way again and again, StoreUnavailable, StoreRefused; what was deleted before that is gone.
    """
    rows = OldRowTable(connection, lane)
    walk, size = Walk(Kind.DELIVERED, since_delivery=True), Size()
    before_ms = rows.now_ms() - round(older_than_s * 1000)
    deleted = transactions = conflicts = in_a_row = 0
    while (most_rows is None or deleted < most_rows) and not should_stop():
        most = size.rows if most_rows is None else min(size.rows, most_rows - deleted)
        start_s = time.monotonic()
        try:
            step = walk.step(rows, before_ms, most)
        except StoreConflict:
            conflicts, in_a_row = conflicts + 1, in_a_row + 1
            if in_a_row > MOST_CONFLICTS:
                raise
            size.halve()
            pause(CONFLICT_PAUSE_S)
            continue
        took_s, in_a_row = time.monotonic() - start_s, 0
        size.took(took_s, step.deleted)
        deleted, transactions = deleted + step.deleted, transactions + bool(step.deleted)
        tell(deleted)
        if step.is_done:
            return Pruned(deleted, True, transactions, conflicts)
        pause(max(LEAST_PAUSE_S, SHARE * took_s) if step.deleted else LEAST_PAUSE_S)
    return Pruned(deleted, False, transactions, conflicts)


def count_prunable(connection: Connection, lane: Lane, older_than_s: float, look_at: int = COUNT_CAP) -> Prunable:
    """How many rows `prune` would delete; no more than about look_at rows are looked at."""
    rows = OldRowTable(connection, lane)
    walk = Walk(Kind.DELIVERED, since_delivery=True)
    before_ms = rows.now_ms() - round(older_than_s * 1000)
    count = seen = 0
    while seen < look_at:
        step = walk.count(rows, before_ms, WINDOW)
        count, seen = count + step.deleted, seen + step.read
        if step.is_done:
            return Prunable(count, False)
    return Prunable(count, True)
