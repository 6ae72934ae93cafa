"""What operators do with one lane, over a Connection: look, add an event, pause. Dead letters are in desk_dead.py.

Answers are data; what is told to people is composed by the command line. Every statement reads ranges of an index only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from outboxd.config.schema import Lane
from outboxd.errors import StoreConflict, StoreRefused
from outboxd.store.api import FRESH, LAST_ERROR_CHARACTERS
from outboxd.store.connection import Connection, Params, Row
from outboxd.store.desk_find import REPEATS, Desk, Found, find, found_of, now_ms, text
from outboxd.table import LIMITS

__all__ = [
    "Found", "Killed", "NewEvent", "Overview", "enqueue", "find", "kill", "overview", "pause", "resume",
]  # fmt: skip

COUNT_CAP = 100_000
"""Rows of each index range that a count reads at the most."""

FEW, HEADS = 20_000, 500
"""Where rows that stand together in the index lie far apart, all fresh ones are looked at only if they are few; else
the first ones of each partition, since what is in flight mostly stands in front."""

UNPUBLISHED = frozenset({"pending", "retryable", "delivering"})

_BY = 128  # characters of outboxd_lane.paused_by


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event as a producer writes it. headers: the text of a JSON object."""

    event_id: str
    event_type: str
    room_id: str
    envelope: bytes
    app_code: str = ""
    content_type: str = "application/json"
    headers: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A lane at one moment, `now_ms` by the database's clock.

    fresh: may be published now and never failed (delayed events whose time has come, too). scheduled: pending, due
    later. retrying: retryable, due or waiting. capped: the classes whose range was not read to its end, so that the
    number is a lower bound. oldest_age_ms: since when the oldest event waits that could have been published, None if
    none does; events with unknown creation are left out. next_due_ms: of what waits for its time. blocked_rooms: rooms
    of COUNT_CAP dead letters that nobody has skipped, whether or not anything follows them; None: no room of
    the lane waits for a dead letter. Of an ordered lane on MySQL with more than FEW
    fresh events, those that are being delivered are found among the first HEADS of each partition only.
    """

    now_ms: int
    fresh: int
    scheduled: int
    retrying: int
    delivering: int
    failed: int
    capped: frozenset[str]
    oldest_age_ms: int | None
    next_due_ms: int | None
    paused: bool
    paused_by: str
    blocked_rooms: int | None = None


@dataclass(frozen=True, slots=True)
class Killed:
    """done: the event is a dead letter now. before: the status it had, "gone" when the row was no more. worker_id: who
    was publishing it, "" for nobody; what that one sends may still arrive, but its settle changes nothing.
    """

    done: bool
    before: str
    worker_id: str = ""


def enqueue(connection: Connection, lane: Lane, event: NewEvent, delay_ms: int = 0) -> int:
    """Add an event, due delay_ms from now by the database's clock; its id.

    Raises StoreRefused for an event that does not fit the table, and for one whose event_id is there already.
    """
    desk = Desk(connection, lane)
    _check(event)
    key = {"app": event.app_code, "event": event.event_id}
    _refuse_duplicate(desk, event, key)
    params = {
        **key,
        "type": event.event_type,
        "room": event.room_id,
        "payload": event.envelope,
        "content": event.content_type,
        "head": event.headers,
        "delay": delay_ms,
    }
    try:
        desk.execute("enqueue", params)
    except StoreRefused:
        _refuse_duplicate(desk, event, key)  # somebody else's came first
        raise
    return int(desk.query("identify", key)[0][0])


def _refuse_duplicate(desk: Desk, event: NewEvent, key: Params) -> None:
    for row_id, status in desk.query("identify", key):
        raise StoreRefused(
            f"event_id {event.event_id!r} is in {desk.lane.name} already (id {row_id}, {status}): an event_id is "
            "unique within its app_code, choose another"
        )


def _check(event: NewEvent) -> None:
    """What MySQL would refuse or, in the wrong mode, cut; SQLite would take it all."""
    for name, limit in LIMITS.items():
        value = getattr(event, name)
        if len(value) > limit:
            raise StoreRefused(f"{name} has {len(value)} characters: {limit} is the most")
    for name in ("event_id", "event_type"):
        if not getattr(event, name):
            raise StoreRefused(f"{name} is empty: give one")
    if not event.event_id.isascii():
        raise StoreRefused(f"event_id {event.event_id!r} is not ASCII: choose another")
    if event.headers is not None:
        try:
            msgspec.json.decode(event.headers, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise StoreRefused(f"headers is not the text of a JSON object: {error}") from error


def pause(connection: Connection, lane: Lane, by: str) -> None:
    """No node claims any more of the lane; what is claimed is finished."""
    _set_paused(connection, lane, 1, by[:_BY])


def resume(connection: Connection, lane: Lane) -> None:
    """The lane goes on."""
    _set_paused(connection, lane, 0, "")


def _set_paused(connection: Connection, lane: Lane, paused: int, who: str) -> None:
    if not Desk(connection, lane).execute("set_paused", {"paused": paused, "who": who, "lane": lane.name}):
        raise StoreRefused(f"{lane.name} is not in outboxd_lane: run `outboxd init-db`")


def overview(connection: Connection, lane: Lane) -> Overview:
    """The lane's numbers. Reads at most COUNT_CAP rows of each range, whatever was delivered."""
    desk = Desk(connection, lane)
    now = now_ms(desk)
    counts: dict[str, int] = {"fresh": 0, "scheduled": 0, "retrying": 0, "delivering": 0}
    capped: set[str] = set()
    oldest: list[int] = []
    for pending_is, low, high in (("fresh", FRESH, FRESH), ("fresh", 0, now), ("scheduled", now + 1, FRESH - 1)):
        rows = _counted(desk, low, high)
        classes = {"pending": pending_is, "retryable": "retrying", "delivering": "delivering"}
        if sum(int(row[1]) for row in rows) > COUNT_CAP:
            capped.update(classes.values())
        elif desk.is_parted and low == FRESH and sum(int(row[1]) for row in rows) > FEW:
            capped.add("delivering")
        for state, count, since in rows:
            counts[classes[state]] += int(count)
            if since is not None and classes[state] != "scheduled":
                oldest.append(int(since))
    failed = int(desk.query("count_failed", {"most": COUNT_CAP + 1})[0][0])
    blocked = int(desk.query("blocked_rooms", {"most": COUNT_CAP})[0][0]) if lane.blocks_on_dead else None
    if failed > COUNT_CAP:
        capped.update(("failed", "blocked_rooms") if lane.blocks_on_dead else ("failed",))
    nearest = desk.query("next_due", {"low": now + 1, "high": FRESH - 1})
    paused = desk.query("lane", {"lane": lane.name})
    return Overview(
        now_ms=now,
        **counts,
        failed=min(failed, COUNT_CAP),
        capped=frozenset(capped),
        oldest_age_ms=max(0, now - min(oldest)) if oldest else None,
        next_due_ms=int(nearest[0][0]) if nearest else None,
        paused=bool(paused and paused[0][0]),
        paused_by=text(paused[0][1]) if paused else "",
        blocked_rooms=blocked,
    )


