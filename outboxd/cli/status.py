"""`outboxd status`: every lane in numbers, as the tables tell them, and its workers, as the daemon does."""

import time
from dataclasses import dataclass

import click

from outboxd.cli import show
from outboxd.cli.shared import EXIT_DONE, EXIT_FAILED, Command, Options
from outboxd.cli.workers import Daemon, ask_daemon, document, of_lane, show_workers
from outboxd.config.schema import Lane
from outboxd.errors import StoreConflict, StoreRefused, StoreUnavailable
from outboxd.explain import words
from outboxd.explain.lanes import lane_document
from outboxd.store import desk
from outboxd.store.connection import Connection

WATCH_S = 2.0

NUMBERS = ("waiting", "scheduled", "retrying", "delivering", "dead")
TITLES = ("lane", *NUMBERS, "oldest", "next due", "state")


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """A lane and what its table says; `problem` where the table cannot be read."""

    lane: Lane
    overview: desk.Overview | None = None
    problem: str = ""


@click.command(cls=Command)
@click.option("--json", "wants_json", is_flag=True, help="One JSON document (with --watch: one a line, each time).")
@click.option("--watch", is_flag=True, help="Show it again every 2 s until Ctrl-C.")
@click.pass_obj
def status(options: Options, wants_json: bool, watch: bool) -> int:
    """Show how many events each lane has waiting, retrying and dead, how old the oldest is, and what its workers do.

    Numbers of events are read from the tables, whether or not the daemon runs; they end at 100,000 (shown as 100,000+).
    Workers and breakers are asked of the daemon on this machine.
    """
    if not watch:
        found = _show_once(options, wants_json)
        return EXIT_FAILED if any(one.problem and one.lane.enabled for one in found) else EXIT_DONE
    try:
        while True:
            try:
                _show_once(options, wants_json, again=True)
            except (StoreUnavailable, StoreConflict) as error:  # what is away now may be back the next time
                click.echo(f"outboxd: {error}", err=True)
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return EXIT_DONE


def _show_once(options: Options, wants_json: bool, again: bool = False) -> list[LaneStatus]:
    """Without the database only what the daemon tells, and then the error."""
    daemon = ask_daemon(options.config)
    try:
        with options.connection() as connection:
            found = [_lane_status(connection, lane) for lane in options.config.lanes.values()]
    except StoreUnavailable:
        if not wants_json:
            show_workers(daemon)
        raise
    if again and show.is_terminal() and not wants_json:
        click.clear()
    _show(options, found, daemon, wants_json)
    return found


def _lane_status(connection: Connection, lane: Lane) -> LaneStatus:
    try:
        return LaneStatus(lane, desk.overview(connection, lane))
    except StoreRefused as error:
        return LaneStatus(lane, problem=str(error))


def _show(options: Options, found: list[LaneStatus], daemon: Daemon, wants_json: bool) -> None:
    where = options.config.database.shown
    now_ms = max((one.overview.now_ms for one in found if one.overview), default=None)
    if wants_json:
        lanes = [
            {**lane_document(one.lane, one.overview, one.problem), **of_lane(daemon, one.lane.name)} for one in found
        ]
        show.as_json({"time_ms": now_ms, "database": where, **document(daemon), "lanes": lanes})
        return
    show.line(f"{where}, {words.moment(now_ms or 0)}")
    show.table(TITLES, [_row(one) for one in found if one.overview or one.lane.enabled], NUMBERS)
    for one in found:
        if one.overview and one.overview.paused:
            show.line(f"{one.lane.name} is paused by {one.overview.paused_by}: `outboxd resume {one.lane.name}`")
        if one.problem and one.lane.enabled:
            show.line(f"{one.lane.name}: {one.problem}")
        if one.overview and one.overview.blocked_rooms:
            show.line(_blocked(one.lane, one.overview))
        if one.overview and one.overview.failed:
            show.line(f"{one.lane.name} has dead letters: `outboxd dead list --lane {one.lane.name}`")
    show_workers(daemon)


def _blocked(lane: Lane, seen: desk.Overview) -> str:
    count = seen.blocked_rooms or 0
    more = "+" if "blocked_rooms" in seen.capped else ""
    return (
        f"{lane.name}: {count:,}{more} {'room has' if count == 1 else 'rooms have'} a dead letter in front that nobody "
        f"has decided about: replay it, purge it, or `outboxd dead skip EVENT_ID --lane {lane.name}`"
    )


def _row(one: LaneStatus) -> tuple[str, ...]:
    seen = one.overview
    if seen is None:
        return (one.lane.name, *("?" for _ in NUMBERS), "?", "?", "no table to read")

    def number(name: str) -> str:
        return f"{getattr(seen, name):,}" + ("+" if name in seen.capped else "")

    numbers = [number(name) for name in ("fresh", "scheduled", "retrying", "delivering", "failed")]
    oldest = "-" if seen.oldest_age_ms is None else words.lasting(seen.oldest_age_ms)
    due = "-" if seen.next_due_ms is None else f"in {words.lasting(seen.next_due_ms - seen.now_ms)}"
    state = "paused" if seen.paused else "on"
    return (one.lane.name, *numbers, oldest, due, state if one.lane.enabled else f"not enabled, {state}")
