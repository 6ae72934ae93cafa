"""What puts things right where nobody comes to do it, and what checks that they are."""

import threading
from collections import Counter
from functools import reduce

import msgspec

from outboxd.envelope import Envelope
from room_service import store, wallet
from room_service.cell import Rooms
from room_service.database import Database
from room_service.domain import Room, fold
from room_service.lease import OwnedElsewhere
from room_service.timing import log

EVERY_S = 2.0


def keep_house(rooms: Rooms, ending: threading.Event) -> None:
    """Until the node ends: rooms with debits that stay held are loaded anew, by which they are settled."""
    node = rooms.settings.node
    while not ending.wait(EVERY_S):
        try:
            for room_id in wallet.rooms_with_held(rooms.database, rooms.settings.held_ms):
                try:
                    rooms.settle(room_id)
                except OwnedElsewhere:  # its owner keeps house, too
                    continue
                log("debits_settled", node, room_id=room_id)
        except Exception as error:  # noqa: BLE001  whatever is away: there is a next time
            log("housekeeping_failed", node, error=str(error))


def audit(database: Database) -> list[str]:
    """What does not fit together, one line each: of the rooms, their command logs, the outbox and the wallet."""
    with database.transaction() as cursor:
        cursor.execute("SELECT room_id, version FROM room ORDER BY room_id")
        rows = {row[0]: row[1] for row in cursor.fetchall()}
        cursor.execute("SELECT DISTINCT room_id FROM room_command")
        logged = {row[0] for row in cursor.fetchall()}
        cursor.execute("SELECT room_id, envelope FROM room_outbox ORDER BY id")
        outbox: dict[str, list[Envelope]] = {}
        for room_id, envelope in cursor.fetchall():
            outbox.setdefault(room_id, []).append(msgspec.json.decode(envelope, type=Envelope))
    roomless = (logged | outbox.keys()) - rows.keys()
    problems = [f"{room_id}: in the command log or the outbox only" for room_id in sorted(roomless)]
    for room_id, version in rows.items():
        problems += _audit_room(database, room_id, version, outbox.get(room_id, []))
    return problems + _audit_wallet(database)


def _audit_room(database: Database, room_id: str, version: int, outbox: list[Envelope]) -> list[str]:
    events = store.events_of(database, room_id)
    try:
        room = reduce(fold, events, Room(room_id))
    except ValueError as error:
        return [f"{room_id}: the command log is no history: {error}"]
    problems = []
    if room.version != version:
        problems.append(f"{room_id}: its row is at version {version}, the command log at {room.version}")
    if store.load(database, room_id) != room:
        problems.append(f"{room_id}: snapshot and command log make another room than the command log alone")
    if outbox != events:
        missing = {event.event_id for event in events} - {event.event_id for event in outbox}
        problems.append(f"{room_id}: outbox and command log have other events; {len(missing)} missing in the outbox")
    return problems


def _audit_wallet(database: Database) -> list[str]:
    """Each committed gift has a debit of its price, and there is no other debit that was not given back."""
    with database.transaction() as cursor:
        cursor.execute("SELECT command_id, events FROM room_command")
        gifts: Counter[str] = Counter()
        for command_id, events in cursor.fetchall():
            for event in msgspec.json.decode(events, type=list[Envelope]):
                if event.event_type == "RoomGiftSent":
                    gifts[command_id] += event.body["coins"] * event.body["count"]
        cursor.execute("SELECT command_id, coins FROM wallet_debit WHERE state <> 'refunded'")
        debits = Counter(dict(cursor.fetchall()))
    return [
        f"{command_id}: the gift costs {gifts[command_id]}, debited are {debits[command_id]}"
        for command_id in sorted(gifts.keys() | debits.keys())
        if gifts[command_id] != debits[command_id]
    ]
