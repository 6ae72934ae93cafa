"""`outboxd dead`: what was given up, listed and shown; what changes it is in dead_change.py."""

import click

from outboxd.cli import dead_change, show
from outboxd.cli.dead_filter import filters
from outboxd.cli.shared import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, Command, Options
from outboxd.explain import dead as letters
from outboxd.explain import words
from outboxd.explain.dead import USUAL_LIMIT, Wanted
from outboxd.explain.search import scene_of
from outboxd.explain.story import Scene, tell
from outboxd.redact import clip
from outboxd.store.desk_dead import DeadFilter, dead_list
from outboxd.store.desk_find import Found
from outboxd.store.desk_look import envelope_of

SHOWN_PAYLOAD = 2000
NUMBERS = ("id", "attempts")


@click.group(invoke_without_command=True)
@click.pass_context
def dead(ctx: click.Context) -> int:
    """List, show, replay, purge and skip dead letters; kill an event that must not be published.

    A dead letter is an event that was given up (status `failed`): a receiver refused it for ever, its attempts are used
    up, or a person killed it. It is never retried by itself.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        return EXIT_USAGE
    return EXIT_DONE


@click.command("list", cls=Command)
@filters
@click.option("--json", "wants_json", is_flag=True, help="Print them as JSON.")
@click.pass_obj
def list_(options: Options, wanted: Wanted, wants_json: bool) -> None:
    """List dead letters, newest first; 50 unless --limit says otherwise."""
    lane = options.lane(wanted.lane)
    with options.connection() as connection:
        chosen = wanted.filter(connection, lane)
        found = dead_list(connection, lane, chosen, wanted.limit or USUAL_LIMIT)
        count, is_more = letters.total(connection, lane, chosen, found)
    if wants_json:
        show.as_json(letters.listed(lane, found, count, is_more))
        return
    if not found:
        show.line(f"no dead letter in {lane.name}" + (" matches" if chosen != DeadFilter(limit=wanted.limit) else ""))
        return
    titles = ("id", "died", "app", "event_id", "type", "room", "attempts", "reason")
    show.table(titles, [_row(event) for event in found], NUMBERS)
    if count > len(found):
        show.line(f"{len(found):,} of {count:,}{'+' if is_more else ''} in {lane.name}; --limit shows more")


@click.command("show", cls=Command)
@filters
@click.option("--json", "wants_json", is_flag=True, help="Print it as JSON, with the whole payload.")
@click.pass_obj
def show_(options: Options, wanted: Wanted, wants_json: bool) -> int:
    """Show one dead letter with its reason and its payload (or the newest ones that match, with --limit)."""
    lane = options.lane(wanted.lane)
    with options.connection() as connection:
        chosen = wanted.filter(connection, lane)
        found = dead_list(connection, lane, chosen, wanted.limit or (USUAL_LIMIT if wanted.event_id else 1))
        scenes = [scene_of(options.config, connection, lane, event) for event in found]
        payloads = [envelope_of(connection, lane, event.id) or b"" for event in found]
    if wants_json:
        show.as_json(letters.shown(lane, scenes, payloads))
    elif not scenes:
        show.line(f"no dead letter in {lane.name} matches; `outboxd explain` finds events in any state")
    for scene, payload in zip(scenes, payloads, strict=True) if not wants_json else ():
        _show_one(scene, payload)
    return EXIT_DONE if scenes else EXIT_FAILED


def _row(event: Found) -> tuple[str, ...]:
    reason = ("(skipped) " if event.is_skipped else "") + (event.last_error or "")
    when = f"{words.lasting(event.now_ms - event.updated_at_ms)} ago"
    names = (event.app_code or "-", event.event_id, event.event_type, event.room_id)
    return (str(event.id), when, *names, str(event.retry_count), reason)


def _show_one(scene: Scene, payload: bytes) -> None:
    event, story = scene.event, tell(scene)
    app = event.app_code or "none"
    show.line(f"event {event.event_id} in {scene.lane.name} (id {event.id})")
    show.line(f"  type {event.event_type}, room {event.room_id or 'none'}, app {app}")
    for text in (story.headline, *story.details):
        show.line(f"  {text}")
    show.line(f"  created {words.moment(event.created_at_ms)}; failed attempts: {event.retry_count}")
    if event.headers:
        show.line(f"  headers: {event.headers}")
    for text in story.todo:
        show.line(f"  to do: {text}")
    show.line(f"  payload, {len(payload):,} bytes of {event.content_type}:")
    show.line(
        f"  {clip(payload, SHOWN_PAYLOAD)}" + (" ... (--json shows all of it)" if len(payload) > SHOWN_PAYLOAD else "")
    )


for _command in (list_, show_, dead_change.replay, dead_change.purge, dead_change.skip, dead_change.kill):
    dead.add_command(_command)
