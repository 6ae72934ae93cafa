"""What became of every row of a lane, written down by the database itself: a trigger notes each change of a row.

So a test can tell every claim of every event: by whom, when, and how it ended, whatever died meanwhile.
"""

from collections.abc import Iterable
from typing import NamedTuple

from outboxd.store.statements import NOW
from tests.services.lanes import Table

_COLUMNS = ("status", "worker_id", "claim_token", "lock_until_ms", "retry_count")
_TYPES = {"status": "VARCHAR(16)", "worker_id": "VARCHAR(64)"}


SOON_S = 10.0
"""A lost lease is found within a few seconds of its end, even on a machine with little time for it."""


class State(NamedTuple):
    """The columns of a row that tell of claims."""

    status: str
    worker_id: str
    token: int
    lock_until_ms: int
    retry_count: int


class Change(NamedTuple):
    """A row was changed, at at_ms by the database's clock."""

    event_id: str
    at_ms: int
    before: State
    after: State

    @property
    def is_claim(self) -> bool:
        """Did somebody take it?"""
        return self.after.status == "delivering" and self.after.token != self.before.token

    @property
    def is_loss(self) -> bool:
        """Did somebody take it from a claim that held it still?"""
        return self.is_claim and self.before.status == "delivering"

    @property
    def late_s(self) -> float:
        """Of a loss: how long after the lease's end."""
        return (self.at_ms - self.before.lock_until_ms) / 1000


def keep_journal(table: Table) -> None:
    """From now on. Once for each table, before the daemon starts."""
    names = [f"{when}_{name}" for when in ("old", "new") for name in _COLUMNS]
    types = ", ".join(f"{name} {_TYPES.get(name[4:], 'BIGINT')}" for name in names)
    values = ", ".join(f"{when}.{name}" for when in ("OLD", "NEW") for name in _COLUMNS)
    dialect = table.connection.dialect
    note = f"INSERT INTO journal (event_id, at_ms, {', '.join(names)}) VALUES (NEW.event_id, {NOW[dialect]}, {values})"
    if dialect == "sqlite":
        key, note = "INTEGER PRIMARY KEY", f"BEGIN {note}; END"
    else:
        key = "BIGINT AUTO_INCREMENT PRIMARY KEY"
    table.connection.execute(f"CREATE TABLE journal (number {key}, event_id VARCHAR(64), at_ms BIGINT, {types})")
    table.connection.execute(f"CREATE TRIGGER note AFTER UPDATE ON {table.name} FOR EACH ROW {note}")


def journal(table: Table) -> list[Change]:
    """Every change so far, in order."""
    columns = ", ".join(f"{when}_{name}" for when in ("old", "new") for name in _COLUMNS)
    rows = table.connection.query(f"SELECT event_id, at_ms, {columns} FROM journal ORDER BY number")
    return [Change(str(row[0]), int(row[1]), State(*row[2:7]), State(*row[7:])) for row in rows]


def check_claims(changes: Iterable[Change]) -> None:
    """G2, G3, G8: nobody took a row before its lease ran out, nobody settled what another had claimed, and
    `retry_count` has risen with every lost lease and with nothing else (no publish of the test fails)."""
    for change in changes:
        before, after = change.before, change.after
        assert not change.is_loss or before.lock_until_ms <= change.at_ms, f"two live leases: {change}"
        assert change.is_claim or after.token == before.token, f"a token changed without a claim: {change}"
        assert change.is_claim or before.status == "delivering", f"changed by somebody who held nothing: {change}"
        assert after.retry_count == before.retry_count + change.is_loss, f"charged without a lost lease: {change}"
