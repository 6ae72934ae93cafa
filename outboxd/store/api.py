"""The contract of a lane's store, in prose. Implementations: mysql.py, sqlite.py; one suite: tests/contract.

Words: a claim *holds* a row while its token stands in it and the status is `delivering`, also past `lock_until_ms`.
All times in a table are UTC epoch milliseconds by the database's clock; all durations passed in are milliseconds.

Every call is one transaction, or none. A call that raises StoreConflict has changed nothing and may be repeated.
StoreUnavailable leaves the connection unusable: close the store and open a new one. A call is never made by two
threads at once.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from outboxd.config import schema
from outboxd.event import Event
from outboxd.store.old_api import OldRows

FRESH = 9007199254740991
"""`due_at_ms` of a row that may be published at once: the greatest value a double can hold exactly (2^53 - 1)."""

LAST_ERROR_CHARACTERS = 512

PARTITIONS = schema.PARTITIONS
"""Of an ordered lane: the numbers in room_partition and outboxd_partition are 0 to one less."""

SKIPPED = -1
"""`next_retry_at_ms` of a dead letter that holds its room up no longer; whatever is below 0 is read so."""

DELIVERED = "delivered"
RETRYABLE = "retryable"
FAILED = "failed"
RELEASED = "released"
DISCARDED = "discarded"


class Floors(msgspec.Struct, frozen=True):
    """Where the next claim starts: behind the last row taken, of fresh rows (`fresh_id`) and of due rows.

    A position only, never a promise: a sweep starts from zero again.
    """

    fresh_id: int = 0
    due_at_ms: int = 0
    due_id: int = 0


ZERO = Floors()


class Want(msgspec.Struct, frozen=True):
    """What a worker can take now.

    token: the new claim's, random, 1 to 2^62. limit: rows at the most. budget_bytes: of payload, over all rows; a row
    that does not fit ends the claim before it, but `idle` lets the first row be larger. idle: the worker holds
    nothing, so a suspect may be taken. fresh, due, suspects: which classes to look for. max_event_bytes: a larger row
    is taken without its payload (`Claim.oversize`). stale_before_ms: of rows created earlier no payload need come; 0:
    of none. live_limit: of the others so many at the most; 0: up to limit.
    """

    token: int
    worker_id: str
    lease_ms: int
    limit: int
    budget_bytes: int
    max_event_bytes: int
    idle: bool
    fresh: bool = True
    due: bool = True
    suspects: bool = True
    stale_before_ms: int = 0
    live_limit: int = 0


class Pick(msgspec.Struct, frozen=True):
    """Rows of an ordered lane to claim, chosen by the owner of their partitions.

    token, worker_id, lease_ms, max_event_bytes: as in Want. rows: those that a scan has read with their payload; ids:
    others. suspects: there is one id, and it is a suspect's. owner: the worker's token in outboxd_partition; numbers:
    the partitions that it holds to be its own, whose lease becomes lease_ms from now.
    """

    token: int
    worker_id: str
    lease_ms: int
    max_event_bytes: int
    owner: int
    numbers: tuple[int, ...]
    rows: tuple[tuple[Any, ...], ...] = ()
    ids: tuple[int, ...] = ()
    suspects: bool = False


class Claim(msgspec.Struct, frozen=True):
    """What a claim took.

    events: with payload. oversize: (event with an empty payload, its size in bytes). `suspect`: the one event was
    delivering under a lease that ran out; it is the only one, and its `retry_count` includes that loss. suspects_wait:
    the claim passed over suspects (the floors move past them; sweeps find them). cut_by_budget: rows were left because
    of budget_bytes. fresh_left, due_left: as many rows of the class were found as were asked for, so there may be more.
    floors: where to go on; a class that was not looked for keeps its own. disowned: of a Pick, partitions that are
    somebody else's by now; then nothing was taken. missed: of a Pick, ids that could not be
    taken; then nothing was.
    """

    token: int
    events: tuple[Event, ...] = ()
    oversize: tuple[tuple[Event, int], ...] = ()
    suspect: bool = False
    suspects_wait: bool = False
    cut_by_budget: bool = False
    fresh_left: bool = False
    due_left: bool = False
    floors: Floors = ZERO
    disowned: tuple[int, ...] = ()
    missed: tuple[int, ...] = ()


class Settlement(msgspec.Struct, frozen=True):
    """What became of one claimed row.

    status: DELIVERED, RETRYABLE, FAILED, RELEASED or DISCARDED. counted: retry_count rises by one. delay_ms: RETRYABLE
    only, due again that long after the settle. last_error: at most 512 characters; None clears it (DELIVERED) and is
    ignored for RELEASED. published_to: None leaves the column as it is.
    """

    id: int
    token: int
    status: str
    counted: bool = False
    delay_ms: int = 0
    last_error: str | None = None
    published_to: str | None = None


class Settled(msgspec.Struct, frozen=True):
    """What a settle found. lost: ids whose claim no longer holds; gone: ids whose row was deleted."""

    done: int = 0
    lost: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()


class Peek(msgspec.Struct, frozen=True):
    """A look without locks: may anything be claimed behind the floors, is the lane paused, the database's time; and the
    last id that was visible to this very look, 0 in an empty table: if nothing was fresh, nothing up to it was."""

    now_ms: int
    paused: bool
    fresh: bool
    due: bool
    last_id: int = 0


class Ownership(msgspec.Struct, frozen=True):
    """One partition as it stands in outboxd_partition. lease_ms, wanted_ms: for how long; not positive: over."""

    number: int
    worker_id: str
    token: int
    lease_ms: int
    wanted_by: str
    wanted_ms: int


class Partitions(Protocol):
    """What an ordered lane's store can do beside. A room's events are all in one partition, 0 to PARTITIONS - 1.

    Open rows come as tuples: the columns of a candidate (choose.py), then partition, milliseconds of lease that are
    left, and milliseconds until it is due (neither positive: over, or due).
    """

    def peek(self, numbers: Sequence[int], floors: Floors) -> Peek:
        """As Store.peek, in these partitions alone."""

    def scan(
        self, floors: Mapping[int, Floors], limit: int, inline_bytes: int, *, fresh: bool, due: bool
    ) -> Sequence[tuple[Any, ...]]:
        """Open rows behind the floors, leased or not, by one snapshot: of each partition at most limit fresh ones, by
        id, and twice as many due ones, by due_at_ms and id. inline_bytes: how long a payload may be to come along; 0:
        nothing but what order asks for."""

    def window(self, numbers: Sequence[int], after: int, each: int) -> int:
        """The id up to which none of these partitions has more than `each` fresh rows behind `after`; FRESH: none has
        so many."""

    def scan_new(
        self, numbers: Sequence[int], after: int, upto: int, limit: int, inline_bytes: int
    ) -> Sequence[tuple[Any, ...]]:
        """Fresh rows of any of the partitions behind an id, up to another one; of each partition by id, and if they are
        limit, its first ones or none. It costs less than a scan that asks each partition."""

    def last_id(self) -> int:
        """The highest id in the lane; 0: there is none."""

    def open_ids(self, before: Mapping[int, int], after: int, limit: int) -> Sequence[int]:
        """Ids of fresh rows behind one id, and of each partition in front of another, from the index alone; limit of
        them at most, in no order."""

    def scan_room(self, number: int, room: tuple[str, str], start_id: int, limit: int) -> Sequence[tuple[Any, ...]]:
        """Fresh rows of one (app_code, room_id) from an id on, by id, without payload."""

    def blockers(self, numbers: Sequence[int], *, dead: bool) -> Sequence[tuple[Any, ...]]:
        """Rows that were tried, or are leased, and are not fresh; and the dead letters that nobody has skipped."""

    def rows(self, ids: Sequence[int]) -> Sequence[tuple[Any, ...]]:
        """These rows, whatever their status, without payload; then next_retry_at_ms."""

    def owners(self) -> Sequence[Ownership]:
        """All partitions of the lane, by their numbers."""

    def acquire(
        self, numbers: Sequence[int], worker_id: str, owner: int, lease_ms: int, former: str
    ) -> frozenset[int]:
        """Become the owner of those that are free, or stand under the name `former`; all that owner has now."""

    def ask(self, numbers: Sequence[int], worker_id: str, lease_ms: int) -> None:
        """Ask their owners to release them."""

    def keep(self, numbers: Sequence[int], owner: int, lease_ms: int) -> frozenset[int]:
        """Lengthen the leases; which of them owner has still."""

    def release(self, numbers: Sequence[int], owner: int) -> None:
        """They are free at once."""

    def withdraw(self, numbers: Sequence[int], worker_id: str) -> None:
        """Ask for them no more."""


class Store(Protocol):
    """One lane's table, over one connection. Made after the fork, in the process that uses it."""

    @property
    def partitions(self) -> Partitions | None:
        """Those of a lane with `ordering: room`, else None."""

    def peek(self, floors: Floors) -> Peek:
        """Is there anything to claim behind the floors? One statement, no locks; `fresh` and `due` include suspects."""

    def exchange(
        self, settlements: Sequence[Settlement], want: Want | Pick | None, floors: Floors
    ) -> tuple[Settled, Claim]:
        """Settle, then claim, in one transaction. Either part may be empty; both empty: no statement is sent.

        Settle: each row changes only if the settlement's claim still holds it. A row that this very settlement had
        changed before (its token stands, its status is no longer `delivering`) counts as done: a repeat after a lost
        answer is harmless. RELEASED gives a row back at once: `retryable` if it had failed before, else `pending`.
        DISCARDED deletes it; a row that is gone is done.

        Claim: rows that are due by the database's clock, not leased (`lock_until_ms <= now`), passing over rows that
        another transaction has locked; fresh rows by id behind floors.fresh_id, due rows by (due_at_ms, id) behind
        theirs; for a Pick the rows it names, unless they are leased or finished. No two live claims ever hold the same
        row (G2). CommitInDoubt names the claim.
        """

    @property
    def old_rows(self) -> OldRows:
        """What is deleted because of its age."""

    def held(self, token: int, ids: Sequence[int]) -> frozenset[int]:
        """Which of the rows the claim still holds."""

    def fetch(self, token: int, ids: Sequence[int]) -> tuple[Event, ...]:
        """The events, with payload, that the claim still holds (a claim whose COMMIT got no answer)."""

    def renew(self, token: int, ids: Sequence[int], lease_ms: int) -> int:
        """Lengthen the lease of the rows that the claim still holds to lease_ms from now; how many those were."""

    def hurry(self, parked: Sequence[tuple[int, int]]) -> int:
        """Make (id, token) rows due now that are `retryable` since that claim settled them; how many those were."""

    def unfinished(self) -> bool:
        """Is any row pending and due, retryable or delivering? Delayed events that are not yet due do not count."""

    def ping(self) -> None:
        """Keep the session alive (it ends after 30 s of silence)."""

    def close(self) -> None:
        """Close the connection. Never raises."""
