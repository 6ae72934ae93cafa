"""The store on SQLite. The contract is in api.py, the statements in statements/sqlite.sql.

One writer at a time: a claim looks and takes under BEGIN IMMEDIATE, so that no other claim sees the same rows free.
"""

from collections.abc import Iterable, Sequence

import msgspec

from outboxd.config.schema import Lane
from outboxd.event import Event
from outboxd.store import statements
from outboxd.store.api import DISCARDED, FRESH, Claim, Floors, Peek, Pick, Settled, Settlement, Want
from outboxd.store.choose import Choice, Row, event_of, inline_bytes
from outboxd.store.connection import Connection
from outboxd.store.exchange import exchange
from outboxd.store.migrate import create_missing, verify
from outboxd.store.old_rows import OldRowTable
from outboxd.store.partitions import PartitionTable


class SqliteStore:
    """Implements store.api.Store and, for claims, store.exchange.Table."""

    def __init__(self, connection: Connection, lane: Lane) -> None:
        self._db = connection
        self._lane = lane.name
        create_missing(connection, [lane])
        # SQLite takes an unknown name in quotes for a text: a column that is missing would not be noticed later.
        verify(connection, lane)
        self._sql = _statements(lane, _index(connection, lane, "due_at_ms"))
        self.old_rows = OldRowTable(connection, lane)
        self.partitions: PartitionTable | None = None
        if lane.is_ordered:
            index = _index(connection, lane, "room_partition", "due_at_ms")
            self.partitions = PartitionTable(connection, lane, self.payload, index)

    def peek(self, floors: Floors) -> Peek:
        params = {
            "lane": self._lane,
            "fresh": FRESH,
            "after": floors.fresh_id,
            "due": floors.due_at_ms,
            "due_after": floors.due_id,
        }
        now_ms, paused, fresh, due, last_id = self._db.query(self._sql["peek"], params)[0]
        return Peek(now_ms, bool(paused), bool(fresh), bool(due), last_id or 0)

    def exchange(
        self, settlements: Sequence[Settlement], want: Want | Pick | None, floors: Floors
    ) -> tuple[Settled, Claim]:
        return exchange(self, self._db, self._lane, settlements, want, floors)

    def settle(self, settlements: Sequence[Settlement]) -> Settled:
        stale = [settlement for settlement in settlements if settlement.status == DISCARDED]
        unchanged = [
            settlement
            for settlement in settlements
            if settlement.status != DISCARDED and not self._db.execute(self._sql["settle"], _row(settlement))
        ]
        if self._discard(stale) < len(stale):
            unchanged += stale
        if not unchanged:
            return Settled(len(settlements))
        # A row with our token that is no longer delivering is our own work of before.
        stands = {row[0]: row[1] for row in self._tokens(settlement.id for settlement in unchanged)}
        gone = tuple(s.id for s in unchanged if s.id not in stands and s.status != DISCARDED)
        lost = tuple(s.id for s in unchanged if s.id in stands and stands[s.id] != s.token)
        return Settled(len(settlements) - len(gone) - len(lost), lost, gone)

    def _discard(self, settlements: Sequence[Settlement]) -> int:
        claims: dict[int, list[int]] = {}
        for settlement in settlements:
            claims.setdefault(settlement.token, []).append(settlement.id)
        return sum(
            self._db.execute(self._sql["settle_discarded"], {"token": token, "ids": _json(ids)})
            for token, ids in claims.items()
        )

    def look(self, name: str, want: Want, limit: int, due: int, after: int) -> Sequence[Row]:
        params = {"due": due, "after": after, "limit": limit, "inline": inline_bytes(want)}
        return self._db.query(self._sql[name], params)

    def take(self, want: Want, choice: Choice) -> None:
        params = {"worker": want.worker_id, "token": want.token, "lease": want.lease_ms, "lost": int(choice.suspect)}
        self._db.execute(self._sql["take"], {**params, "ids": _json(row[0] for row in choice.rows)})

    def pick(self, pick: Pick) -> Claim:
        if self.partitions is None:
            raise AssertionError("only an ordered lane has picks")
        return self.partitions.claim(pick)

    def payload(self, row_id: int) -> bytes:
        return bytes(self._db.query(self._sql["payload"], {"key": row_id})[0][0])

    def _tokens(self, ids: Iterable[int]) -> Sequence[Row]:
        return self._db.query(self._sql["tokens"], {"ids": _json(ids)})

    def held(self, token: int, ids: Sequence[int]) -> frozenset[int]:
        return frozenset(row[0] for row in self._tokens(ids) if row[1] == token and row[2] == "delivering")

    def fetch(self, token: int, ids: Sequence[int]) -> tuple[Event, ...]:
        events: list[Event] = []
        for key in sorted(ids):
            for row in self._db.query(self._sql["fetch"], {"key": key, "token": token, "inline": FRESH}):
                events.append(event_of(row, self._lane, row[5], row[8]))
        return tuple(events)

    def renew(self, token: int, ids: Sequence[int], lease_ms: int) -> int:
        return self._db.execute(self._sql["renew"], {"token": token, "ids": _json(ids), "lease": lease_ms})

    def hurry(self, parked: Sequence[tuple[int, int]]) -> int:
        if not parked:
            return 0
        self._db.begin()
        try:
            found = sum(self._db.execute(self._sql["hurry"], {"key": key, "token": token}) for key, token in parked)
        except BaseException:
            self._db.rollback()
            raise
        self._db.commit()
        return found

    def unfinished(self) -> bool:
        return bool(self._db.query(self._sql["unfinished"], {"fresh": FRESH})[0][0])

    def ping(self) -> None:
        self._db.ping()

    def close(self) -> None:
        self._db.close()


def _row(settlement: Settlement) -> dict[str, object]:
    return {
        "key": settlement.id,
        "token": settlement.token,
        "status": settlement.status,
        "counted": int(settlement.counted),
        "delay": settlement.delay_ms,
        "error": settlement.last_error,
        "names": settlement.published_to,
    }


def _json(ids: Iterable[int]) -> str:
    return msgspec.json.encode(list(ids)).decode()


def _statements(lane: Lane, index: str) -> dict[str, str]:
    texts = statements.load("sqlite")
    return {
        name: statements.render(
            sql.replace("{row}", texts["row"]).replace("{index}", statements.quoted(index, "sqlite")),
            "sqlite",
            lane.name,
            lane.columns,
        )
        for name, sql in texts.items()
    }


def _index(connection: Connection, lane: Lane, *columns: str) -> str:
    """The name of the lane's index on these columns; a table of the user's own may have it under any."""
    found = connection.query(
        "SELECT list.name, info.seqno, LOWER(info.name) FROM pragma_index_list(:lane) AS list, "
        "pragma_index_info(list.name) AS info WHERE NOT list.partial ORDER BY list.name, info.seqno",
        {"lane": lane.name},
    )
    indexes: dict[str, list[str]] = {}
    for name, _, column in found:
        indexes.setdefault(name, []).append(column)
    wanted = [lane.columns.get(column, column).lower() for column in columns]
    return next(name for name, has in indexes.items() if has == wanted)
