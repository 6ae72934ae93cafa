"""Events found by their id, and their stories as documents."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from outboxd.config.schema import EXPONENTIAL, Config, Lane, PublisherSettings
from outboxd.errors import StoreRefused
from outboxd.explain import room, words
from outboxd.explain.story import Scene, Story, tell
from outboxd.store.api import FRESH
from outboxd.store.connection import Connection
from outboxd.store.desk_find import Found, find
from outboxd.store.desk_look import around
from outboxd.store.desk_room import room_of

WAITS = frozenset({"pending", "retryable"})


def publishers_of(config: Config, lane: Lane) -> Mapping[str, PublisherSettings]:
    """The lane's own, in order; of a lane that is not enabled some may be missing."""
    return {name: config.publishers[name] for name in lane.publishers if name in config.publishers}


def scene_of(config: Config, connection: Connection, lane: Lane, event: Found) -> Scene:
    """Look around an event."""
    is_behind = lane.is_ordered and event.room_id and event.status in WAITS
    seen = room_of(connection, lane, event) if is_behind else None
    return Scene(event, lane, around(connection, lane, event), publishers_of(config, lane), seen)


def scenes_of(
    config: Config, connection: Connection, lanes: Iterable[Lane], event_id: str, app_code: str | None
) -> list[Scene]:
    """Every event of that id. A lane that is not enabled need not have a table. Raises StoreRefused and its like."""
    scenes: list[Scene] = []
    for lane in lanes:
        try:
            found = find(connection, lane, event_id, app_code)
        except StoreRefused:
            if lane.enabled:
                raise
            continue
        scenes += [scene_of(config, connection, lane, event) for event in found]
    return scenes


def never_seen(config: Config, event_id: str, lanes: Iterable[Lane]) -> str:
    """Of an event that is in none of the lanes."""
    return f"event {event_id} was never seen in {', '.join(lane.name for lane in lanes)} of {config.database.shown}"


def reasons(lanes: Iterable[Lane]) -> str:
    """What may have become of an event that is in none of the lanes."""
    usual = "its transaction did not commit there, it was purged or pruned, or it has another id or app code"
    return "; or, ".join([usual, *(f"in {lane.name}, {ways}" for lane in lanes if (ways := _ways_to_go(lane)))])


def _ways_to_go(lane: Lane) -> str:
    """How the lane's configuration has events deleted; "" if it has none."""
    ways: list[str] = []
    if lane.discards_stale:
        age = words.lasting(lane.stale_discard_after_s * 1000)
        ways.append(f"it was discarded, older than {age} when its turn came (stale_discard_after)")
    if lane.cleans_up:
        ages_s = (("active", lane.cleanup_active_after_s), ("terminal", lane.cleanup_terminal_after_s))
        given = (f"{words.lasting(age_s * 1000)} (cleanup_{kind}_after)" for kind, age_s in ages_s if age_s > 0)
        ways.append(f"it was cleaned up at an age of {' or '.join(given)}")
    if lane.retention_s > 0:
        ways.append(f"it was delivered and deleted {words.lasting(lane.retention_s * 1000)} later (retention)")
    return " or ".join(ways)


def explained(event_id: str, lanes: Iterable[Lane], scenes: Sequence[Scene]) -> dict[str, object]:
    """For programs: all that was found."""
    events = [document(scene, tell(scene)) for scene in scenes]
    return {"event_id": event_id, "lanes": [lane.name for lane in lanes], "events": events}


def document(scene: Scene, story: Story) -> dict[str, object]:
    """The story for programs; `event` holds the row."""
    event, lane = scene.event, scene.lane
    row = asdict(event)
    now_ms = row.pop("now_ms")
    due_ms = row.pop("due_at_ms")
    is_waiting = event.status in WAITS
    return {
        "lane": lane.name,
        **asdict(story),
        "attempts": event.retry_count,
        "max_attempts": lane.max_retry_count if lane.retry_strategy == EXPONENTIAL else None,
        "next_try_ms": (now_ms if due_ms == FRESH else due_ms) if is_waiting else None,
        "ahead": scene.around.ahead if is_waiting else None,
        "room": room.document(scene.room),
        "skipped": event.is_skipped,
        "workers": dict(scene.around.holders),
        "paused": scene.around.paused,
        "time_ms": now_ms,
        "event": row,
    }
