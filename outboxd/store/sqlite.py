"""The store on SQLite. The contract is in api.py, the statements in statements/sqlite.sql.

One writer at a time: a claim looks and takes under BEGIN IMMEDIATE, so that no other claim sees the same rows free.
"""

from collections.abc import Iterable, Sequence

import msgspec

from outboxd.config.schema import Lane
from outboxd.errors import CommitInDoubt
from outboxd.event import Event
from outboxd.store import statements
from outboxd.store.api import FRESH, Claim, Floors, Peek, Settled, Settlement, Want
from outboxd.store.choose import Choice, Row, choose, event_of, events_of, floors_after, inline_bytes, missing_payloads
from outboxd.store.connection import Connection
from outboxd.store.migrate import create_missing, verify

NOTHING_SETTLED = Settled()


class SqliteStore:
    """Implements store.api.Store."""

    def __init__(self, connection: Connection, lane: Lane) -> None:
        self._db = connection
        self._lane = lane.name
        create_missing(connection, [lane])
        # SQLite takes an unknown name in quotes for a text: a column that is missing would not be noticed later.
        verify(connection, lane)
        self._sql = _statements(lane, _due_index(connection, lane))
        self._doubt: tuple[int, tuple[int, ...]] = (0, ())

    def peek(self, floors: Floors) -> Peek:
        params = {
            "lane": self._lane,
            "fresh": FRESH,
            "after": floors.fresh_id,
            "due": floors.due_at_ms,
            "due_after": floors.due_id,
        }
        now_ms, paused, fresh, due = self._db.query(self._sql["peek"], params)[0]
        return Peek(now_ms=now_ms, paused=bool(paused), fresh=bool(fresh), due=bool(due))

    def exchange(self, settlements: Sequence[Settlement], want: Want | None, floors: Floors) -> tuple[Settled, Claim]:
        self._doubt = (0, ())
        settled, claim = NOTHING_SETTLED, Claim(0, floors=floors)
        if not settlements and want is None:
            return settled, claim
        self._db.begin()
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

    def _settle(self, settlements: Sequence[Settlement]) -> Settled:
        unchanged = [
            settlement for settlement in settlements if not self._db.execute(self._sql["settle"], _row(settlement))
        ]
        if not unchanged:
            return Settled(len(settlements))
        # A row with our token that is no longer delivering is our own work of before.
        stands = {row[0]: row[1] for row in self._tokens(settlement.id for settlement in unchanged)}
        gone = tuple(s.id for s in unchanged if s.id not in stands)
        lost = tuple(s.id for s in unchanged if s.id in stands and stands[s.id] != s.token)
        return Settled(len(settlements) - len(gone) - len(lost), lost, gone)

    def _claim(self, want: Want, floors: Floors) -> Claim:
        if want.limit <= 0:
            return Claim(want.token, floors=floors)
        candidates, fresh_left, due_left = self._candidates(want, floors)
        choice = choose(candidates, want)
        if choice.rows:
            self._take(want, choice)
        payloads = {
            key: self._db.query(self._sql["payload"], {"key": key})[0][0] for key in missing_payloads(choice.rows, want)
        }
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

    def _candidates(self, want: Want, floors: Floors) -> tuple[Sequence[Row], bool, bool]:
        """Due rows, at most half where there are fresh ones, then fresh rows; whether either class may have more."""
        # The odd row, and a limit of one, fall to either class by the chance in the token.
        due_asked = 0 if not want.due else (want.limit + want.token % 2) // 2 if want.fresh else want.limit
        due = self._due_rows(want, floors, due_asked)
        fresh_asked = want.limit - len(due) if want.fresh else 0
        fresh = self._look("claim_equal", want, fresh_asked, due=FRESH, after=floors.fresh_id) if fresh_asked else ()
        if want.due and len(fresh) < fresh_asked and len(due) == due_asked:
            due_asked = want.limit - len(fresh)
            due += self._due_rows(want, floors_after(floors, due), due_asked - len(due))
        return (
            [*due, *fresh],
            want.fresh and len(fresh) >= fresh_asked,
            want.due and len(due) >= due_asked,
        )

    def _due_rows(self, want: Want, floors: Floors, limit: int) -> list[Row]:
        """Equal due values may be many: those of the floor's own value are a range of ids, not read over again."""
        rows: list[Row] = []
        if limit > 0 and floors.due_id:
            rows += self._look("claim_equal", want, limit, due=floors.due_at_ms, after=floors.due_id)
        if len(rows) < limit:
            start = floors.due_at_ms + 1 if floors.due_id else floors.due_at_ms
            rows += self._look("claim_range", want, limit - len(rows), due=start, after=0)
        return rows

    def _look(self, name: str, want: Want, limit: int, due: int, after: int) -> Sequence[Row]:
        params = {"due": due, "after": after, "limit": limit, "inline": inline_bytes(want)}
        return self._db.query(self._sql[name], params)

    def _take(self, want: Want, choice: Choice) -> None:
        params = {"worker": want.worker_id, "token": want.token, "lease": want.lease_ms, "lost": int(choice.suspect)}
        self._db.execute(self._sql["take"], {**params, "ids": _json(row[0] for row in choice.rows)})

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


def _due_index(connection: Connection, lane: Lane) -> str:
    """The name of the lane's index on due_at_ms; a table of the user's own may have it under any."""
    found = connection.query(
        "SELECT list.name FROM pragma_index_list(:lane) AS list, pragma_index_info(list.name) AS info "
        "WHERE NOT list.partial GROUP BY list.name HAVING COUNT(*) = 1 AND LOWER(MAX(info.name)) = :due",
        {"lane": lane.name, "due": lane.columns.get("due_at_ms", "due_at_ms").lower()},
    )
    return str(found[0][0])
