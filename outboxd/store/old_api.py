"""The contract of how old rows are found and deleted, on either database. Implementation: old_rows.py."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class Kind(StrEnum):
    """Rows that stand together in the index on due_at_ms. TRIED: what has a due time of its own, tried or delayed."""

    DELIVERED = "delivered"
    FAILED = "failed"
    FRESH = "fresh"
    TRIED = "tried"

    @property
    def is_terminal(self) -> bool:
        """Does nothing become of such a row by itself?"""
        return self in (Kind.DELIVERED, Kind.FAILED)


class Position(NamedTuple):
    """Behind which row to go on."""

    due_at_ms: int = 0
    id: int = 0


class Old(NamedTuple):
    """A row, as far as its age asks for. is_leased: a worker holds it under a lease that still runs."""

    id: int
    due_at_ms: int
    created_at_ms: int
    updated_at_ms: int
    delivered_at_ms: int
    is_leased: bool


class Round(NamedTuple):
    """Whose turn it is to clean up. is_won: ours; else the next round is in wait_ms."""

    now_ms: int
    is_won: bool
    wait_ms: int


class OldRows(Protocol):
    """Of one lane. Raises what a Connection raises."""

    def now_ms(self) -> int:
        """The database's time."""

    def win(self, interval_ms: int) -> Round:
        """Begin a round, if the last one, of whatever worker, began interval_ms ago: one of all that ask gets it. A
        last one a whole interval or more in the future (the clock was set back) counts as long ago."""

    def read(self, kind: Kind, after: Position, most: int) -> Sequence[Old]:
        """Rows behind a position, without locks: by id, of TRIED by (due_at_ms, id); fewer than `most`: that was the
        end."""

    def delete(self, kind: Kind, ids: Sequence[int]) -> int:
        """Delete rows, in one transaction, by primary key, that are still of this kind and under no lease, passing over
        rows that another transaction has locked; how many those were."""
