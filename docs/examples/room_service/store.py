"""What the database knows of rooms: the row with its fence, the command log, the snapshot. A command is saved in one
transaction with its events in the outbox: all of it is there, or nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import reduce

import msgspec
import MySQLdb
from MySQLdb.cursors import Cursor

from outboxd.envelope import Envelope
from outboxd.producer import Event, Held, record, record_held
from room_service.database import Database, is_duplicate
from room_service.domain import Room, fold
from room_service.settings import failpoint

_events = msgspec.json.Decoder(list[Envelope])
_room = msgspec.json.Decoder(Room)


class Fenced(Exception):
    """Another owner has taken the room meanwhile: what was to be saved was not."""


class AlreadyDone(Exception):
    """A command with this id is in the log."""


class Stored(msgspec.Struct, frozen=True):
    """A command in the log."""

    room_id: str
    command: bytes
    answer: bytes


class Logged(msgspec.Struct, frozen=True):
    """A command to be saved: what was asked, what came of it, and what the caller is told."""

    command_id: str
    kind: str
    command: bytes
    events: Sequence[Envelope]
    answer: bytes
    created_at_ms: int


def find_command(database: Database, command_id: str) -> Stored | None:
    """A command that was done, over all rooms."""
    with database.transaction() as cursor:
        cursor.execute("SELECT room_id, command, answer FROM room_command WHERE command_id = %s", (command_id,))
        row = cursor.fetchone()
    return None if row is None else Stored(*row)


def committed(database: Database, room_id: str, command_ids: Collection[str]) -> set[str]:
    """Those of the commands that were done in the room."""
    if not command_ids:
        return set()
    marks = ", ".join(["%s"] * len(command_ids))
    with database.transaction() as cursor:
        cursor.execute(
            f"SELECT command_id FROM room_command WHERE room_id = %s AND command_id IN ({marks})",
            (room_id, *command_ids),
        )
        return {row[0] for row in cursor.fetchall()}


def take_over(database: Database, room_id: str, node: str) -> int:
    """A new epoch for the room, by which its earlier owners are fenced off: from the commit on none of them saves
    anything. 0: there is no such room yet.
    """

    def work(cursor: Cursor) -> int:
        cursor.execute(
            "UPDATE room SET owner_epoch = owner_epoch + 1, owner_node = %s WHERE room_id = %s", (node[:64], room_id)
        )
        cursor.execute("SELECT owner_epoch FROM room WHERE room_id = %s", (room_id,))
        row = cursor.fetchone()
        return int(row[0]) if row else 0

    return database.run(work)


def load(database: Database, room_id: str) -> Room:
    """The room as it was saved last: its snapshot, and what the command log has since."""
    with database.transaction() as cursor:
        cursor.execute("SELECT state FROM room_snapshot WHERE room_id = %s", (room_id,))
        row = cursor.fetchone()
        room = _room.decode(row[0]) if row else Room(room_id)
        return reduce(fold, _events_after(cursor, room_id, room.version), room)


def events_of(database: Database, room_id: str) -> list[Envelope]:
    """Every event of a room by its command log."""
    with database.transaction() as cursor:
        return list(_events_after(cursor, room_id, 0))


def _events_after(cursor: Cursor, room_id: str, version: int) -> Iterable[Envelope]:
    cursor.execute(
        "SELECT events FROM room_command WHERE room_id = %s AND version > %s ORDER BY version", (room_id, version)
    )
    return [event for row in cursor.fetchall() for event in _events.decode(row[0])]


def save(database: Database, before: Room, after: Room, epoch: int, logged: Logged, hold_s: float) -> list[Held]:
    """The command, the room and the events, together or not at all. hold_s: the relay leaves the events alone for so
    long, and the caller publishes them; 0: it does not.

    Raises Fenced, AlreadyDone; Unavailable, where nobody knows whether it was saved.
    """

    def work(cursor: Cursor) -> list[Held]:
        _save_room(cursor, before, after, epoch)
        failpoint("after_room_row", logged.kind)
        _save_command(cursor, after, logged)
        failpoint("after_command_log", logged.kind)
        held = _save_events(cursor, logged.events, hold_s)
        failpoint("before_commit", logged.kind)
        return held

    return database.run(work)


def _save_room(cursor: Cursor, before: Room, after: Room, epoch: int) -> None:
    """The compare-and-set that keeps former owners out."""
    meta = (after.version, after.title, len(after.members), after.heat)
    now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000"
    if before.version == 0:
        try:
            cursor.execute(
                "INSERT INTO room (owner_epoch, owner_node, version, title, member_count, heat, room_id, "
                f"updated_at_ms) VALUES (0, '', %s, %s, %s, %s, %s, {now})",
                (*meta, after.room_id),
            )
        except MySQLdb.IntegrityError as error:
            if is_duplicate(error):
                raise Fenced(f"{after.room_id} was created by another node") from error
            raise
        return
    cursor.execute(
        f"UPDATE room SET version = %s, title = %s, member_count = %s, heat = %s, updated_at_ms = {now} "
        "WHERE room_id = %s AND owner_epoch = %s AND version = %s",
        (*meta, after.room_id, epoch, before.version),
    )
    if cursor.rowcount != 1:
        raise Fenced(f"{after.room_id} has another owner than that of epoch {epoch}")


def _save_command(cursor: Cursor, after: Room, logged: Logged) -> None:
    try:
        cursor.execute(
            "INSERT INTO room_command (command_id, room_id, version, command, events, answer, created_at_ms) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s)",
            (
                logged.command_id, after.room_id, after.version, logged.command, msgspec.json.encode(logged.events),
                logged.answer, logged.created_at_ms,
            ),
        )  # fmt: skip
    except MySQLdb.IntegrityError as error:
        if is_duplicate(error):
            raise AlreadyDone(logged.command_id) from error
        raise


def _save_events(cursor: Cursor, events: Sequence[Envelope], hold_s: float) -> list[Held]:
    rows = [
        Event(
            event_type=event.event_type,
            room_id=event.room_id,
            app_code=event.app_code,
            event_id=event.event_id,
            envelope=msgspec.json.encode(event),
        )
        for event in events
    ]
    if not hold_s:
        record(cursor, rows)
        return []
    return [record_held(cursor, row, publish_timeout_s=hold_s) for row in rows]


def snapshot(database: Database, room: Room) -> None:
    """Recovery begins here from now on. An older one never takes the place of a newer one."""
    state = msgspec.json.encode(room)
    with database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO room_snapshot (room_id, version, state) VALUES (%s, %s, %s) ON DUPLICATE KEY UPDATE "
            "state = IF(VALUES(version) > version, VALUES(state), state), version = GREATEST(VALUES(version), version)",
            (room.room_id, room.version, state),
        )
