"""`outboxd dead replay`, `purge`, `kill`: what a person decides about events that were, or are to be, given up."""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import click

from outboxd.cli import show, words
from outboxd.cli.dead_filter import Wanted, filters
from outboxd.cli.pause import who
from outboxd.cli.shared import EXIT_DONE, EXIT_FAILED, Command, Options, agree
from outboxd.cli.story import wanted_by
from outboxd.config.schema import Lane, PublisherSettings
from outboxd.errors import OutboxdError
from outboxd.store import desk
from outboxd.store.connection import Connection
from outboxd.store.desk_dead import DeadFilter, dead_count, dead_list
from outboxd.store.desk_dead import purge as purge_rows
from outboxd.store.desk_dead import replay as replay_rows

LOOKED_AT = 1000
"""Dead letters that are read to tell which publishers will be asked."""
BATCH = 500
PING_S = 10.0

_DRY = click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
_YES = click.option("--yes", is_flag=True, help="Do not ask.")
_JSON = click.option("--json", "wants_json", is_flag=True, help="Print the result as JSON.")


def _changing(command: Callable[..., int]) -> Callable[..., int]:
    """The options of every command that changes dead letters."""
    return filters(_DRY(_YES(_JSON(command))))


@dataclass(frozen=True, slots=True)
class Matches:
    """Dead letters that a filter finds: how many (is_more: at least), and the newest of them."""

    count: int
    is_more: bool
    newest: list[desk.Found]

    def __str__(self) -> str:
        return ("more than " if self.is_more else "") + words.counted(self.count, "dead letter")


def _matches(connection: Connection, lane: Lane, chosen: DeadFilter) -> Matches:
    count, is_more = dead_count(connection, lane, chosen)
    return Matches(count, is_more, dead_list(connection, lane, chosen, LOOKED_AT))


@click.command(cls=Command)
@_changing
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="So many a second.")
@click.option("--to", type=click.Choice(["all"]), help="`all`: ask also the publishers that accepted it before.")
@click.pass_obj
def replay(
    options: Options, wanted: Wanted, dry_run: bool, yes: bool, wants_json: bool, rate: float | None, to: str | None
) -> int:
    """Make dead letters pending again: same event_id, attempts start anew. More than one asks first.

    Publishers that accepted an event are not asked again, unless --to all says so; those that refused it are.
    """
    lane, to_all = options.lane(wanted.lane), to == "all"
    with options.connection() as connection:
        chosen = wanted.filter(connection, lane)
        found = _matches(connection, lane, chosen)
        if not found.count:
            return _nothing(connection, lane, chosen, wants_json, dry_run)
        publishers = {name: options.config.publishers[name] for name in lane.direct}
        said = [*_ambiguity(found.newest, chosen), _who_is_asked(found.newest, publishers, to_all, found.count)]
        _announce(said, wants_json)
        if dry_run:
            return _report(lane, found, 0, wants_json, f"{found} of {lane.name} would be published again")
        if found.count > 1 or found.is_more:
            agree(f"Publish {found} of {lane.name} again?", yes)
        batch = BATCH if rate is None else max(1, min(BATCH, int(rate)))
        chunks = replay_rows(connection, lane, chosen, to_all=to_all, batch=batch)
        done = _counting(_paced(chunks, rate, found, connection), f"of {found} pending again", wants_json)
    return _report(lane, found, done, wants_json, f"{words.counted(done, 'dead letter')} of {lane.name} pending again")


@click.command(cls=Command)
@_changing
@click.pass_obj
def purge(options: Options, wanted: Wanted, dry_run: bool, yes: bool, wants_json: bool) -> int:
    """Delete dead letters for good. Always asks first."""
    lane = options.lane(wanted.lane)
    with options.connection() as connection:
        chosen = wanted.filter(connection, lane)
        found = _matches(connection, lane, chosen)
        if not found.count:
            return _nothing(connection, lane, chosen, wants_json, dry_run)
        _announce(_ambiguity(found.newest, chosen), wants_json)
        if dry_run:
            return _report(lane, found, 0, wants_json, f"{found} of {lane.name} would be deleted for good")
        agree(f"Delete {found} of {lane.name} for good?", yes)
        done = _counting(purge_rows(connection, lane, chosen, batch=BATCH), f"of {found} deleted", wants_json)
    return _report(lane, found, done, wants_json, f"{words.counted(done, 'dead letter')} of {lane.name} deleted")


