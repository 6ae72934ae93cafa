"""Old rows, found by the index on due_at_ms and deleted by primary key. The contract is in old_api.py."""

from collections.abc import Sequence

from outboxd.config.schema import Lane
from outboxd.store import statements
from outboxd.store.api import FRESH
from outboxd.store.connection import Connection
from outboxd.store.lists import among, chunks
from outboxd.store.migrate_sqlite import index_of
from outboxd.store.migrations import theirs
from outboxd.store.old_api import Kind, Old, Position, Round
from outboxd.store.old_parted import PartedRows, old_of
from outboxd.store.spread import along_due, along_rooms, is_parted

DUE = {Kind.DELIVERED: -1, Kind.FAILED: -2, Kind.FRESH: FRESH}
"""due_at_ms of all rows of a kind."""


class OldRowTable:
    """Implements store.old_api.OldRows."""

    def __init__(self, connection: Connection, lane: Lane) -> None:
        self._db = connection
        self._lane = lane.name
        self._sql = _statements(connection, lane)
        self._id = statements.quoted(theirs(lane, "id"), connection.dialect)
        self._parted = PartedRows(connection, self._sql) if is_parted(connection, lane) else None

    def now_ms(self) -> int:
        return int(self._db.query(self._sql["now"])[0][0])

    def win(self, interval_ms: int) -> Round:
        rows = self._db.query(self._sql["last_round"], {"lane": self._lane})
        if not rows:  # a lane that init-db does not know
            return Round(0, False, interval_ms)
        now_ms, last_ms = int(rows[0][0]), int(rows[0][1])
        # One that began just now, after our statement had: its time is the higher one, and no clock was set back.
        if abs(now_ms - last_ms) < interval_ms:
            return Round(now_ms, False, min(interval_ms, last_ms + interval_ms - now_ms))
        is_won = bool(self._db.execute(self._sql["win_round"], {"lane": self._lane, "seen": last_ms}))
        return Round(now_ms, is_won, interval_ms)

    def read(self, kind: Kind, after: Position, most: int) -> Sequence[Old]:
        if kind is not Kind.TRIED:
            return self._equal(DUE[kind], after.id, most)
        # Equal due values may be many: those behind the position are a range of ids.
        found = self._equal(after.due_at_ms, after.id, most) if after.id else []
        if len(found) < most:
            found += self._range(after.due_at_ms + bool(after.id), most - len(found))
        return found

    def _equal(self, due_at_ms: int, after: int, most: int) -> list[Old]:
        if self._parted:
            return self._parted.equal(due_at_ms, after, most)
        rows = self._db.query(self._sql["equal"], {"due": due_at_ms, "after": after, "most": most})
        return [old_of(row) for row in rows]

    def _range(self, low: int, most: int) -> list[Old]:
        if self._parted:
            return self._parted.range(low, FRESH - 1, most)
        rows = self._db.query(self._sql["range"], {"low": low, "high": FRESH - 1, "most": most})
        return [old_of(row) for row in rows]

    def delete(self, kind: Kind, ids: Sequence[int]) -> int:
        still = self._sql[f"still_{kind}" if kind.is_terminal else "still_active"]
        deleted = 0
        self._db.begin()
        try:
            for part in chunks(sorted(ids)):
                mine: Sequence[int] = part
                if "lock" in self._sql:
                    locked = self._db.query(self._over("lock", part, still))
                    mine = [int(row[0]) for row in locked]
                if mine:
                    deleted += self._db.execute(self._over("delete", mine, still))
        except BaseException:
            self._db.rollback()
            raise
        self._db.commit()
        return deleted

    def _over(self, name: str, ids: Sequence[int], still: str) -> str:
        return self._sql[name].replace("{rows}", among(self._id, ids)).replace("{still}", still)


def _statements(connection: Connection, lane: Lane) -> dict[str, str]:
    dialect = connection.dialect
    own = statements.load("old")
    texts = {**own, **statements.load(f"old_{dialect}")}
    index = ""
    if dialect == "sqlite":
        found = index_of(connection, lane.name, [theirs(lane, "due_at_ms")], unique=False)
        index = statements.quoted(found or f"{lane.name}_due", dialect)
    parted = is_parted(connection, lane)
    texts = {
        name: along_rooms(sql) if parted else along_due(sql, "FORCE INDEX (due)") for name, sql in texts.items()
    }
    kept = {"last_round", "win_round"}  # of outboxd_lane: a lane's own names for columns do not concern them
    return {
        name: statements.render(
            sql.replace("{index}", index), dialect, lane.name, None if name in kept else lane.columns
        )
        for name, sql in texts.items()
    }
