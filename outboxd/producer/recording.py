"""Writing events into the outbox, in the caller's own transaction."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, overload

from outboxd.errors import EventRefused
from outboxd.producer import after_commit
from outboxd.producer.event import MAX_EVENT_BYTES, Event, Row, rows_of
from outboxd.producer.handle import Handle, handle_of, require_transaction
from outboxd.table import NOW, is_name, quoted

DEFAULT_LANE = "room_outbox"
ROWS_AT_ONCE = 500
"""Of one INSERT: 4,000 parameters, of which SQLite takes 32,766."""
BYTES_AT_ONCE = 1024 * 1024
"""Of the payloads of one INSERT, unless one alone has more: a server's max_allowed_packet is 16 MiB or more by default,
and escaped, bytes may be twice as long."""


@overload
def record(where: Any, event: Event, /, *, lane: str = ..., max_event_bytes: int = ...) -> str: ...
@overload
def record(where: Any, event: Iterable[Event], /, *, lane: str = ..., max_event_bytes: int = ...) -> list[str]: ...
def record(
    where: Any,
    event: Event | Iterable[Event],
    /,
    *,
    lane: str = DEFAULT_LANE,
    max_event_bytes: int = MAX_EVENT_BYTES,
) -> str | list[str]:
    """Write events in the caller's transaction: they are relayed if it commits, and never were if it does not. The id
    of the event, or the ids of many in their order. Nothing is committed here.

    where: a connection or cursor of mysqlclient, PyMySQL, sqlite3 or Django, or SQLAlchemy's Session, scoped_session or
    Connection; with an AsyncSession, `await session.run_sync(record, event)`. Many events go in one INSERT, or in as
    many as their sizes ask for.

    Raises EventRefused for an event that does not fit, ProducerMisused outside a transaction, TypeError for what is no
    connection; then nothing was written, and the transaction goes on. What the driver raises is passed on.

    >>> import sqlite3
    >>> from outboxd.producer import Event, record
    >>> connection = sqlite3.connect(":memory:")
    >>> _ = connection.execute(
    ...     "CREATE TABLE room_outbox (id INTEGER PRIMARY KEY, app_code, event_id, event_type, room_id, envelope, "
    ...     "content_type, headers, next_retry_at_ms)"
    ... )
    >>> event_id = record(connection, Event(event_type="RoomCreated", room_id="room-42", envelope={"room": 42}))
    >>> connection.commit()
    >>> connection.execute("SELECT event_type, envelope FROM room_outbox").fetchall()
    [('RoomCreated', b'{"room":42}')]
    """
    is_one = isinstance(event, Event)
    rows = rows_of((event,) if isinstance(event, Event) else tuple(event), max_event_bytes)
    check_lane(lane)
    handle = handle_of(where)
    require_transaction(handle)
    for part in _parts(rows) if len(rows) > 1 else (rows,) if rows else ():
        handle.run(*_statement(handle, lane, part), "")
    if handle.session is not None and any(row.due_ms == 0 for row in rows):
        after_commit.note(handle.session, lane)
    ids = [row.event_id for row in rows]
    return ids[0] if is_one else ids


@lru_cache(maxsize=32)
def check_lane(lane: str) -> None:
    """Raises EventRefused for what is no name of a table: it stands in statements as it is."""
    if not isinstance(lane, str) or not is_name(lane):
        raise EventRefused(f"{lane!r} is no lane: give its table's name, letters, digits and _ only")


def insert(handle: Handle, lane: str, row: Row) -> int:
    """One row; its id."""
    return handle.insert(*_statement(handle, lane, (row,)))


def _statement(handle: Handle, lane: str, rows: Sequence[Row]) -> tuple[str, tuple[object, ...]]:
    sql = _insert(lane, handle.dialect, handle.mark, tuple([row.is_delay for row in rows]))
    return sql, rows[0][:8] if len(rows) == 1 else tuple(value for row in rows for value in row[:8])


@lru_cache(maxsize=32)
def _insert(lane: str, dialect: str, mark: str, delays: tuple[bool, ...]) -> str:
    values = ", ".join([mark] * 7)
    places = {False: f"({values}, {mark})", True: f"({values}, {NOW[dialect]} + {mark})"}
    return (
        f"INSERT INTO {quoted(lane, dialect)} (app_code, event_id, event_type, room_id, envelope, content_type, "
        f"headers, next_retry_at_ms) VALUES {', '.join(places[is_delay] for is_delay in delays)}"
    )


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """As many rows as one statement takes."""
    start = size = 0
    for end, row in enumerate(rows):
        size += len(row.envelope)
        if end > start and (size > BYTES_AT_ONCE or end - start == ROWS_AT_ONCE):
            yield rows[start:end]
            start, size = end, len(row.envelope)
    yield rows[start:]
