"""Rounds of the background cleanup: every kind of old row has its turn."""

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from outboxd.relay.cleaner import READ_SHARE, Cleaner
from outboxd.store.api import Store
from outboxd.store.old_api import Kind, Old, Position, Round
from outboxd.supervisor.scoreboard import Scoreboard
from tests.services.ordered_source import config_of

BATCH = 10
NOW_MS = 10_000_000


class Rows:
    """Old rows by their kinds; those under a lease stay. Every round is won."""

    def __init__(self, **count: int) -> None:
        self.left = {Kind(kind): [Old(n + 1, 0, 1, 1, 1, kind in ("fresh", "tried")) for n in range(many)]
                     for kind, many in count.items()}  # fmt: skip

    def win(self, interval_ms: int) -> Round:
        """As OldRows."""
        return Round(NOW_MS, True, interval_ms)

    def read(self, kind: Kind, after: Position, most: int) -> Sequence[Old]:
        """The same."""
        return [row for row in self.left.get(kind, ()) if row.id > after.id][:most]

    def delete(self, kind: Kind, ids: Sequence[int]) -> int:
        """The same."""
        before = len(self.left[kind])
        self.left[kind] = [row for row in self.left[kind] if row.id not in ids]
        return before - len(self.left[kind])


def test_old_rows_that_stay_do_not_keep_those_of_other_kinds_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round reads only so much; on a quick machine each search begins anew with every round."""
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)  # nothing takes any time
    ages = "cleanup_interval: 1s, cleanup_active_after: 60s, cleanup_terminal_after: 60s"
    config = config_of("sqlite:////nowhere", more=f", {ages}, cleanup_batch_size: {BATCH}")
    fresh, tried = 15, READ_SHARE * BATCH - 15  # both walks come to their ends, and all is read that may be
    rows = Rows(fresh=fresh, tried=tried, delivered=25, failed=25)
    store = cast("Store", SimpleNamespace(old_rows=rows))
    cleaner = Cleaner(config.lanes["room_outbox"], Scoreboard(1).slot(0))
    for _ in range(1000):
        now_s += 0.05
        cleaner.turn(store, now_s)
    assert {kind: len(left) for kind, left in rows.left.items()} == {
        Kind.FRESH: fresh, Kind.TRIED: tried, Kind.DELIVERED: 0, Kind.FAILED: 0
    }  # fmt: skip
