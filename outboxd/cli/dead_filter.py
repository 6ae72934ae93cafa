"""Which dead letters a command is about: its options."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from outboxd.cli import values
from outboxd.cli.shared import lane_option
from outboxd.explain.dead import Wanted
from outboxd.explain.words import MOST_AT_ONCE

Answer = TypeVar("Answer")

_OPTIONS = (
    click.argument("event", metavar="[EVENT_ID]", required=False),
    lane_option,
    click.option("--event-id", metavar="ID", help="The same as EVENT_ID."),
    click.option("--event-type", metavar="TYPE", help="`*` in it stands for anything: Room*."),
    click.option("--room", metavar="ROOM", help="The room."),
    click.option("--app", metavar="APP", help="The tenant; '' for events without one."),
    click.option("--since", callback=values.read_when, metavar="TIME", help="Died since: 2h (ago), 2026-11-29T16:57Z."),
    click.option("--until", callback=values.read_when, metavar="TIME", help="Died before."),
    click.option("--error", metavar="TEXT", help="A part of the reason, in any case."),
    click.option("--limit", type=click.IntRange(1, MOST_AT_ONCE), metavar="N", help="Of how many at the most."),
)


def filters(command: Callable[..., Answer]) -> Callable[..., Answer]:
    """The options that choose dead letters; the command gets them as one keyword, `wanted`."""

    @wraps(command)
    def collected(lane_name: str | None, event: str | None, **given: Any) -> Answer:
        chosen = {name: given.pop(name) for name in _NAMES}
        chosen["event_id"] = one_name(event, chosen["event_id"])
        return command(wanted=Wanted(lane=lane_name, **chosen), **given)

    for option in reversed(_OPTIONS):
        collected = option(collected)
    return collected


def one_name(event: str | None, event_id: str | None) -> str | None:
    """The event that EVENT_ID or --event-id names. Raises UsageError when they name two."""
    if event is not None and event_id is not None and event != event_id:
        raise click.UsageError(f"EVENT_ID is {event!r}, --event-id {event_id!r}: name one of them")
    return event if event_id is None else event_id


_NAMES = ("event_id", "event_type", "room", "app", "since", "until", "error", "limit")