@click.command(cls=Command)
@_changing
@click.pass_obj
def kill(options: Options, wanted: Wanted, dry_run: bool, yes: bool, wants_json: bool) -> int:
    """Make one event that is not published yet a dead letter now. Always asks first.

    It is named by its id (and --app, where several tenants have that id). If a worker is publishing it at this moment,
    that may still arrive; whatever comes of it, the event stays a dead letter.
    """
    lane = options.lane(wanted.lane)
    if wanted.event_id is None:
        raise click.UsageError("name the event: outboxd dead kill EVENT_ID")
    others = [name for name, value in dataclasses.asdict(wanted).items() if value is not None]
    if unused := [name for name in others if name not in ("lane", "event_id", "app")]:
        raise click.UsageError(f"kill takes one event by its id: --{unused[0].replace('_', '-')} has no place here")
    with options.connection() as connection:
        event = _the_one(connection, lane, wanted.event_id, wanted.app)
        what = f"event {event.event_id} of {lane.name} ({event.event_type}, app {event.app_code or 'none'})"
        if dry_run:
            text = f"{what} is {event.status}" + (" and would be killed" if event.status in desk.UNPUBLISHED else "")
            return _killed(lane, event, desk.Killed(False, event.status), wants_json, text, EXIT_DONE)
        if event.status in desk.UNPUBLISHED:
            agree(f"Make {what} a dead letter now?", yes)
        result = desk.kill(connection, lane, event, who())
    if not result.done:
        text = f"{what} is {result.before} already: nothing was changed"
        return _killed(lane, event, result, wants_json, text, EXIT_FAILED)
    busy = f"; {result.worker_id} was publishing it, which may still arrive" if result.worker_id else ""
    return _killed(lane, event, result, wants_json, f"{what} is a dead letter now{busy}", EXIT_DONE)


def _the_one(connection: Connection, lane: Lane, event_id: str, app: str | None) -> desk.Found:
    found = desk.find(connection, lane, event_id, app)
    if not found:
        raise OutboxdError(f"there is no event {event_id} in {lane.name}" + (f" with app code {app!r}" if app else ""))
    if len(found) > 1:
        apps = ", ".join(event.app_code or "''" for event in found)
        raise click.UsageError(
            f"{len(found)} events of {lane.name} have the id {event_id}: say --app with one of {apps}"
        )
    return found[0]


def _killed(lane: Lane, event: desk.Found, result: desk.Killed, wants_json: bool, text: str, status: int) -> int:
    if wants_json:
        show.as_json({"lane": lane.name, "event_id": event.event_id, "app_code": event.app_code, "id": event.id,
                      "killed": result.done, "before": result.before, "worker_id": result.worker_id})  # fmt: skip
    else:
        show.line(text)
    return status


# what is told before and after


def _nothing(connection: Connection, lane: Lane, chosen: DeadFilter, wants_json: bool, dry_run: bool) -> int:
    """No dead letter: for one event that is a failure, and where it is instead is told."""
    text = f"no dead letter in {lane.name} matches"
    if chosen.event_id is not None:
        states = [event.status for event in desk.find(connection, lane, chosen.event_id, chosen.app)]
        there = f"event {chosen.event_id} is {', '.join(states)}" if states else f"there is no event {chosen.event_id}"
        text += f": {there}"
    _report(lane, Matches(0, False, []), 0, wants_json, text)
    return EXIT_DONE if chosen.event_id is None else EXIT_FAILED


def _ambiguity(newest: Iterable[desk.Found], chosen: DeadFilter) -> list[str]:
    """One id may be several events, one per tenant."""
    apps = [event.app_code or "''" for event in newest]
    if chosen.event_id is None or len(apps) < 2:
        return []
    return [f"{len(apps)} events have the id {chosen.event_id}, of the app codes {', '.join(apps)}; --app chooses one"]


def _who_is_asked(newest: list[desk.Found], publishers: dict[str, PublisherSettings], to_all: bool, count: int) -> str:
    """Which publishers a replay will ask, and who is left out."""
    asked: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for event in newest:
        accepted = [] if to_all else event.published_to.split(",")
        for name in wanted_by(event.event_type, publishers):
            (left_out if name in accepted else asked)[name] += 1
    parts = [f"{name} ({number:,})" for name, number in asked.items()]
    text = f"asked will be: {', '.join(parts) or 'nobody'}"
    if left_out:
        parts = [f"{name} ({number:,})" for name, number in left_out.items()]
        text += f"; not asked again, since they accepted: {', '.join(parts)}"
    return text + (f" (of the newest {len(newest):,})" if count > len(newest) else "")


def _announce(lines: Iterable[str], wants_json: bool) -> None:
    for line in lines:
        click.echo(line, err=wants_json)


def _report(lane: Lane, found: Matches, done: int, wants_json: bool, text: str) -> int:
    if wants_json:
        more = {"matched": found.count, "matched_is_lower_bound": found.is_more}
        show.as_json({"lane": lane.name, **more, "done": done})
    else:
        show.line(text)
    return EXIT_DONE


# doing it


def _counting(chunks: Iterable[int], what: str, wants_json: bool) -> int:
    """Work through all chunks; how many that were. Interrupted, it says how far it came."""
    done = 0
    try:
        for count in chunks:
            done += count
    except BaseException:
        click.echo(f"stopped: {done:,} {what}", err=True)
        raise
    return done


def _paced(chunks: Iterator[int], rate: float | None, found: Matches, connection: Connection) -> Iterator[int]:
    """The chunks, so many rows a second; the session is kept alive in between."""
    start_s, done = time.monotonic(), 0
    for count in chunks:
        done += count
        yield count
        if rate is None or (done >= found.count and not found.is_more):
            continue
        until_s = start_s + done / rate
        while (wait_s := until_s - time.monotonic()) > 0:
            time.sleep(min(wait_s, PING_S))
            connection.ping()
