"""Old rows of a lane whose index begins with the partition, read as if it began with due_at_ms.

Of each partition some are looked up; up to where the first of those partitions ends that has more, all are known. Where
one partition has nearly all of them, that takes several looks.
"""

from collections.abc import Mapping, Sequence

from outboxd.store.connection import Connection, Row
from outboxd.store.lists import chunks, listed
from outboxd.store.old_api import Old
from outboxd.store.spread import share

LEAST = 25
"""Of each partition, at one look."""

Key = tuple[int, int]
"""(due_at_ms, id)"""


def old_of(row: Row) -> Old:
    """A row of the statements that find old rows."""
    row_id, due_ms, created_ms, updated_ms, delivered_ms, is_leased = row
    return Old(int(row_id), int(due_ms), int(created_ms), int(updated_ms), int(delivered_ms), bool(is_leased))


class PartedRows:
    """Of one lane. sql: the statements of old_mysql.sql, rendered."""

    def __init__(self, connection: Connection, sql: Mapping[str, str]) -> None:
        self._db = connection
        self._sql = sql

    def equal(self, due_at_ms: int, after: int, most: int) -> list[Old]:
        """Rows of one due value behind an id, by their ids; fewer than `most`: that was the end."""
        found: list[Old] = []
        end: Key | None = (due_at_ms, after)
        while end is not None and len(found) < most:
            keys, end = self._keys("parted_equal", {"due": due_at_ms, "after": end[1]}, most)
            found += self._rows(keys, due_at_ms, due_at_ms)
        return found[:most]

    def range(self, low: int, high: int, most: int) -> list[Old]:
        """Rows of due values from low to high, by (due_at_ms, id); fewer than `most`: that was the end."""
        found: list[Old] = []
        while low <= high and len(found) < most:
            keys, end = self._keys("parted_range", {"low": low, "high": high}, most)
            found += self._rows(keys, low, high)
            if end is None:
                break
            if len(found) < most:
                found += self.equal(*end, most - len(found))
            low = end[0] + 1
        return found[:most]

    def _keys(self, name: str, params: Mapping[str, int], most: int) -> tuple[list[Key], Key | None]:
        """Keys in order, and the last one if more may follow."""
        each = max(LEAST, share(most, True))
        keys: dict[int, list[Key]] = {}
        for due_ms, row_id, number in self._db.query(self._sql[name], {**params, "each": each}):
            keys.setdefault(int(number), []).append((int(due_ms), int(row_id)))
        end = min((max(those) for those in keys.values() if len(those) >= each), default=None)
        return sorted(key for those in keys.values() for key in those if end is None or key <= end), end

    def _rows(self, keys: Sequence[Key], low: int, high: int) -> list[Old]:
        found: list[Old] = []
        for part in chunks([row_id for _, row_id in keys]):
            sql = self._sql["rows"].replace("{ids}", listed(part))
            found += map(old_of, self._db.query(sql, {"low": low, "high": high}))
        return sorted(found, key=lambda row: (row.due_at_ms, row.id))
