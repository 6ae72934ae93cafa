"""What an event of an ordered lane waits for in its room, in plain words. Pure."""

import shlex
from collections.abc import Iterator

from outboxd.config.schema import Lane
from outboxd.explain import words
from outboxd.store.api import FRESH
from outboxd.store.desk_find import Found
from outboxd.store.desk_room import ROOM_CAP, Room

STUCK = frozenset({"retryable", "failed"})
"""What holds a room up, however fast its workers are."""


def command(lane: Lane, event: Found, deed: str) -> str:
    """What to type to do that with this one dead letter."""
    parts = ["outboxd", "dead", deed, event.event_id, "--lane", lane.name, "--app", event.app_code]
    return shlex.join(parts)


def waits_for(room: Room | str | None) -> str:
    """The event in front, "" if there is none."""
    front = room.front if isinstance(room, Room) else None
    if front is None:
        return ""
    return f"it waits for event {front.event_id} (id {front.id}) of the same room, which is {_standing(front)}"


def _standing(front: Found) -> str:
    if front.status == "failed":
        return "a dead letter, and on_dead is block"
    if front.status == "retryable":
        wait_ms = 0 if front.due_at_ms == FRESH else front.due_at_ms - front.now_ms
        return f"retryable, next try {f'in {words.lasting(wait_ms)}' if wait_ms > 0 else 'as soon as a worker is free'}"
    if front.status == "delivering":
        if front.lock_until_ms > front.now_ms:
            return f"being delivered by worker {front.worker_id}"
        ago = words.lasting(front.now_ms - front.lock_until_ms)
        return f"in the hands of {front.worker_id}, which died or hangs: its lease ran out {ago} ago"
    return "pending, at the front of the queue" if front.status == "pending" else f"{front.status} by now"


def is_stuck(room: Room | str | None) -> bool:
    """Is what it waits for itself waiting?"""
    return isinstance(room, Room) and room.front is not None and room.front.status in STUCK


def details(room: Room | str | None) -> Iterator[str]:
    """How many are before it in its room, and who works on that."""
    if isinstance(room, str):
        yield f"its room could not be looked at: {room}"
    if not isinstance(room, Room):
        return
    if room.ahead or room.is_more:
        count = words.counted(room.ahead, "event")
        yield f"{count}{' or more' if room.is_more else ''} of its room {'is' if room.ahead == 1 else 'are'} before it"
    if room.is_more:
        yield f"its partition holds more than {ROOM_CAP:,} events, of which the first were looked at"
    owner = f"which worker {room.owner} has" if room.owner else "which no worker has right now"
    yield f"its room is in partition {room.partition}, {owner}"


def decide(lane: Lane, room: Room | str | None) -> list[str]:
    """What a person can do about the event in front."""
    front = room.front if isinstance(room, Room) else None
    if front is None or front.status != "failed":
        return []
    return [
        f"publish {front.event_id} again: `{command(lane, front, 'replay')}`",
        f"or delete it for good: `{command(lane, front, 'purge')}`",
        f"or let the room go on without it: `{command(lane, front, 'skip')}`",
    ]


def held_up(lane: Lane, event: Found) -> tuple[list[str], list[str]]:
    """(details, todo): what a dead letter does to its own room."""
    if event.is_skipped:
        return ["it was skipped: its room goes on without it"], []
    if not lane.blocks_on_dead or not event.room_id:
        return [], []
    says = f"room {event.room_id} waits behind it, since on_dead is block"
    return [says], [f"or let the room go on without it: `{command(lane, event, 'skip')}`"]


def document(room: Room | str | None) -> dict[str, object] | None:
    """For programs."""
    if not isinstance(room, Room):
        return None
    front = room.front
    return {
        "partition": room.partition,
        "owner": room.owner or None,
        "ahead": room.ahead,
        "ahead_is_lower_bound": room.is_more,
        "front": {"event_id": front.event_id, "id": front.id, "status": front.status} if front else None,
    }
