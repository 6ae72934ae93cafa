"""What a transaction has recorded, seen through its own connection."""

import json
from dataclasses import dataclass, field
from typing import Any

from outboxd.producer.handle import Handle, handle_of, is_autocommit, is_inside, is_session
from outboxd.producer.recording import DEFAULT_LANE, check_lane
from outboxd.table import quoted

_COLUMNS = (
    "id, event_id, event_type, room_id, app_code, envelope, content_type, headers, next_retry_at_ms, status"  # in order
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A row of the lane. headers: as they were given, or None. next_retry_at_ms: 0 unless it is delayed or held."""

    id: int
    event_id: str
    event_type: str
    room_id: str
    app_code: str
    envelope: bytes = field(repr=False)
    content_type: str
    headers: dict[str, Any] | None = field(repr=False)
    next_retry_at_ms: int
    status: str

    @property
    def json(self) -> Any:
        """The envelope, where it is JSON."""
        return json.loads(self.envelope)


class OutboxRecorder:
    """The events that were recorded since it was made, as this connection sees them: those of its open transaction too,
    and no more those that were rolled back. Others that write the lane at the same time are seen once they commit.

    where: as for `record`. It looks when it is asked, and leaves no transaction open that was not.

    >>> import sqlite3
    >>> from outboxd.producer import Event, record
    >>> from outboxd.testing import OutboxRecorder, make_tables
    >>> make_tables("sqlite:///" + path)
    >>> connection = sqlite3.connect(path)
    >>> with OutboxRecorder(connection) as outbox:
    ...     _ = record(connection, Event(event_type="RoomCreated", room_id="room-42", envelope={"room": 42}))
    >>> outbox.types, outbox.only("RoomCreated").json
    (['RoomCreated'], {'room': 42})
    >>> connection.rollback()
    >>> outbox.events
    []
    >>> connection.close()
    """

    def __init__(self, where: Any, lane: str = DEFAULT_LANE) -> None:
        check_lane(lane)
        self._where = where
        self._lane = lane
        self._after = self._rows("SELECT COALESCE(MAX(id), 0) FROM {table}")[0][0]

    def __enter__(self) -> "OutboxRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        return

    @property
    def events(self) -> list[Recorded]:
        """All of them, in the order of their ids."""
        rows = self._rows(f"SELECT {_COLUMNS} FROM {{table}} WHERE id > {int(self._after):d} ORDER BY id")
        return [_recorded(row) for row in rows]

    @property
    def types(self) -> list[str]:
        """Their event types, in the same order."""
        return [event.event_type for event in self.events]

    def of_type(self, event_type: str) -> list[Recorded]:
        """Those of one type."""
        return [event for event in self.events if event.event_type == event_type]

    def only(self, event_type: str) -> Recorded:
        """The one event of that type. Raises AssertionError if there is none, or another one."""
        found = self.of_type(event_type)
        assert len(found) == 1, f"{len(found)} events of type {event_type} were recorded; all types: {self.types}"
        return found[0]

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        where = self._where.registry() if is_session(self._where) and hasattr(self._where, "registry") else self._where
        if hasattr(where, "in_transaction") and callable(where.in_transaction):  # SQLAlchemy's
            was_inside = where.in_transaction()
            rows = _query(handle_of(where), self._lane, sql)
            if not was_inside:
                where.rollback()
            return rows
        handle = handle_of(where)
        was_inside = is_inside(handle)
        rows = _query(handle, self._lane, sql)
        if not was_inside and not is_autocommit(handle):
            handle.raw.rollback()
        return rows


def _query(handle: Handle, lane: str, sql: str) -> list[tuple[Any, ...]]:
    return handle.query(sql.replace("{table}", quoted(lane, handle.dialect)))


def _recorded(row: tuple[Any, ...]) -> Recorded:
    row_id, *texts = row
    event_id, event_type, room_id, app_code, envelope, content_type, headers, due_ms, status = texts
    return Recorded(
        int(row_id), _str(event_id), _str(event_type), _str(room_id), _str(app_code),
        envelope.encode() if isinstance(envelope, str) else bytes(envelope), _str(content_type),
        None if headers is None else json.loads(headers), int(due_ms), _str(status),
    )  # fmt: skip


def _str(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
