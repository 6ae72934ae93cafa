"""What an ordered lane's tables tell of the room of one event: who comes before it, and who works on it."""

from dataclasses import dataclass

from outboxd.config.schema import Lane
from outboxd.errors import StoreRefused
from outboxd.store.api import FRESH
from outboxd.store.connection import Connection
from outboxd.store.desk_find import Desk, Found, found_of, text

ROOM_CAP = 10_000
"""Entries of the partition that one look reads at the most, of each range. The rows lie far apart: on a cold disk each
is a page, and all of them must come within statement_timeout.
"""
_DEAD = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """An event's room as it stands. partition: of the lane. owner: the worker that has it, "" for nobody.

    front: the first of the events that the event waits for, None if there is none. ahead: how many those are.
    is_more: the partition holds more entries than were looked at, so there may be more, and an earlier one.
    """

    partition: int
    owner: str = ""
    front: Found | None = None
    ahead: int = 0
    is_more: bool = False


def room_of(connection: Connection, lane: Lane, event: Found) -> Room | str:
    """Look at an event's room; why that cannot be done, if it cannot. Reads at most ROOM_CAP entries of each range."""
    desk = Desk(connection, lane)
    try:
        return _look(desk, event)
    except StoreRefused as error:  # no column or index yet, or no right to read outboxd_partition
        return str(error)


def _look(desk: Desk, event: Found) -> Room:
    found = desk.query("partition_of", {"id": event.id})
    # SQLite takes an unknown column in quotes for a text: the next statement finds out.
    part = found[0][0] if found and isinstance(found[0][0], int) else 0
    params = {"id": event.id, "app": event.app_code, "room": event.room_id, "part": part, "most": ROOM_CAP + 1}
    seen = [
        desk.query("room_equal", {**params, "due": FRESH}),
        desk.query("room_range", {**params, "high": FRESH - 1}),
    ]
    if desk.lane.blocks_on_dead:
        seen.append(desk.query("room_equal", {**params, "due": _DEAD}))
    owner = desk.query("partition_owner", {"lane": desk.lane.name, "number": part})
    first = min((int(row[0][2]) for row in seen if row[0][2] is not None), default=None)
    rows = [] if first is None else desk.query("by_id", {"id": first})
    return Room(
        partition=part,
        owner=text(owner[0][0]).strip() if owner else "",
        front=found_of(rows[0]) if rows else None,
        ahead=sum(int(row[0][1] or 0) for row in seen),
        is_more=any(int(row[0][0]) > ROOM_CAP for row in seen),
    )
