"""Do rooms, command log, outbox, wallet, and what was delivered, fit together? To be asked while nobody writes."""

from collections import Counter
from collections.abc import Iterable
from functools import reduce

import msgspec

from outboxd.envelope import Envelope
from room_service import store
from room_service.database import Database
from room_service.domain import Room, fold


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


def delivered_room(events: Iterable[Envelope], room_id: str) -> Room:
    """What the events of a room make of it, in the order in which they arrived; those that came before are passed over.

    Raises ValueError where one is missing or out of its turn.
    """
    room, seen = Room(room_id), set()
    for event in events:
        if event.room_id == room_id and event.event_id not in seen:
            seen.add(event.event_id)
            room = fold(room, event)
    return room


def audit_delivery(database: Database, arrived: Iterable[Envelope]) -> list[str]:
    """The rooms that are not what the delivered events make of them, one line each."""
    of_room: dict[str, list[Envelope]] = {}
    for event in arrived:
        of_room.setdefault(event.room_id, []).append(event)
    with database.transaction() as cursor:
        cursor.execute("SELECT room_id FROM room ORDER BY room_id")
        names = [row[0] for row in cursor.fetchall()]
    problems = []
    for room_id in names:
        try:
            told = delivered_room(of_room.get(room_id, []), room_id)
        except ValueError as error:
            problems.append(f"{room_id}: {error}")
            continue
        if told != (room := store.load(database, room_id)):
            problems.append(f"{room_id} is at version {room.version}; what was delivered makes it {told}")
    return problems
