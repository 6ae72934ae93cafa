"""`outboxd prune`: old delivered rows are deleted by hand; every day the job OutboxClean does it (`retention`)."""

import time
from collections.abc import Callable

import click

from outboxd.cli import show, values
from outboxd.cli.shared import EXIT_DONE, Command, Options, agree
from outboxd.config.schema import Lane
from outboxd.explain.words import lasting
from outboxd.store.prune import Prunable, Pruned, count_prunable
from outboxd.store.prune import prune as prune_rows

TELL_EVERY_S = 5.0


@click.command(cls=Command)
@click.argument("lane_name", metavar="LANE")
@click.option(
    "--older-than", "older_than_ms", callback=values.read_age, metavar="DURATION",
    help="Delivered so long ago, e.g. 7d. Default: the lane's retention.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be deleted; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "wants_json", is_flag=True, help="Print the result as JSON.")
@click.pass_obj
def prune(
    options: Options, lane_name: str, older_than_ms: int | None, dry_run: bool, yes: bool, wants_json: bool
) -> int:
    """Delete rows that were delivered long ago. Always asks first. Dead letters, and what waits, stay.

    In small transactions with pauses between: producers wait for nothing. It may be stopped and run again.
    """
    lane = options.lane(lane_name)
    older_than_s = lane.retention_s if older_than_ms is None else older_than_ms / 1000
    if older_than_s <= 0:
        raise click.UsageError(
            f"{lane.name} has no retention, so nothing says what is old: give --older-than, e.g. --older-than 7d, "
            f"or set lanes.{lane.name}.retention"
        )
    with options.connection() as connection:
        found = count_prunable(connection, lane, older_than_s)
    what = f"{_shown(found)} of {lane.name} delivered more than {lasting(older_than_s * 1000)} ago"
    if dry_run or not found.count:
        return _report(lane, found, Pruned(0, not found.count), wants_json, f"would delete {what}")
    agree(f"Delete {what} for good?", yes)
    with options.connection() as connection:
        pruned = prune_rows(connection, lane, older_than_s, tell=_telling(found, wants_json))
    return _report(lane, found, pruned, wants_json, f"deleted {pruned.deleted:,} rows of {lane.name}")


def _shown(found: Prunable) -> str:
    return f"{found.count:,}{' rows or more' if found.is_more else ' row' if found.count == 1 else ' rows'}"


def _telling(found: Prunable, wants_json: bool) -> Callable[[int], None]:
    """Progress on standard error, now and then."""
    told_s = time.monotonic()

    def tell(deleted: int) -> None:
        nonlocal told_s
        if not wants_json and time.monotonic() - told_s >= TELL_EVERY_S:
            told_s = time.monotonic()
            click.echo(f"{deleted:,} of {_shown(found)} deleted", err=True)

    return tell


def _report(lane: Lane, found: Prunable, pruned: Pruned, wants_json: bool, text: str) -> int:
    if wants_json:
        show.as_json(
            {
                "lane": lane.name, "found": found.count, "is_more": found.is_more, "deleted": pruned.deleted,
                "is_complete": pruned.is_complete,
            }
        )  # fmt: skip
    else:
        show.line(text)
    return EXIT_DONE
