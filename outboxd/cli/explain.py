"""`outboxd explain`: where one event is, and why it is not delivered."""

import click

from outboxd.cli import show
from outboxd.cli.shared import EXIT_DONE, EXIT_FAILED, Command, Options
from outboxd.config.schema import Config, Lane
from outboxd.explain import search, words
from outboxd.explain.story import Scene, Story, tell


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
        scenes = search.scenes_of(config, connection, lanes, event_id, app_code)
    if wants_json:
        show.as_json(search.explained(event_id, lanes, scenes))
    else:
        _say(config, event_id, lanes, scenes)
    return EXIT_DONE if scenes else EXIT_FAILED


def _say(config: Config, event_id: str, lanes: list[Lane], scenes: list[Scene]) -> None:
    if not scenes:
        show.line(search.never_seen(config, event_id, lanes))
        show.line(f"  {search.reasons(lanes)}")
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
