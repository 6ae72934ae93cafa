"""One lane's statements for operators, for either dialect, and how an event is found by its id."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from outboxd.config.schema import Lane
from outboxd.errors import StoreConflict, StoreRefused
from outboxd.store import statements
from outboxd.store.api import FAILED
from outboxd.store.connection import NO_PARAMS, Connection, Params, Row
from outboxd.store.migrate_sqlite import index_of, partition_index
from outboxd.store.migrations import theirs
from outboxd.store.spread import along_due, along_rooms, is_parted, lacks_index

Answer = TypeVar("Answer")

REPEATS = 4

MOST_APPS = 1000
"""App codes that a search without one looks through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A row, all of it but the envelope, and the database's time when it was read."""

    id: int
    app_code: str
    event_id: str
    event_type: str
    room_id: str
    content_type: str
    headers: str | None
    status: str
    worker_id: str
    claim_token: int
    lock_until_ms: int
    retry_count: int
    next_retry_at_ms: int
    published_to: str
    last_error: str | None
    created_at_ms: int
    updated_at_ms: int
    delivered_at_ms: int
    due_at_ms: int
    envelope_bytes: int
    now_ms: int

    @property
    def is_skipped(self) -> bool:
        """Is it a dead letter that holds its room up no longer?"""
        return self.status == FAILED and self.next_retry_at_ms < 0


class Desk:
    """The statements for one lane on one connection."""

    def __init__(self, connection: Connection, lane: Lane) -> None:
        self.connection = connection
        self.lane = lane
        self._is_as_found = connection.dialect != "mysql"
        self.is_parted = is_parted(connection, lane)
        """Does the index that all is read along begin with the partition (spread.py)?"""
        self._parts = _parts(connection, lane)

    def sql(self, name: str, ids: Sequence[int] = ()) -> str:
        """One statement, ready to run."""
        texts = statements.load("desk")
        sql = texts[name].replace("{wanted}", texts["wanted"]).replace("{ids}", ",".join(str(int(i)) for i in ids))
        sql = along_rooms(sql) if self.is_parted else along_due(sql, self._parts["{due_index}"])
        for part, text in self._parts.items():
            sql = sql.replace(part, text)
        return statements.render(sql, self.connection.dialect, self.lane.name, self.lane.columns)

    def query(self, name: str, params: Params = NO_PARAMS, ids: Sequence[int] = ()) -> Sequence[Row]:
        try:
            return self.connection.query(self.sql(name, ids), params)
        except StoreRefused as error:
            if not lacks_index(error) or self._is_as_found:
                raise
        # The table is that of a lane with another `ordering`, until init-db is run: people are told of it all the same.
        self._is_as_found, self.is_parted = True, not self.is_parted
        return self.connection.query(self.sql(name, ids), params)

    def execute(self, name: str, params: Params = NO_PARAMS, ids: Sequence[int] = ()) -> int:
        sql = self.sql(name, ids)
        return repeated(lambda: self.connection.execute(sql, params))


def _parts(connection: Connection, lane: Lane) -> Mapping[str, str]:
    """What the two dialects write differently."""
    if connection.dialect == "mysql":
        return {
            "{due_index}": "FORCE INDEX (due)",
            "{rooms_index}": "FORCE INDEX (rooms)",
            "{by_key}": "FORCE INDEX (PRIMARY)",
            "{envelope_bytes}": "LENGTH(envelope)",
            "{type_matches}": "event_type LIKE :type ESCAPE '!'",
        }
    index = index_of(connection, lane.name, [theirs(lane, "due_at_ms")], unique=False)
    return {
        "{due_index}": f"INDEXED BY {statements.quoted(index, 'sqlite')}" if index else "",
        # Named also where it is missing: an unknown column in quotes would be taken for a text, and nothing be found.
        "{rooms_index}": f"INDEXED BY {statements.quoted(_rooms_index(connection, lane), 'sqlite')}",
        "{by_key}": "",
        "{envelope_bytes}": "LENGTH(CAST(envelope AS BLOB))",
        "{type_matches}": "event_type GLOB :type",
    }


def _rooms_index(connection: Connection, lane: Lane) -> str:
    found = index_of(connection, lane.name, partition_index(lane), unique=False) if lane.is_ordered else None
    return found or f"{lane.name}_rooms"


def repeated(act: Callable[[], Answer]) -> Answer:
    """Act; once more when a deadlock or lock wait undid it. One statement is one transaction here."""
    for _ in range(REPEATS - 1):
        try:
            return act()
        except StoreConflict:
            continue
    return act()


def now_ms(desk: Desk) -> int:
    """The database's time."""
    return int(desk.query("now")[0][0])


def find(connection: Connection, lane: Lane, event_id: str, app_code: str | None = None) -> list[Found]:
    """The event's rows: one at the most if the app code is given, else one per app code that has it.

    There is no index of event_id alone: without an app code every one in the table is tried, by the unique index, in
    two look-ups each. Raises StoreRefused beyond MOST_APPS of them.
    """
    desk = Desk(connection, lane)
    found: list[Found] = []
    for app in [app_code] if app_code is not None else _app_codes(desk):
        found += [found_of(row) for row in desk.query("find", {"app": app, "event": event_id})]
    return found


def _app_codes(desk: Desk) -> list[str]:
    """From one value in the index to the next: no scan, however many rows each has."""
    apps: list[str] = []
    rows = desk.query("first_app")
    while rows[0][0] is not None:
        if len(apps) == MOST_APPS:
            raise StoreRefused(f"{desk.lane.name} holds more than {MOST_APPS} app codes: say which one, with --app")
        apps.append(rows[0][0])
        rows = desk.query("next_app", {"after": apps[-1]})
    return apps


def found_of(row: Row) -> Found:
    """A row of the statements `find` and `dead_rows`."""
    names = Found.__dataclass_fields__
    values = dict(zip(names, row, strict=True))
    optional = {name: None if values[name] is None else text(values[name]) for name in ("headers", "last_error")}
    texts = {name: text(values[name] or "") for name, field in names.items() if field.type is str}
    numbers = {name: int(values[name]) for name, field in names.items() if field.type is int}
    return Found(**optional, **texts, **numbers)  # type: ignore[arg-type]


def text(value: object) -> str:
    """A producer may have written text as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
