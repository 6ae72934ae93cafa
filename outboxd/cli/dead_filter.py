"""Which dead letters a command is about: its options, and what they say in words."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from outboxd.cli import words
from outboxd.cli.shared import lane_option
from outboxd.config.schema import Lane
from outboxd.store.connection import Connection
from outboxd.store.desk_dead import DeadFilter
from outboxd.store.desk_find import Desk, now_ms

Answer = TypeVar("Answer")

_OPTIONS = (
    click.argument("event", metavar="[EVENT_ID]", required=False),
    lane_option,
    click.option("--event-id", metavar="ID", help="The same as EVENT_ID."),
    click.option("--event-type", metavar="TYPE", help="`*` in it stands for anything: Room*."),
    click.option("--room", metavar="ROOM", help="The room."),
    click.option("--app", metavar="APP", help="The tenant; '' for events without one."),
    click.option("--since", callback=words.read_when, metavar="TIME", help="Died since: 2h (ago), 2026-11-29T16:57Z."),
    click.option("--until", callback=words.read_when, metavar="TIME", help="Died before."),
    click.option("--error", metavar="TEXT", help="A part of the reason, in any case."),
    click.option("--limit", type=click.IntRange(1, words.MOST_AT_ONCE), metavar="N", help="Of how many at the most."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for, as it was given."""

    lane: str | None
    event_id: str | None
    event_type: str | None
    room: str | None
    app: str | None
    since: words.When | None
    until: words.When | None
    error: str | None
    limit: int | None

    def filter(self, connection: Connection, lane: Lane, *, dead_by_now: bool = False) -> DeadFilter:
        """For the store. Durations count from the database's time. dead_by_now: nothing that dies from now on, so that
        what is changed in the end is what was counted; one event that is named needs no such bound.
        """
        now = now_ms(Desk(connection, lane))
        until_ms = self.until.epoch_ms(now) if self.until else None
        if dead_by_now and self.event_id is None:
            until_ms = now + 1 if until_ms is None else min(now + 1, until_ms)
        return DeadFilter(
            event_id=self.event_id,
            event_type=self.event_type,
            room=self.room,
            app=self.app,
            since_ms=self.since.epoch_ms(now) if self.since else None,
            until_ms=until_ms,
            error=self.error,
            limit=self.limit,
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
