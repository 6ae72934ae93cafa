"""`outboxd explain`: where one event is, and why it is not delivered."""

from collections.abc import Iterator
from dataclasses import asdict

import click

from outboxd.cli import show, words
from outboxd.cli.shared import EXIT_DONE, EXIT_FAILED, Command, Options
from outboxd.cli.story import Scene, Story, tell
from outboxd.config.schema import Config, Lane
from outboxd.errors import StoreRefused
from outboxd.relay.policy import EXPONENTIAL
from outboxd.store.api import FRESH
from outboxd.store.connection import Connection
from outboxd.store.desk import find
from outboxd.store.desk_look import around


@click.command(cls=Command)
@click.argument("event_id")
@click.option("--lane", "lane_name", metavar="LANE", help="Look in this lane only. Default: in all of them.")
@click.option("--app", "app_code", metavar="APP", help="The tenant. Default: all of them.")
@click.option("--json", "wants_json", is_flag=True, help="Print it as JSON.")
@click.pass_obj
def explain(options: Options, event_id: str, lane_name: str | None, app_code: str | None, wants_json: bool) -> int:
    """Tell where an event is and why it is not delivered, in plain words. Exit status 1 if there is no such event."""
    config = options.config
    lanes = list(config.lanes.values()) if lane_name is None else [options.lane(lane_name)]
    with options.connection() as connection:
        scenes = [scene for lane in lanes for scene in _scenes(config, connection, lane, event_id, app_code)]
    if wants_json:
        events = [document(scene, tell(scene)) for scene in scenes]
        show.as_json({"event_id": event_id, "lanes": [lane.name for lane in lanes], "events": events})
    else:
        _say(config, event_id, lanes, scenes)
    return EXIT_DONE if scenes else EXIT_FAILED


def _scenes(config: Config, connection: Connection, lane: Lane, event_id: str, app_code: str | None) -> Iterator[Scene]:
    publishers = {name: config.publishers[name] for name in lane.direct if name in config.publishers}
    try:
        found = find(connection, lane, event_id, app_code)
    except StoreRefused:
        if lane.enabled:
            raise
        return  # a lane that is not in use need not have a table
    for event in found:
        yield Scene(event, lane, around(connection, lane, event), publishers)


def _say(config: Config, event_id: str, lanes: list[Lane], scenes: list[Scene]) -> None:
    if not scenes:
        looked = ", ".join(lane.name for lane in lanes)
        show.line(f"event {event_id} was never seen in {looked} of {config.database.shown}")
        show.line("  its transaction did not commit there, it was purged, or it has another id or app code")
    if len(scenes) > 1:
        keys = ", ".join(f"{s.lane.name} (app {s.event.app_code or 'none'})" for s in scenes)
        show.line(f"{len(scenes)} events have this id, which is unique within an app code only: {keys}")
    for scene in scenes:
        _say_one(scene, tell(scene))


def _say_one(scene: Scene, story: Story) -> None:
    event = scene.event
    app = f", app {event.app_code}" if event.app_code else ""
    show.line(
        f"event {event.event_id} in {scene.lane.name} (id {event.id}, {event.event_type}, room {event.room_id}{app})"
    )
    show.line(f"  {story.headline}")
    for text in story.details:
        show.line(f"  - {text}")
    for text in story.todo:
        show.line(f"  to do: {text}")
    if event.created_at_ms:
        created = f"{words.moment(event.created_at_ms)}, {words.lasting(event.now_ms - event.created_at_ms)} ago"
        show.line(f"  created {created}; payload {event.envelope_bytes:,} bytes of {event.content_type}")


def document(scene: Scene, story: Story) -> dict[str, object]:
    """The story for programs; `event` holds the row."""
    event, lane = scene.event, scene.lane
    row = asdict(event)
    now_ms = row.pop("now_ms")
    due_ms = row.pop("due_at_ms")
    is_waiting = event.status in ("pending", "retryable")
    return {
        "lane": lane.name,
        **asdict(story),
        "attempts": event.retry_count,
        "max_attempts": lane.max_retry_count if lane.retry_strategy == EXPONENTIAL else None,
        "next_try_ms": (now_ms if due_ms == FRESH else due_ms) if is_waiting else None,
        "ahead": scene.around.ahead if is_waiting else None,
        "workers": dict(scene.around.holders),
        "paused": scene.around.paused,
        "time_ms": now_ms,
        "event": row,
    }
