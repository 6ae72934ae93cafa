"""Publishing at once, for services that did so before they had an outbox, with the outbox beneath it.

    held = record_held(connection, event)                # in the transaction: the relay leaves it alone for a while
    connection.commit()
    publish_now(connect, held, publisher)                # after it; whatever happens, the command has succeeded

What keeps the relay away is the row's time: until then nobody claims it, and whoever has claimed it is not overruled,
for the row is changed only while it is `pending` and was never claimed. If the process dies in between, the hold runs
out.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from outboxd.errors import EventRefused, ProducerMisused
from outboxd.producer import bounded
from outboxd.producer.event import MAX_EVENT_BYTES, Event, rows_of
from outboxd.producer.handle import Handle, handle_of, require_transaction
from outboxd.producer.opening import opened
from outboxd.producer.recording import DEFAULT_LANE, check_lane, insert
from outboxd.redact import clip, redact
from outboxd.table import NOW, quoted

PUBLISH_TIMEOUT_S = 3.0
LONGEST_TIMEOUT_S = 300.0
HOLD_BEYOND_S = 1.0
"""The hold outlasts a publish by this: for the commit before it, and the mark behind it."""
MARK_S = 0.25
"""So much of the hold is left for the mark: a publish that begins late is given up sooner."""
TIMES = 2
"""A mark is tried: a pooled connection may have gone away meanwhile."""

_LOOK = "SELECT event_id, status, claim_token, next_retry_at_ms - {now} FROM {table} WHERE id = {mark}"
_FENCE = "WHERE id = {mark} AND status = 'pending' AND claim_token = 0"
_DELIVERED = "UPDATE {table} SET status = 'delivered', updated_at_ms = {now}, delivered_at_ms = {now} " + _FENCE
_RELEASED = "UPDATE {table} SET next_retry_at_ms = {now} " + _FENCE

_log = logging.getLogger("outboxd.producer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An event whose row is held, as `record_held` gives it and a publisher gets it. It has the names and forms of what
    the relay hands to a `python` publisher, so that one function serves both. headers: the text of a JSON object, or
    None.
    """

    id: int
    lane: str
    event_id: str
    event_type: str
    room_id: str
    app_code: str
    envelope: bytes = field(repr=False)
    content_type: str
    headers: str | None = field(repr=False)
    publish_timeout_s: float
    retry_count: int = 0


@dataclass(frozen=True, slots=True)
class Tried:
    """What publish_now has done. published: the publisher returned in time. marked: the row says so (`delivered`); if
    it does not, the relay publishes the event a second time, with the same event_id. error: why not, one line.
    """

    published: bool
    marked: bool
    error: str = ""


