"""`outboxd dead replay`, `purge`, `skip`, `kill`: what a person decides about events that were given up, or will be."""

import time
from collections.abc import Callable, Iterable, Iterator

import click

from outboxd.cli import show, values
from outboxd.cli.dead_filter import filters, one_name
from outboxd.cli.pause import who
from outboxd.cli.shared import EXIT_DONE, EXIT_FAILED, Command, Options, agree, lane_option
from outboxd.config.schema import Lane
from outboxd.explain import dead
from outboxd.explain.dead import BATCH, PURGE, REPLAY, SKIP, Deed, Matches, Wanted
from outboxd.explain.search import publishers_of
from outboxd.store import desk
from outboxd.store.connection import Connection
from outboxd.store.desk_dead import purge as purge_rows
from outboxd.store.desk_dead import replay as replay_rows
from outboxd.store.desk_dead import skip as skip_rows

PING_S = 10.0

_DRY = click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
_YES = click.option("--yes", is_flag=True, help="Do not ask.")
_JSON = click.option("--json", "wants_json", is_flag=True, help="Print the result as JSON.")


def _changing(command: Callable[..., int]) -> Callable[..., int]:
    """The options of every command that changes dead letters."""
    return filters(_DRY(_YES(_JSON(command))))


def _look(options: Options, lane: Lane, wanted: Wanted, deed: Deed) -> Matches:
    """What stands there now. The session ends here: nobody knows how long a person takes to answer."""
    with options.connection() as connection:
        return dead.look(connection, lane, wanted, deed)


@click.command(cls=Command)
@_changing
@click.option("--rate", callback=values.read_rate, metavar="N", help="So many a second, 0.001 to 1,000,000.")
@click.option("--to", type=click.Choice(["all"]), help="`all`: ask also the publishers that accepted it before.")
@click.pass_obj
def replay(
    options: Options, wanted: Wanted, dry_run: bool, yes: bool, wants_json: bool, rate: float | None, to: str | None
) -> int:
    """Make dead letters pending again: same event_id, attempts start anew. More than one asks first.

    Publishers that accepted an event are not asked again, unless --to all says so; those that refused it are.
    """
    lane, to_all = options.lane(wanted.lane), to == "all"
    found = _look(options, lane, wanted, REPLAY)
    if not found.count:
        return _nothing(options, lane, found, wants_json)
    _announce(dead.notes(found, publishers_of(options.config, lane), to_all), wants_json)
    if dry_run:
        return _report(lane, found, 0, wants_json, dead.would(REPLAY, found, lane))
    if found.count > 1 or found.is_more:
        agree(f"Publish {found} of {lane.name} again?", yes)
    batch = BATCH if rate is None else max(1, min(BATCH, int(rate)))
    with options.connection() as connection:
        chunks = replay_rows(connection, lane, found.chosen, to_all=to_all, batch=batch)
        done = _counting(_paced(chunks, rate, found, connection), f"of {found} pending again")
    return _report(lane, found, done, wants_json, dead.did(REPLAY, done, lane))


@click.command(cls=Command)
@_changing
@click.pass_obj
def purge(options: Options, wanted: Wanted, dry_run: bool, yes: bool, wants_json: bool) -> int:
    """Delete dead letters for good. Always asks first."""
    lane = options.lane(wanted.lane)
    found = _look(options, lane, wanted, PURGE)
    if not found.count:
        return _nothing(options, lane, found, wants_json)
    _announce(dead.notes(found, None), wants_json)
    if dry_run:
        return _report(lane, found, 0, wants_json, dead.would(PURGE, found, lane))
    agree(f"Delete {found} of {lane.name} for good?", yes)
    with options.connection() as connection:
        done = _counting(purge_rows(connection, lane, found.chosen, batch=BATCH), f"of {found} deleted")
    return _report(lane, found, done, wants_json, dead.did(PURGE, done, lane))


@click.command(cls=Command)
@_changing
@click.pass_obj
def skip(options: Options, wanted: Wanted, dry_run: bool, yes: bool, wants_json: bool) -> int:
    """Let rooms go on behind dead letters that block them (on_dead: block). More than one asks first.

    The dead letters stay, marked as skipped. One that is replayed later is published behind what went on without it.
    """
    lane = options.lane(wanted.lane)
    dead.check_blocks(lane)
    found = _look(options, lane, wanted, SKIP)
    if not found.count:
        return _nothing(options, lane, found, wants_json)
    _announce(dead.notes(found, None), wants_json)
    if dry_run:
        return _report(lane, found, 0, wants_json, dead.would(SKIP, found, lane))
    if found.count > 1 or found.is_more:
        agree(f"Let the rooms of {found} of {lane.name} go on without them?", yes)
    with options.connection() as connection:
        done = _counting(skip_rows(connection, lane, found.chosen, batch=BATCH), f"of {found} skipped")
    return _report(lane, found, done, wants_json, dead.did(SKIP, done, lane))


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
        try:
            found = dead.the_one(connection, lane, name, app)
        except dead.Ambiguous as error:
            raise click.UsageError(str(error)) from None
    if dry_run:
        return _killed(lane, found, desk.Killed(False, found.status), wants_json, dead.would_kill(lane, found))
    if found.status in desk.UNPUBLISHED:
        agree(f"Make {dead.named(lane, found)} a dead letter now?", yes)
    with options.connection() as connection:
        result = desk.kill(connection, lane, found, who())
    _killed(lane, found, result, wants_json, dead.killed(lane, found, result))
    return EXIT_DONE if result.done else EXIT_FAILED


def _killed(lane: Lane, event: desk.Found, result: desk.Killed, wants_json: bool, text: str) -> int:
    if wants_json:
        show.as_json(dead.killed_document(lane, event, result))
    else:
        show.line(text)
    return EXIT_DONE


# what is told before and after


def _nothing(options: Options, lane: Lane, found: Matches, wants_json: bool) -> int:
    """No dead letter: for one event that is a failure, unless that was done before."""
    with options.connection() as connection:
        again = dead.skipped_before(connection, lane, found)
        text = again or dead.nothing(connection, lane, found)
    _report(lane, found, 0, wants_json, text)
    return EXIT_DONE if again or found.chosen.event_id is None else EXIT_FAILED


def _announce(lines: Iterable[str], wants_json: bool) -> None:
    for line in lines:
        click.echo(line, err=wants_json)


def _report(lane: Lane, found: Matches, done: int, wants_json: bool, text: str) -> int:
    if wants_json:
        show.as_json(dead.changed(lane, found, done))
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
