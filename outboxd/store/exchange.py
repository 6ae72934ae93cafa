"""Settle and claim in one transaction: look, choose, take, read long payloads. Shared by the stores."""

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Protocol

from outboxd.errors import CommitInDoubt
from outboxd.store.api import FRESH, Claim, Floors, Pick, Settled, Settlement, Want
from outboxd.store.choose import Choice, Row, choose, events_of, floors_after, missing_payloads
from outboxd.store.connection import Connection


class Table(Protocol):
    """What a store can do with its table, inside a transaction."""

    def settle(self, settlements: Sequence[Settlement]) -> Settled:
        """Write outcomes, each fenced by its claim."""

    def look(self, name: str, want: Want, limit: int, due: int, after: int) -> Sequence[Row]:
        """Candidate rows, locked: `claim_equal`, those of one due value behind an id; `claim_range`, of due and later
        values up to now."""

    def take(self, want: Want, choice: Choice) -> None:
        """Write the claim into the chosen rows."""

    def pick(self, pick: Pick) -> Claim:
        """Claim the rows of an ordered lane."""

    def payload(self, row_id: int) -> bytes | str:
        """One row's envelope."""


def exchange(
    table: Table,
    connection: Connection,
    lane: str,
    settlements: Sequence[Settlement],
    want: Want | Pick | None,
    floors: Floors,
) -> tuple[Settled, Claim]:
    """Store.exchange, once: a conflict is the caller's to repeat."""
    settled, claimed = Settled(), Claim(0, floors=floors)
    if not settlements and want is None:
        return settled, claimed
    connection.begin()
    try:
        if settlements:
            settled = table.settle(settlements)
        if want is not None:
            claimed = table.pick(want) if isinstance(want, Pick) else _claim(table, lane, want, floors)
    except BaseException:
        connection.rollback()
        raise
    try:
        connection.commit()
    except CommitInDoubt as error:
        taken = (*claimed.events, *(event for event, _ in claimed.oversize))
        raise CommitInDoubt(str(error), claimed.token, tuple(event.id for event in taken)) from error
    return settled, claimed


def _claim(table: Table, lane: str, want: Want, floors: Floors) -> Claim:
    if want.limit <= 0:
        return Claim(want.token, floors=floors)
    candidates, fresh_left, due_left = _candidates(table, want, floors)
    choice = choose(candidates, want)
    if choice.rows:
        table.take(want, choice)
    payloads = {row_id: table.payload(row_id) for row_id in missing_payloads(choice.rows, want)}
    events, oversize = events_of(choice.rows, lane, payloads, want.max_event_bytes, choice.suspect)
    return Claim(
        token=want.token,
        events=events,
        oversize=oversize,
        suspect=choice.suspect,
        suspects_wait=choice.suspects_wait,
        cut_by_budget=choice.cut,
        fresh_left=fresh_left,
        due_left=due_left,
        floors=floors_after(floors, choice.passed),
    )


def _candidates(table: Table, want: Want, floors: Floors) -> tuple[Sequence[Row], bool, bool]:
    """Due rows and fresh ones, each at most half where both have rows; whether either class may have more."""
    # The odd row, and a limit of one, fall to either class by the chance in the token.
    due_asked = 0 if not want.due else (want.limit + want.token % 2) // 2 if want.fresh else want.limit
    due = _due_rows(table, want, floors, due_asked)
    fresh_asked = want.limit - len(due) if want.fresh else 0
    fresh: Sequence[Row] = ()
    if fresh_asked:
        fresh = table.look("claim_equal", want, fresh_asked, due=FRESH, after=floors.fresh_id)
    if want.due and len(fresh) < fresh_asked and len(due) == due_asked:
        due_asked = want.limit - len(fresh)
        due += _due_rows(table, want, floors_after(floors, due), due_asked - len(due))
    fresh_left = want.fresh and len(fresh) >= fresh_asked
    due_left = want.due and len(due) >= due_asked
    if not due or not fresh:
        return due or fresh, fresh_left, due_left
    # In turn, so that a byte budget that cuts the claim short cuts both classes alike.
    mixed = [row for row in chain.from_iterable(zip_longest(due, fresh)) if row is not None]
    return mixed, fresh_left, due_left


def _due_rows(table: Table, want: Want, floors: Floors, limit: int) -> list[Row]:
    """Equal due values may be many: those of the floor's own value are a range of ids, not read over again."""
    rows: list[Row] = []
    if limit > 0 and floors.due_id:
        rows += table.look("claim_equal", want, limit, due=floors.due_at_ms, after=floors.due_id)
    if len(rows) < limit:
        start = floors.due_at_ms + 1 if floors.due_id else floors.due_at_ms
        rows += table.look("claim_range", want, limit - len(rows), due=start, after=0)
    return rows