def record_held(
    where: Any,
    event: Event,
    /,
    *,
    publish_timeout_s: float = PUBLISH_TIMEOUT_S,
    lane: str = DEFAULT_LANE,
    max_event_bytes: int = MAX_EVENT_BYTES,
) -> Held:
    """As `record`, for one event, which the relay leaves alone for publish_timeout_s and a second, by the database's
    clock. Commit, then hand it to `publish_now`. An event with a time of its own cannot be held.

    In a lane with `ordering: room` a held event lets later ones of its room pass. Raises as `record`.
    """
    if not 0 < publish_timeout_s <= LONGEST_TIMEOUT_S:
        raise EventRefused(f"publish_timeout_s is {publish_timeout_s}: more than 0, at most {LONGEST_TIMEOUT_S:g}")
    (row,) = rows_of((event,), max_event_bytes)
    if event.is_delayed:
        raise EventRefused("an event with deliver_at or delay is not published now: record it with `record`")
    check_lane(lane)
    handle = handle_of(where)
    require_transaction(handle)
    hold = timedelta(seconds=publish_timeout_s + HOLD_BEYOND_S)
    row_id = insert(handle, lane, row._replace(due_ms=hold // timedelta(milliseconds=1), is_delay=True))
    return Held(
        id=row_id, lane=lane, event_id=row.event_id, event_type=row.event_type, room_id=row.room_id,
        app_code=row.app_code, envelope=row.envelope, content_type=row.content_type, headers=row.headers,
        publish_timeout_s=publish_timeout_s,
    )  # fmt: skip


def publish_now(where: Any, held: Held, publisher: Callable[[Held], object]) -> Tried:
    """Publish a held event after its commit, within its publish_timeout_s and as long as its hold lasts. It never
    raises for what a publisher or a database does: the command has succeeded, and the relay publishes what is not
    marked.

    where: SQLAlchemy's Engine, sessionmaker or Session (a connection of its engine is used), Django's connection, a
    function that opens a DB-API connection (it is closed), or such a connection with no transaction open. The row is
    read first, so that nothing is published that was not committed.

    publisher: called with the event, in a thread; it has published it if it returns in time. If it raises, the hold
    ends, and the relay takes the event, its retry_count 0, as if nothing had been tried. If it does not return in time,
    the same; what it still does changes nothing in the table, and its receiver may see the event twice.

    Raises ProducerMisused if the row was not committed, or a transaction is open in the connection; nothing is
    published.

    >>> import sqlite3
    >>> from outboxd.producer import Event, publish_now, record_held
    >>> connection = sqlite3.connect(path)
    >>> _ = connection.execute(
    ...     "CREATE TABLE room_outbox (id INTEGER PRIMARY KEY, app_code, event_id, event_type, room_id, envelope, "
    ...     "content_type, headers, next_retry_at_ms, status DEFAULT 'pending', claim_token DEFAULT 0, updated_at_ms, "
    ...     "delivered_at_ms)"
    ... )
    >>> held = record_held(connection, Event(event_type="RoomCreated", room_id="room-42", envelope={"room": 42}))
    >>> connection.commit()
    >>> publish_now(lambda: sqlite3.connect(path), held, lambda event: print("published", event.envelope))
    published b'{"room":42}'
    Tried(published=True, marked=True, error='')
    >>> connection.close()
    """
    if not isinstance(held, Held):
        raise TypeError(f"{type(held).__name__} is not held: write publish_now(connect, record_held(…), publisher)")
    try:
        limit_s = _left_s(where, held)
    except (ProducerMisused, TypeError):
        raise
    except Exception as error:  # noqa: BLE001  of any driver: the command has succeeded
        return _told(held, Tried(False, False, f"the row could not be read: {_text(error)}"))
    if limit_s <= 0:
        return _told(held, Tried(False, False, "the hold is over, or the relay has the event: it is left to the relay"))
    failure = bounded.call(publisher, held, limit_s)
    problem = _change(where, held, _RELEASED if failure else _DELIVERED)
    if failure is None:
        return _told(held, Tried(True, not problem, problem and f"it is published again: {problem}"))
    held_on = f"; it waits for the end of its hold: {problem}" if problem else ""
    return _told(held, Tried(False, False, _text(failure) + held_on))


def _told(held: Held, tried: Tried) -> Tried:
    if tried.error:
        how = "published but not marked" if tried.published else "not published now, which the relay will do"
        _log.info("event %s of %s was %s: %s", held.event_id, held.lane, how, tried.error)
    return tried


def _sql(text: str, handle: Handle, held: Held) -> str:
    return text.format(now=NOW[handle.dialect], table=quoted(held.lane, handle.dialect), mark=handle.mark)


def _left_s(where: Any, held: Held) -> float:
    """How long a publish may take, by the hold that is left; nothing if somebody else has the row."""
    with opened(where) as handle:
        rows = handle.query(_sql(_LOOK, handle, held), (held.id,))
    if not rows or _str(rows[0][0]) != held.event_id:
        raise ProducerMisused(f"event {held.event_id} is not in {held.lane}: commit before publish_now")
    _, status, token, left_ms = rows[0]
    if _str(status) != "pending" or token != 0:
        return 0.0
    return min(held.publish_timeout_s, int(left_ms) / 1000 - MARK_S)


def _change(where: Any, held: Held, text: str) -> str:
    """Change the row unless the relay has it; why that was not done, "" if it was."""
    for attempt in range(1, TIMES + 1):
        try:
            with opened(where) as handle:
                found = handle.execute(_sql(text, handle, held), (held.id,))
        except Exception as error:  # noqa: BLE001  of any driver: the command has succeeded
            if attempt == TIMES:
                return f"the row could not be changed: {_text(error)}"
        else:
            return "" if found == 1 else "the relay has taken it meanwhile"
    raise AssertionError("unreachable: the last attempt returns")


def _str(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # its own __str__ is broken
        text = ""
    name = type(error).__name__
    return clip(redact(f"{name}: {text}" if text and not isinstance(error, bounded.Unpublished) else text or name), 300)
