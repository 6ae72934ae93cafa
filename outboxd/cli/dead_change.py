"""`outboxd dead replay`, `purge`, `kill`: what a person decides about events that were, or are to be, given up."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import click

from outboxd.cli import show, words
from outboxd.cli.dead_filter import Wanted, filters, one_name
from outboxd.cli.pause import who
from outboxd.cli.shared import EXIT_DONE, EXIT_FAILED, Command, Options, agree, lane_option
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

    chosen: DeadFilter
    count: int
    is_more: bool
    newest: list[desk.Found]

    def __str__(self) -> str:
        return ("more than " if self.is_more else "") + words.counted(self.count, "dead letter")


def _look(options: Options, lane: Lane, wanted: Wanted) -> Matches:
    """What stands there now. The session ends here: nobody knows how long a person takes to answer."""
    with options.connection() as connection:
        chosen = wanted.filter(connection, lane, dead_by_now=True)
        count, is_more = dead_count(connection, lane, chosen)
        return Matches(chosen, count, is_more, dead_list(connection, lane, chosen, LOOKED_AT))


@click.command(cls=Command)
@_changing
@click.option("--rate", callback=words.read_rate, metavar="N", help="So many a second, 0.001 to 1,000,000.")
@click.option("--to", type=click.Choice(["all"]), help="`all`: ask also the publishers that accepted it before.")
@click.pass_obj
def replay(
    options: Options, wanted: Wanted, dry_run: bool, yes: bool, wants_json: bool, rate: float | None, to: str | None
) -> int:
    """Make dead letters pending again: same event_id, attempts start anew. More than one asks first.

    Publishers that accepted an event are not asked again, unless --to all says so; those that refused it are.
    """
    lane, to_all = options.lane(wanted.lane), to == "all"
    found = _look(options, lane, wanted)
    if not found.count:
        return _nothing(options, lane, found, wants_json)
    publishers = {name: options.config.publishers[name] for name in lane.direct}
    _announce([*_ambiguity(found), _who_is_asked(found, publishers, to_all)], wants_json)
    if dry_run:
        return _report(lane, found, 0, wants_json, f"{found} of {lane.name} would be published again")
    if found.count > 1 or found.is_more:
        agree(f"Publish {found} of {lane.name} again?", yes)
    batch = BATCH if rate is None else max(1, min(BATCH, int(rate)))
    with options.connection() as connection:
        chunks = replay_rows(connection, lane, found.chosen, to_all=to_all, batch=batch)
        done = _counting(_paced(chunks, rate, found, connection), f"of {found} pending again")
    return _report(lane, found, done, wants_json, f"{words.counted(done, 'dead letter')} of {lane.name} pending again")


@click.command(cls=Command)
@_changing
@click.pass_obj
def purge(options: Options, wanted: Wanted, dry_run: bool, yes: bool, wants_json: bool) -> int:
    """Delete dead letters for good. Always asks first."""
    lane = options.lane(wanted.lane)
    found = _look(options, lane, wanted)
    if not found.count:
        return _nothing(options, lane, found, wants_json)
    _announce(_ambiguity(found), wants_json)
    if dry_run:
        return _report(lane, found, 0, wants_json, f"{found} of {lane.name} would be deleted for good")
    agree(f"Delete {found} of {lane.name} for good?", yes)
    with options.connection() as connection:
        done = _counting(purge_rows(connection, lane, found.chosen, batch=BATCH), f"of {found} deleted")
    return _report(lane, found, done, wants_json, f"{words.counted(done, 'dead letter')} of {lane.name} deleted")


@click.command(cls=Command)
@click.argument("event", metavar="[EVENT_ID]", required=False)
@lane_option
@click.option("--event-id", metavar="ID", help="The same as EVENT_ID.")
@click.option("--app", metavar="APP", help="The tenant, where several have that id.")
@_DRY
@_YES
@_JSON
@click.pass_obj
def kill(
    options: Options,
    event: str | None,
    lane_name: str | None,
    event_id: str | None,
    app: str | None,
    dry_run: bool,
    yes: bool,
    wants_json: bool,
) -> int:
    """Make one event that is not published yet a dead letter now. Always asks first.

    If a worker is publishing it at this moment, it may still arrive; whatever comes of that, it stays a dead letter.
    """
    lane, name = options.lane(lane_name), one_name(event, event_id)
    if name is None:
        raise click.UsageError("name the event: outboxd dead kill EVENT_ID")
    with options.connection() as connection:
        found = _the_one(connection, lane, name, app)
    what = f"event {found.event_id} of {lane.name} ({found.event_type}, app {found.app_code or 'none'})"
    if dry_run:
        text = f"{what} is {found.status}" + (" and would be killed" if found.status in desk.UNPUBLISHED else "")
        return _killed(lane, found, desk.Killed(False, found.status), wants_json, text, EXIT_DONE)
    if found.status in desk.UNPUBLISHED:
        agree(f"Make {what} a dead letter now?", yes)
    with options.connection() as connection:
        result = desk.kill(connection, lane, found, who())
    if not result.done:
        text = f"{what} is {result.before} already: nothing was changed"
        return _killed(lane, found, result, wants_json, text, EXIT_FAILED)
    busy = f"; {result.worker_id} was publishing it, which may still arrive" if result.worker_id else ""
    return _killed(lane, found, result, wants_json, f"{what} is a dead letter now{busy}", EXIT_DONE)


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


def _nothing(options: Options, lane: Lane, found: Matches, wants_json: bool) -> int:
    """No dead letter: for one event that is a failure, and where it is instead is told."""
    text, event_id = f"no dead letter in {lane.name} matches", found.chosen.event_id
    if event_id is not None:
        with options.connection() as connection:
            states = [event.status for event in desk.find(connection, lane, event_id, found.chosen.app)]
        text += f": event {event_id} is {', '.join(states)}" if states else f": there is no event {event_id}"
    _report(lane, found, 0, wants_json, text)
    return EXIT_DONE if event_id is None else EXIT_FAILED


def _ambiguity(found: Matches) -> list[str]:
    """One id may be several events, one per tenant."""
    apps = [event.app_code or "''" for event in found.newest]
    if found.chosen.event_id is None or len(apps) < 2:
        return []
    name = found.chosen.event_id
    return [f"{len(apps)} events have the id {name}, of the app codes {', '.join(apps)}; --app chooses one"]


def _who_is_asked(found: Matches, publishers: dict[str, PublisherSettings], to_all: bool) -> str:
    """Which publishers a replay will ask, and who is left out."""
    asked: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for event in found.newest:
        accepted = [] if to_all else event.published_to.split(",")
        for name in wanted_by(event.event_type, publishers):
            (left_out if name in accepted else asked)[name] += 1
    text = f"asked will be: {_listed(asked) or 'nobody'}"
    text += f"; not asked again, since they accepted: {_listed(left_out)}" if left_out else ""
    return text + (f" (of the newest {len(found.newest):,})" if found.count > len(found.newest) else "")


def _listed(numbers: Counter[str]) -> str:
    return ", ".join(f"{name} ({number:,})" for name, number in numbers.items())


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


def _counting(chunks: Iterable[int], what: str) -> int:
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
