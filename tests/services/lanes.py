"""A lane's table as producers and onlookers use it: filled fast, read past the store."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from outboxd.config.schema import COLUMNS, Config
from outboxd.store import connect
from outboxd.store.connection import Connection
from outboxd.store.migrate import init_db
from outboxd.store.statements import NOW
from tests.services.daemon import LANE

Row = Mapping[str, object]
AT_ONCE = 200
"""Rows of one INSERT."""

_numbers = itertools.count(1)


def event(**columns: object) -> dict[str, object]:
    """A producer's row; what the test does not say is usual, and each has an id of its own."""
    usual: dict[str, object] = {"event_id": f"event-{next(_numbers)}", "event_type": "RoomCreated", "room_id": "room-1"}
    return {**usual, "app_code": "app", "envelope": b'{"a": 1}', **columns}


class Table:
    """One lane's rows; each statement is committed at once."""

    def __init__(self, connection: Connection, name: str = LANE) -> None:
        self.connection = connection
        self.name = name

    def insert(self, rows: Iterable[Row]) -> None:
        """Write producers' rows with the same columns, many in a statement."""
        remaining = iter(rows)
        while part := list(itertools.islice(remaining, AT_ONCE)):
            names = list(part[0])
            params = {f"{name}_{_letters(i)}": row[name] for i, row in enumerate(part) for name in names}
            places = ", ".join(
                "(" + ", ".join(f":{name}_{_letters(i)}" for name in names) + ")" for i in range(len(part))
            )
            self.connection.execute(f"INSERT INTO {self.name} ({', '.join(names)}) VALUES {places}", params)

    def fill(self, count: int, **columns: object) -> list[str]:
        """Write so many alike; their event ids."""
        rows = [event(**columns) for _ in range(count)]
        self.insert(rows)
        return [str(row["event_id"]) for row in rows]

    def rows(self, where: str = "1 = 1") -> list[dict[str, object]]:
        """All columns of the rows that match, in the order of their ids."""
        sql = f"SELECT {', '.join(COLUMNS)} FROM {self.name} WHERE {where} ORDER BY id"
        return [dict(zip(COLUMNS, row, strict=True)) for row in self.connection.query(sql)]

    def row(self, event_id: str) -> dict[str, object]:
        """The one row of that event."""
        (found,) = self.rows(f"event_id = '{event_id}'")
        return found

    def by_status(self) -> dict[str, int]:
        """How many rows are in each status."""
        found = self.connection.query(f"SELECT status, COUNT(*) FROM {self.name} GROUP BY status")
        return {str(status): int(count) for status, count in found}

    def unfinished(self) -> int:
        """How many rows are neither delivered nor failed."""
        counts = self.by_status()
        return sum(counts.values()) - counts.get("delivered", 0) - counts.get("failed", 0)

    def is_done(self) -> bool:
        """Is every row delivered or failed?"""
        return self.unfinished() == 0

    def now_ms(self) -> int:
        """The database's clock."""
        return int(self.connection.query(f"SELECT {NOW[self.connection.dialect]}")[0][0])


def _letters(number: int) -> str:
    """A number as the names of parameters may hold it: letters only."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


@contextmanager
def lanes_of(config: Config) -> Iterator[dict[str, Table]]:
    """Every lane of a configuration, its table created."""
    connection = connect(config.database)
    try:
        init_db(connection, list(config.lanes.values()))
        if connection.dialect == "mysql":  # a test may look at its table less often than a worker does
            connection.execute("SET SESSION wait_timeout = 600")
        yield {name: Table(connection, name) for name in config.lanes}
    finally:
        connection.close()


@contextmanager
def table_of(config: Config, name: str = LANE) -> Iterator[Table]:
    """One lane's table, created."""
    with lanes_of(config) as tables:
        yield tables[name]


def published_more_than_once(event_ids: Sequence[str]) -> dict[str, int]:
    """Event id -> how often it arrived, of those that arrived more than once."""
    return {event_id: count for event_id, count in Counter(event_ids).items() if count > 1}
