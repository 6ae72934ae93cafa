"""The partitions of an ordered lane, on either database: who owns them, what stands in them, and the claim by ids.

The contract is Partitions in api.py; the statements are in statements/partitions*.sql.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from outboxd.config.schema import Lane
from outboxd.store import statements
from outboxd.store.api import FRESH, Claim, Floors, Ownership, Peek, Pick
from outboxd.store.choose import Row, events_of
from outboxd.store.connection import Connection
from outboxd.store.lists import chunks, listed


class PartitionTable:
    """Implements store.api.Partitions. payload: reads one envelope. index: the name of rooms, where it has another."""

    def __init__(
        self, connection: Connection, lane: Lane, payload: Callable[[int], bytes | str], index: str = ""
    ) -> None:
        self._db = connection
        self._lane = lane.name
        self._payload = payload
        self._sql = _statements(lane, connection.dialect, index)

    # what stands in them

    def peek(self, numbers: Sequence[int], floors: Floors) -> Peek:
        params = {"lane": self._lane, "fresh": FRESH, "after": floors.fresh_id, "due": floors.due_at_ms}
        params["due_after"] = floors.due_id
        row = self._db.query(self._sql["peek"].replace("{numbers}", listed(numbers)), params)[0]
        return Peek(now_ms=int(row[0]), paused=bool(row[1]), fresh=bool(row[2]), due=bool(row[3]))

    def scan(
        self, floors: Mapping[int, Floors], limit: int, inline_bytes: int, *, fresh: bool, due: bool
    ) -> Sequence[Row]:
        parts: list[str] = []
        params: dict[str, object] = {"inline": inline_bytes}
        kind = "" if inline_bytes else "_light"
        for number, floor in floors.items():
            # Floors are parameters, so that the text of a statement comes again and again.
            if fresh:
                parts.append(self._part(f"scan_equal{kind}", "f", number, limit))
                params |= {_name("f", number): FRESH, _name("fa", number): floor.fresh_id}
            if due and floor.due_id:
                parts.append(self._part(f"scan_equal{kind}", "d", number, limit))
                params |= {_name("d", number): floor.due_at_ms, _name("da", number): floor.due_id}
            if due:
                parts.append(self._part(f"scan_range{kind}", "r", number, limit))
                params[_name("r", number)] = max(1, floor.due_at_ms + bool(floor.due_id))
        return self._db.query(" UNION ALL ".join(parts), params) if parts else ()

    def window(self, numbers: Sequence[int], after: int, each: int) -> int:
        parts = [self._sql["window"].replace("{number}", str(int(number))) for number in numbers]
        params = {"fresh": FRESH, "after": after, "more": each - 1}
        rows = self._db.query(" UNION ALL ".join(parts), params)
        return min((int(row[0]) for row in rows), default=FRESH)

    def scan_new(
        self, numbers: Sequence[int], after: int, upto: int, limit: int, inline_bytes: int
    ) -> Sequence[Row]:
        sql = self._sql["scan_new" if inline_bytes else "scan_new_light"].replace("{numbers}", listed(numbers))
        params = {"fresh": FRESH, "after": after, "upto": upto, "limit": limit, "inline": inline_bytes}
        return self._db.query(sql, params)

    def _part(self, name: str, letter: str, number: int, limit: int) -> str:
        sql = self._sql[name].replace("{number}", str(int(number))).replace("{limit}", str(int(limit)))
        return sql.replace("{due}", f":{_name(letter, number)}").replace("{after}", f":{_name(f'{letter}a', number)}")

    def last_id(self) -> int:
        return int(self._db.query(self._sql["last_id"])[0][0])

    def open_ids(self, before: Mapping[int, int], after: int, limit: int) -> Sequence[int]:
        # Mostly all were read up to the same id.
        numbers: dict[int, list[int]] = {}
        for number, row_id in before.items():
            numbers.setdefault(row_id, []).append(number)
        parts: list[str] = []
        params: dict[str, object] = {"fresh": FRESH, "after": after, "limit": limit}
        for row_id, those in numbers.items():
            sql = self._sql["open_ids"].replace("{numbers}", listed(those))
            parts.append(sql.replace("{before}", f":{_name('b', those[0])}"))
            params[_name("b", those[0])] = row_id
        if not parts:
            return ()
        return [row[0] for row in self._db.query(f"{' UNION ALL '.join(parts)} LIMIT :limit", params)]

    def scan_room(self, number: int, room: tuple[str, str], start_id: int, limit: int) -> Sequence[Row]:
        params = {"number": number, "fresh": FRESH, "from": start_id, "app": room[0], "room": room[1], "limit": limit}
        return self._db.query(self._sql["scan_room"], params)

    def blockers(self, numbers: Sequence[int], *, dead: bool) -> Sequence[Row]:
        found: list[Row] = []
        for name in ("blockers", "dead_blockers") if dead else ("blockers",):
            found += self._db.query(self._sql[name].replace("{numbers}", listed(numbers)), {"fresh": FRESH})
        return found

    def rows(self, ids: Sequence[int]) -> Sequence[Row]:
        found: list[Row] = []
        for part in chunks(sorted(ids)):
            found += self._db.query(self._sql["rows"].replace("{ids}", listed(part)))
        return found

    # who owns them

    def owners(self) -> Sequence[Ownership]:
        rows = self._db.query(self._sql["owners"], {"lane": self._lane})
        return [Ownership(int(n), str(who), int(t), int(ms), str(by), int(by_ms)) for n, who, t, ms, by, by_ms in rows]

    def acquire(
        self, numbers: Sequence[int], worker_id: str, owner: int, lease_ms: int, former: str
    ) -> frozenset[int]:
        params = {"worker": worker_id, "owner": owner, "lease": lease_ms, "former": former}
        self._change("acquire", numbers, **params)
        return self._owned(owner)

    def ask(self, numbers: Sequence[int], worker_id: str, lease_ms: int) -> None:
        self._change("ask", numbers, worker=worker_id, lease=lease_ms)

    def keep(self, numbers: Sequence[int], owner: int, lease_ms: int) -> frozenset[int]:
        if self._change("keep", numbers, owner=owner, lease=lease_ms) == len(numbers):
            return frozenset(numbers)
        return self._owned(owner).intersection(numbers)

    def release(self, numbers: Sequence[int], owner: int) -> None:
        self._change("release", numbers, owner=owner)

    def withdraw(self, numbers: Sequence[int], worker_id: str) -> None:
        self._change("withdraw", numbers, worker=worker_id)

    def _change(self, name: str, numbers: Sequence[int], **params: object) -> int:
        if not numbers:
            return 0
        sql = self._sql[name].replace("{numbers}", listed(sorted(numbers)))
        return self._db.execute(sql, {"lane": self._lane, **params})

    def _owned(self, owner: int) -> frozenset[int]:
        rows = self._db.query(self._sql["owned"], {"lane": self._lane, "owner": owner})
        return frozenset(int(row[0]) for row in rows)

    # claim, inside a transaction

    def claim(self, pick: Pick) -> Claim:
        """Take the rows. Nothing is taken if a partition is no longer the claimer's, or a row stands otherwise than it
        thinks: it must first learn what is so."""
        held = self.keep(pick.numbers, pick.owner, pick.lease_ms)
        if len(held) < len(pick.numbers):
            return Claim(pick.token, disowned=tuple(number for number in pick.numbers if number not in held))
        ids = sorted([*pick.ids, *[row[0] for row in pick.rows]])
        if self._take(pick, ids) < len(ids):
            # What could not be taken may stand in front of others of its room: those must not be published.
            taken = self._taken(pick, ids)
            for part in chunks(sorted(taken)):
                self._db.execute(self._sql["give_back"].replace("{ids}", listed(part)), {"token": pick.token})
            return Claim(pick.token, missed=tuple(row_id for row_id in ids if row_id not in taken))
        rows: Sequence[Row] = pick.rows
        payloads: dict[int, bytes | str] = {}
        if pick.ids:
            read = self._read(pick.ids, pick)
            missing = [row[0] for row in read if row[5] is None and row[14] <= pick.max_event_bytes]
            payloads = {row_id: self._payload(row_id) for row_id in missing}
            rows = sorted([*rows, *read], key=itemgetter(0))
        events, oversize = events_of(rows, self._lane, payloads, pick.max_event_bytes, False)
        return Claim(pick.token, events, oversize, suspect=pick.suspects and bool(rows))

    def _take(self, pick: Pick, ids: Sequence[int]) -> int:
        sql = self._sql["take_suspect" if pick.suspects else "take"]
        params = {"worker": pick.worker_id, "token": pick.token, "lease": pick.lease_ms}
        return sum(self._db.execute(sql.replace("{ids}", listed(part)), params) for part in chunks(ids))

    def _taken(self, pick: Pick, ids: Sequence[int]) -> frozenset[int]:
        taken: list[int] = []
        for part in chunks(ids):
            rows = self._db.query(self._sql["taken"].replace("{ids}", listed(part)), {"token": pick.token})
            taken += [int(row[0]) for row in rows]
        return frozenset(taken)

    def _read(self, ids: Sequence[int], pick: Pick) -> list[Row]:
        """Rows that were not at hand: usual payloads with them, long ones one by one."""
        found: list[Row] = []
        for part in chunks(sorted(ids)):
            sql = self._sql["rows_full"].replace("{ids}", listed(part))
            found += self._db.query(sql, {"inline": min(INLINE_BYTES, pick.max_event_bytes)})
        return found


INLINE_BYTES = 16 * 1024
"""Payloads up to this length come with their rows."""


def _statements(lane: Lane, dialect: str, index: str) -> dict[str, str]:
    own = statements.load("partitions")  # of outboxd_partition: a lane's own names for columns do not concern them
    texts = {**statements.load(f"partitions_{dialect}"), **own}
    columns = {"{row}": texts["light"], "{rooms}": statements.quoted(index, dialect) if index else ""}
    full = {**columns, "{row}": texts["full"]}
    named = {name: (sql, columns) for name, sql in texts.items()}
    for name in ("scan_equal", "scan_range", "scan_new"):
        named |= {name: (texts[name], full), f"{name}_light": (texts[name], columns)}
    named["rows_full"] = (texts["rows"], full)
    size = texts.get("size", "")
    result: dict[str, str] = {}
    for name, (sql, places) in named.items():
        for place, text in places.items():
            sql = sql.replace(place, text)
        renames = None if name in own else lane.columns
        result[name] = statements.render(sql.replace("{size}", size), dialect, lane.name, renames)
    return result


def _name(letters: str, number: int) -> str:
    """Of a parameter: letters alone."""
    return f"{letters}_{chr(97 + number // 26)}{chr(97 + number % 26)}"
