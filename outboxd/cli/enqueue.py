"""`outboxd enqueue`: one event, as a producer would write it."""

import os
import sys
import uuid
from typing import Any

import click
import msgspec

from outboxd.cli import show, values
from outboxd.cli.ring import ring_at
from outboxd.cli.shared import Command, Options, lane_option
from outboxd.config.durations import format_size
from outboxd.config.schema import Lane
from outboxd.errors import OutboxdError, PublisherError
from outboxd.explain import words
from outboxd.message import is_json
from outboxd.store import desk
from outboxd.store.migrate import create_missing
from outboxd.table import ASCII, LIMITS, NEVER_EMPTY


def _fitting(_ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """For an option: what its column takes."""
    name = param.name or ""
    if text is None:
        return None
    if not text and name in NEVER_EMPTY:
        raise click.BadParameter("it is empty: give one")
    if len(text) > LIMITS[name]:
        raise click.BadParameter(f"it has {len(text):,} characters: {LIMITS[name]} is the most")
    if name in ASCII and not text.isascii():
        raise click.BadParameter(f"{text!r} is not ASCII: choose another")
    if not text.isprintable():  # half a surrogate pair, too: bytes that are no UTF-8
        raise click.BadParameter(f"{text!r} holds what cannot be printed: choose another")
    return text


@click.command(cls=Command)
@click.argument("data", metavar="DATA|-")
@click.option(
    "--type", "event_type", required=True, callback=_fitting, metavar="TYPE", help="The event's type, e.g. RoomCreated."
)
@click.option(
    "--room", "room_id", required=True, callback=_fitting, metavar="ROOM", help="The room it belongs to (ordering key)."
)
@lane_option
@click.option("--app", "app_code", default="", callback=_fitting, metavar="APP", help="The tenant. Default: none.")
@click.option("--event-id", callback=_fitting, metavar="ID", help="Default: a new random one.")
@click.option("--delay", callback=values.read_duration, metavar="DURATION", help="Due that much later, e.g. 10m.")
@click.option(
    "--content-type", default="application/json", callback=_fitting, metavar="TYPE", help="Default: application/json."
)
@click.option("--headers", metavar="JSON", help='An object carried along, e.g. {"traceparent": "..."}.')
@click.option("--json", "wants_json", is_flag=True, help="Print what was written as JSON.")
@click.pass_obj
def enqueue(
    options: Options,
    data: str,
    event_type: str,
    room_id: str,
    lane_name: str | None,
    app_code: str,
    event_id: str | None,
    delay: int,
    content_type: str,
    headers: str | None,
    wants_json: bool,
) -> None:
    """Put one event into a lane, in a transaction of its own. DATA is the payload; `-` reads it from standard input.

    \b
    outboxd enqueue --type RoomCreated --room r1 '{"title": "hello"}'
    """
    lane = options.lane(lane_name)
    payload = _standard_input() if data == "-" else os.fsencode(data)
    _check(payload, content_type, lane)
    if headers is not None:
        _decode(os.fsencode(headers), dict[str, Any], "--headers is not the text of a JSON object", "write {...}")
    event = desk.NewEvent(
        event_id=event_id or str(uuid.uuid4()),
        event_type=event_type,
        room_id=room_id,
        envelope=payload,
        app_code=app_code,
        content_type=content_type,
        headers=headers,
    )
    with options.connection(create=True) as connection:
        create_missing(connection, [lane])  # only where the database is embedded
        row_id = desk.enqueue(connection, lane, event, delay)
    unrung = "" if delay else _ring(options.config.redis.url, lane)
    if wants_json:
        show.as_json({"lane": lane.name, "id": row_id, "event_id": event.event_id, "app_code": app_code})
        if unrung:
            click.echo(unrung, err=True)
    else:
        due = f", due in {words.lasting(delay)}" if delay else ""
        show.line(f"enqueued event {event.event_id} in {lane.name} (id {row_id}){due}{unrung and ', '}{unrung}")


def _ring(url: str | None, lane: Lane) -> str:
    """Tell the lane's workers; why that failed, if it did, which costs nothing but time."""
    if url is not None:
        try:
            ring_at(url, lane.name)
        except PublisherError as error:
            return f"the doorbell could not be rung: {error}"
    return ""


def _standard_input() -> bytes:
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise OutboxdError(f"cannot read standard input: {error.strerror}") from error


def _check(payload: bytes, content_type: str, lane: Lane) -> None:
    if len(payload) > lane.max_event_bytes:
        most = format_size(lane.max_event_bytes)
        raise OutboxdError(
            f"DATA has {len(payload):,} bytes and {lane.name} takes {most}: it would become a dead letter; "
            f"raise lanes.{lane.name}.max_event_bytes or send less"
        )
    if is_json(content_type):
        _decode(payload, Any, "DATA is no JSON", "quote it, or name what it is with --content-type")


def _decode(text: bytes, kind: Any, problem: str, advice: str) -> None:
    try:
        msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{problem} ({error}): {advice}") from error
    except RecursionError as error:
        raise click.UsageError(f"{problem} that could be read (it is nested too deeply): {advice}") from error
