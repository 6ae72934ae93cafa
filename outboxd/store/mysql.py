"""The store on MySQL 8.0.1+ and MariaDB 10.6+. The contract is in api.py, the statements in statements/mysql.sql."""

import random
import time
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from outboxd.config.schema import Lane
from outboxd.errors import CommitInDoubt, StoreConflict
from outboxd.event import Event
from outboxd.store import statements
from outboxd.store.api import DELIVERED, FRESH, RELEASED, Claim, Floors, Peek, Settled, Settlement, Want
from outboxd.store.choose import Choice, Row, choose, event_of, events_of, floors_after, inline_bytes, missing_payloads
from outboxd.store.mysql_connection import MysqlConnection

CHUNK = 1000
"""Ids in one IN list: longer ones make the server scan the primary key instead of looking ids up."""

REPEATS = 4
"""How often a transaction is tried that meets deadlocks or lock waits."""

NOTHING_SETTLED = Settled()


class MysqlStore:
    """Implements store.api.Store."""

    def __init__(self, connection: MysqlConnection, lane: Lane) -> None:
        self._db = connection
        self._lane = lane.name
        self._sql = {
            name: statements.render(sql, "mysql", lane.name, lane.columns)
            for name, sql in statements.load("mysql").items()
        }
        self._doubt: tuple[int, tuple[int, ...]] = (0, ())

    def peek(self, floors: Floors) -> Peek:
        params = {"lane": self._lane, "fresh": FRESH, "after": floors.fresh_id, "due": floors.due_at_ms}
        row = self._db.query(self._sql["peek"], params)[0]
        return Peek(now_ms=int(row[0]), paused=bool(row[1]), fresh=bool(row[2]), due=bool(row[3]))

    def exchange(self, settlements: Sequence[Settlement], want: Want | None, floors: Floors) -> tuple[Settled, Claim]:
        self._doubt = (0, ())
        if not settlements and want is None:
            return NOTHING_SETTLED, Claim(0, floors=floors)
        for attempt in range(1, REPEATS + 1):
            try:
                return self._transaction(settlements, want, floors)
            except StoreConflict:
                if attempt == REPEATS:
                    raise
                time.sleep(random.uniform(0.005, 0.02) * attempt)  # bounded: at most 0.12 s over all repeats
        raise AssertionError("unreachable: the last repeat returns or raises")

    def _transaction(
        self, settlements: Sequence[Settlement], want: Want | None, floors: Floors
    ) -> tuple[Settled, Claim]:
        self._db.begin()
        settled, claim = NOTHING_SETTLED, Claim(0, floors=floors)
        try:
            if settlements:
                settled = self._settle(settlements)
            if want is not None:
                claim = self._claim(want, floors)
        except BaseException:
            self._db.rollback()
            raise
        try:
            self._db.commit()
        except CommitInDoubt:
            taken = (*claim.events, *(event for event, _ in claim.oversize))
            self._doubt = (claim.token, tuple(event.id for event in taken))
            raise
        return settled, claim

    def in_doubt(self) -> tuple[int, tuple[int, ...]]:
        return self._doubt

    # settle

    def _settle(self, settlements: Sequence[Settlement]) -> Settled:
        usual: list[Settlement] = []
        released: list[Settlement] = []
        each: list[Settlement] = []
        for settlement in settlements:
            if settlement.status == DELIVERED and settlement.published_to is None:
                usual.append(settlement)
            elif settlement.status == RELEASED:
                released.append(settlement)
            else:
                each.append(settlement)
        found = self._settle_alike("settle_delivered", usual) + self._settle_alike("settle_released", released)
        found += self._settle_each(each)
        if found == len(settlements):
            return Settled(found)
        return self._account(settlements)

    def _settle_alike(self, name: str, settlements: Sequence[Settlement]) -> int:
        found = 0
        for part in _parts(settlements):
            ids, tokens = _list(s.id for s in part), _list({s.token for s in part})
            found += self._db.execute(self._sql[name].replace("{ids}", ids).replace("{tokens}", tokens))
        return found

    def _settle_each(self, settlements: Sequence[Settlement]) -> int:
        found = 0
        for part in _parts(settlements):
            rows = [
                (s.id, s.token, s.status, int(s.counted), s.delay_ms, s.last_error, s.published_to)
                for s in sorted(part, key=lambda s: s.id)
            ]
            found += self._db.execute(self._sql["settle_each"], {"rows": msgspec.json.encode(rows).decode()})
        return found

    def _account(self, settlements: Sequence[Settlement]) -> Settled:
        """Which settlements found their claim gone. A row with our token that is not delivering is our own work."""
        stands: dict[int, int] = {}
        for part in _parts(settlements):
            sql = self._sql["tokens"].replace("{ids}", _list(s.id for s in part))
            stands.update((int(row[0]), int(row[1])) for row in self._db.query(sql))
        gone = tuple(s.id for s in settlements if s.id not in stands)
        lost = tuple(s.id for s in settlements if s.id in stands and stands[s.id] != s.token)
        return Settled(len(settlements) - len(gone) - len(lost), lost, gone)

    # claim

    def _claim(self, want: Want, floors: Floors) -> Claim:
        candidates: list[Row] = []
        fresh_left = due_left = False
        if want.due:
            ask = max(1, want.limit // 2) if want.fresh else want.limit  # neither class starves the other
            candidates += self._due_rows(want, floors, ask)
            due_left = len(candidates) >= ask
        if want.fresh:
            ask = max(1, want.limit - len(candidates))
            rows = self._look("claim_equal", want, ask, due=FRESH, after=floors.fresh_id)
            fresh_left = len(rows) >= ask
            candidates += rows
        choice = choose(candidates, want)
        if choice.rows:
            self._take(want, choice)
        payloads = self._payloads(missing_payloads(choice.rows, want))
        events, oversize = events_of(choice.rows, self._lane, payloads, want, choice.suspect)
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

    def _due_rows(self, want: Want, floors: Floors, limit: int) -> list[Row]:
        rows: list[Row] = []
        if floors.due_id:
            rows += self._look("claim_equal", want, limit, due=floors.due_at_ms, after=floors.due_id)
        if len(rows) < limit:
            start = floors.due_at_ms + 1 if floors.due_id else 0
            rows += self._look("claim_range", want, limit - len(rows), due=start, after=0)
        return rows

    def _look(self, name: str, want: Want, limit: int, due: int, after: int) -> Sequence[Row]:
        params = {"due": due, "after": after, "limit": limit, "inline": inline_bytes(want)}
        return self._db.query(self._sql[name], params)

    def _take(self, want: Want, choice: Choice) -> None:
        name = "take_suspect" if choice.suspect else "take"
        params = {"worker": want.worker_id, "token": want.token, "lease": want.lease_ms}
        ids = sorted(row[0] for row in choice.rows)
        for start in range(0, len(ids), CHUNK):
            self._db.execute(self._sql[name].replace("{ids}", _list(ids[start : start + CHUNK])), params)

    def _payloads(self, ids: Sequence[int]) -> dict[int, bytes]:
        # One by one: the answer to a list of them would stand in memory twice over.
        found: dict[int, bytes] = {}
        for row_id in ids:
            found.update(self._db.query(self._sql["payloads"].replace("{ids}", str(row_id))))
        return found

    # what a worker asks beside

    def held(self, token: int, ids: Sequence[int]) -> frozenset[int]:
        holds: set[int] = set()
        for part in _chunks(ids):
            rows = self._db.query(self._sql["tokens"].replace("{ids}", _list(part)))
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
        return sum(
            self._db.execute(self._sql["renew"].replace("{ids}", _list(part)), params) for part in _chunks(sorted(ids))
        )

    def hurry(self, parked: Sequence[tuple[int, int]]) -> int:
        found = 0
        for start in range(0, len(parked), CHUNK):
            part = sorted(parked[start : start + CHUNK])
            ids, tokens = _list(row_id for row_id, _ in part), _list({token for _, token in part})
            found += self._db.execute(self._sql["hurry"].replace("{ids}", ids).replace("{tokens}", tokens))
        return found

    def unfinished(self) -> bool:
        return bool(self._db.query(self._sql["unfinished"], {"fresh": FRESH})[0][0])

    def ping(self) -> None:
        self._db.ping()

    def close(self) -> None:
        self._db.close()


def _list(numbers: Iterable[int]) -> str:
    return ",".join(map(str, map(int, numbers)))


def _chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), CHUNK):
        yield ids[start : start + CHUNK]


def _parts(settlements: Sequence[Settlement]) -> Iterator[Sequence[Settlement]]:
    """Chunks in the order of ids, so that two transactions lock rows in the same order."""
    ordered = sorted(settlements, key=lambda s: s.id)
    for start in range(0, len(ordered), CHUNK):
        yield ordered[start : start + CHUNK]