def _counted(desk: Desk, low: int, high: int) -> Sequence[Row]:
    """(status, how many, since when the oldest waits) of a range of due values, COUNT_CAP + 1 rows at the most.

    Where the index begins with the partition, rows that stand together in it lie far apart. So many fresh ones are
    counted by the index alone; which of them are not pending, and how old they are, the first ones tell.
    """
    most, bounds = COUNT_CAP + 1, {"low": low, "high": high}
    if not desk.is_parted:
        return desk.query("count_class", {**bounds, "most": most})
    if low != FRESH:
        ages = [(row[0], 0, row[2]) for row in desk.query("class_heads", {**bounds, "each": HEADS})]
        return [*desk.query("count_class", {**bounds, "most": most}), *ages]
    count = int(desk.query("count_fresh", {"fresh": FRESH, "most": most})[0][0])
    if count <= FEW:
        return desk.query("count_class", {**bounds, "most": most})
    heads = desk.query("class_heads", {**bounds, "each": HEADS})
    others = [row for row in heads if row[0] != "pending"]
    since = next((row[2] for row in heads if row[0] == "pending"), None)
    return [*others, ("pending", max(0, count - sum(int(row[1]) for row in others)), since)]


def kill(connection: Connection, lane: Lane, event: Found, by: str) -> Killed:
    """Make one unpublished event a dead letter now, also while it is being published: that claim is lost with it."""
    desk = Desk(connection, lane)
    for _ in range(REPEATS):
        rows = desk.query("find", {"app": event.app_code, "event": event.event_id})
        if not rows:
            return Killed(False, "gone")
        now = found_of(rows[0])
        if now.status not in UNPUBLISHED:
            return Killed(False, now.status)
        why = f"killed by {by}" + (f": {now.last_error}" if now.last_error else "")
        params = {"id": now.id, "seen": now.status, "seen_token": now.claim_token, "why": why[:LAST_ERROR_CHARACTERS]}
        if desk.execute("kill", params):
            return Killed(True, now.status, now.worker_id if now.status == "delivering" else "")
    raise StoreConflict(f"event {event.event_id!r} changed hands at each of {REPEATS} tries: try again")
