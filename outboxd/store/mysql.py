"""The store on MySQL 8.0.1+ and MariaDB 10.6+. The contract is in api.py, the statements in statements/mysql.sql."""

import random
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from outboxd.config.schema import Lane
from outboxd.errors import StoreConflict
from outboxd.event import Event
from outboxd.store import statements
from outboxd.store.api import DELIVERED, DISCARDED, FRESH, Claim, Floors, Peek, Pick, Settled, Settlement, Want
from outboxd.store.choose import Choice, Row, event_of, inline_bytes
from outboxd.store.exchange import exchange
from outboxd.store.lists import CHUNK, among, chunks
from outboxd.store.mysql_connection import MysqlConnection
from outboxd.store.old_rows import OldRowTable
from outboxd.store.partitions import PartitionTable
from outboxd.store.spread import along_due, along_rooms, is_parted

REPEATS = 4
"""How often a transaction is tried that meets deadlocks or lock waits."""
REPEAT_WITHIN_S = 0.5
"""No longer: a lock wait takes seconds, and meanwhile nobody looks after the publishes in flight."""

MOST_CLAIMS = 4
"""Delivered rows of more claims than these are settled by one statement instead of one for each claim."""


class MysqlStore:
    """Implements store.api.Store and, for claims, store.exchange.Table."""

    def __init__(self, connection: MysqlConnection, lane: Lane) -> None:
        self._db = connection
        self._lane = lane.name
        parted = is_parted(connection, lane)
        self._sql = {
            name: statements.render(
                along_rooms(sql) if parted else along_due(sql, "FORCE INDEX (due)"), "mysql", lane.name, lane.columns
            )
            for name, sql in statements.load("mysql").items()
        }
        self.old_rows = OldRowTable(connection, lane)
        self.partitions = PartitionTable(connection, lane, self.payload) if lane.is_ordered else None
        self._id = statements.quoted(lane.columns.get("id", "id"), "mysql")

    def peek(self, floors: Floors) -> Peek:
        params = {"lane": self._lane, "fresh": FRESH, "after": floors.fresh_id, "due": floors.due_at_ms}
        params["due_after"] = floors.due_id
        row = self._db.query(self._sql["peek"], params)[0]
        return Peek(int(row[0]), bool(row[1]), bool(row[2]), bool(row[3]), int(row[4] or 0))

    def exchange(
        self, settlements: Sequence[Settlement], want: Want | Pick | None, floors: Floors
    ) -> tuple[Settled, Claim]:
        until_s = time.monotonic() + REPEAT_WITHIN_S
        for attempt in range(1, REPEATS + 1):
            try:
                return exchange(self, self._db, self._lane, settlements, want, floors)
            except StoreConflict:
                if attempt == REPEATS or time.monotonic() > until_s:
                    raise
                time.sleep(random.uniform(0.005, 0.02) * attempt)
        raise AssertionError("unreachable: the last repeat returns or raises")

    # settle

    def settle(self, settlements: Sequence[Settlement]) -> Settled:
        usual: dict[int, list[int]] = {}
        stale: dict[int, list[int]] = {}
        each: list[Settlement] = []
        for settlement in settlements:
            if settlement.status == DELIVERED and settlement.published_to is None:
                usual.setdefault(settlement.token, []).append(settlement.id)
            elif settlement.status == DISCARDED:
                stale.setdefault(settlement.token, []).append(settlement.id)
            else:
                each.append(settlement)
        if len(usual) > MOST_CLAIMS:
            each = [settlement for settlement in settlements if settlement.status != DISCARDED]
            usual = {}
        found = self._settle_alike("settle_delivered", usual) + self._settle_alike("settle_discarded", stale)
        found += self._settle_each(each)
        return Settled(found) if found == len(settlements) else self._account(settlements)

    def _settle_alike(self, name: str, claims: Mapping[int, list[int]]) -> int:
        """Rows by their claims' tokens, all of which come to the same end."""
        return sum(
            self._db.execute(self._over(name, part), {"token": token})
            for token, ids in sorted(claims.items())
            for part in chunks(sorted(ids))
        )

    def _settle_each(self, settlements: Sequence[Settlement]) -> int:
        found = 0
        for part in _parts(settlements):
            rows = [(s.id, s.token, s.status, int(s.counted), s.delay_ms, s.last_error, s.published_to) for s in part]
            found += self._db.execute(self._sql["settle_each"], {"rows": _json(rows)})
        return found

    def _account(self, settlements: Sequence[Settlement]) -> Settled:
        """Which settlements found their claim gone. A row with our token that is not delivering is our own work."""
        stands: dict[int, int] = {}
        for part in _parts(settlements):
            rows = self._db.query(self._over("tokens", [s.id for s in part]))
            stands.update((int(row[0]), int(row[1])) for row in rows)
        gone = tuple(s.id for s in settlements if s.id not in stands and s.status != DISCARDED)
        lost = tuple(s.id for s in settlements if s.id in stands and stands[s.id] != s.token)
        return Settled(len(settlements) - len(gone) - len(lost), lost, gone)

    # claim

    def look(self, name: str, want: Want, limit: int, due: int, after: int) -> Sequence[Row]:
        params = {"due": due, "after": after, "limit": limit, "inline": inline_bytes(want)}
        return self._db.query(self._sql[name], params)

    def take(self, want: Want, choice: Choice) -> None:
        name = "take_suspect" if choice.suspect else "take"
        params = {"worker": want.worker_id, "token": want.token, "lease": want.lease_ms}
        ids = sorted(row[0] for row in choice.rows)
        for start in range(0, len(ids), CHUNK):
            self._db.execute(self._over(name, ids[start : start + CHUNK]), params)

    def pick(self, pick: Pick) -> Claim:
        if self.partitions is None:
            raise AssertionError("only an ordered lane has picks")
        return self.partitions.claim(pick)

    def payload(self, row_id: int) -> bytes | str:
        # One by one: the answer to a list of them would stand in memory twice over.
        found: bytes | str = self._db.query(self._sql["payload"].replace("{ids}", str(row_id)))[0][0]
        return found

    # what a worker asks beside

    def held(self, token: int, ids: Sequence[int]) -> frozenset[int]:
        holds: set[int] = set()
        for part in chunks(sorted(ids)):
            rows = self._db.query(self._over("tokens", part))
            holds.update(row[0] for row in rows if row[1] == token and row[2] == "delivering")
        return frozenset(holds)

    def fetch(self, token: int, ids: Sequence[int]) -> tuple[Event, ...]:
        events: list[Event] = []
        for row_id in sorted(ids):
            for row in self._db.query(self._sql["fetch"].replace("{ids}", str(row_id)), {"token": token}):
                events.append(event_of(row, self._lane, row[5], row[8]))
        return tuple(events)

    def renew(self, token: int, ids: Sequence[int], lease_ms: int) -> int:
        params = {"token": token, "lease": lease_ms}
        return sum(self._db.execute(self._over("renew", part), params) for part in chunks(sorted(ids)))

    def hurry(self, parked: Sequence[tuple[int, int]]) -> int:
        return sum(
            self._db.execute(self._sql["hurry"], {"rows": _json(sorted(parked[start : start + CHUNK]))})
            for start in range(0, len(parked), CHUNK)
        )

    def unfinished(self) -> bool:
        return bool(self._db.query(self._sql["unfinished"], {"fresh": FRESH})[0][0])

    def ping(self) -> None:
        self._db.ping()

    def close(self) -> None:
        self._db.close()

    def _over(self, name: str, ids: Sequence[int]) -> str:
        """The statement over the rows with these ids, which ascend."""
        return self._sql[name].replace("{rows}", among(self._id, ids))


def _json(rows: Sequence[tuple[object, ...]]) -> str:
    return msgspec.json.encode(rows).decode()


def _parts(settlements: Sequence[Settlement]) -> Iterator[Sequence[Settlement]]:
    """Chunks in the order of ids, so that two transactions lock rows in the same order."""
    ordered = sorted(settlements, key=lambda s: s.id)
    for start in range(0, len(ordered), CHUNK):
        yield ordered[start : start + CHUNK]
