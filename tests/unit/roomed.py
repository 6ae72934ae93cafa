"""Rooms of an ordered lane, and what happens to them, by the ids of their events."""

from collections.abc import Iterable

from outboxd.event import Event
from outboxd.publishers.route import Item
from outboxd.relay.room import Row
from outboxd.relay.rooms import Rooms
from outboxd.store.api import DELIVERED, FRESH, Settlement
from tests.services.publishing import make_event

NUMBERS = frozenset({1})
LEASE_MS = 15_000


def row(row_id: int, room: str = "a", status: str = "pending", **changed: int) -> Row:
    """As the store gives them. changed: due, number, leased_ms, wait_ms, next_retry, payload_bytes."""
    payload = b"x" * changed["payload_bytes"] if "payload_bytes" in changed else None
    due = changed.get("due", FRESH if status in ("pending", "delivering") else 1)
    times = (changed.get("leased_ms", -1), changed.get("wait_ms", -1), changed.get("next_retry", 0))
    size = changed.get("payload_bytes", 10)
    return (row_id, "", "", room, "app", payload, "", None, 0, 0, "", None, status, due, size,
            changed.get("number", 1), *times)  # fmt: skip


def event_of(row_id: int, room: str = "a") -> Event:
    """The event of such a row."""
    return make_event(id=row_id, room_id=room)


def rooms_of(*rows: Row, blocks: bool = False) -> Rooms:
    """With these rows read."""
    made = Rooms(blocks)
    made.owned = NUMBERS
    for one in rows:
        made.note([one], 0.0)
    return made


def picked(rooms: Rooms, limit: int = 100, budget_bytes: int = 1 << 20, is_idle: bool = True) -> list[int]:
    """Ids of what may be claimed."""
    return [one[0] for one in rooms.pick(limit, budget_bytes, limit, is_idle)]


def claim(rooms: Rooms, *ids: int, room: str = "a") -> None:
    """They are held."""
    rooms.admitted(event_of(row_id, room) for row_id in ids)


def end(rooms: Rooms, row_id: int, status: str = DELIVERED, delay_ms: int = 0, now_s: float = 0.0) -> None:
    """A publish ends, and is settled."""
    owe(rooms, row_id, status, delay_ms, now_s)
    settle(rooms, row_id)


def owe(rooms: Rooms, row_id: int, status: str = DELIVERED, delay_ms: int = 0, now_s: float = 0.0) -> None:
    """A publish ends."""
    rooms.owed([(Item(event_of(row_id), 1, 0.0), Settlement(row_id, 1, status, delay_ms=delay_ms))], now_s)


def settle(rooms: Rooms, *ids: int, lost: Iterable[int] = ()) -> None:
    """What became of them is written."""
    ended = [(Item(event_of(row_id), 1, 0.0), Settlement(row_id, 1, DELIVERED)) for row_id in ids]
    rooms.settled(ended, frozenset(lost))


def look(rooms: Rooms, ids: Iterable[int], *rows: Row) -> None:
    """At rows that keep others."""
    rooms.looked_at(ids, rows, 0.0)
