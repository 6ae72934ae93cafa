"""`outboxd check`: is everything there that the daemon needs? One line each."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import click

from outboxd import publishers
from outboxd.cli import show
from outboxd.cli.shared import EXIT_DONE, EXIT_FAILED, Command, Options
from outboxd.config.schema import Lane
from outboxd.errors import OutboxdError
from outboxd.store.connection import Connection
from outboxd.store.migrate import verify

OK, FAILED, WARNING = "ok", "failed", "warning"


class Line(NamedTuple):
    """What was looked at, and what was found."""

    result: str
    item: str
    text: str


@click.command(cls=Command)
@click.pass_obj
def check(options: Options) -> int:
    """Check configuration, database, tables and publishers, one line each; exit 0 if all are well, else 1.

    Nothing is changed and no event is sent. An HTTP publisher is connected to, without a request.
    """
    lines = []
    for line in _lines(options):
        show.line(f"{line.result:7}  {line.item:22}  {line.text}")
        lines.append(line)
    return EXIT_FAILED if any(line.result == FAILED for line in lines) else EXIT_DONE


def _lines(options: Options) -> Iterator[Line]:
    config = options.config
    lanes = [lane for lane in config.lanes.values() if lane.enabled]
    yield Line(OK, "configuration", f"node {config.node_id}, lanes {', '.join(lane.name for lane in lanes) or 'none'}")
    for warning in config.warnings:
        yield Line(WARNING, "configuration", warning)
    yield from _database(options, lanes)
    used = dict.fromkeys(name for lane in lanes for name in lane.direct)
    for name in used:
        timeout_s = max(lane.publish_timeout_s for lane in lanes if name in lane.direct)
        yield _tried(f"publisher {name}", partial(publishers.check, config.publishers[name], timeout_s))
    for name in sorted(config.publishers.keys() - used):
        yield Line(OK, f"publisher {name}", "not looked at: no enabled lane uses it")


def _database(options: Options, lanes: list[Lane]) -> Iterator[Line]:
    where = options.config.database.shown
    try:
        with options.connection() as connection:
            yield Line(OK, "database", f"{where} answers ({getattr(connection, 'version', connection.dialect)})")
            for lane in lanes:
                yield _tried(f"table {lane.name}", partial(_verified, connection, lane))
    except OutboxdError as error:
        yield Line(FAILED, "database", str(error))


def _verified(connection: Connection, lane: Lane) -> str:
    verify(connection, lane)
    return "is there, and up to date"


def _tried(item: str, look: Callable[[], str]) -> Line:
    try:
        return Line(OK, item, look())
    except OutboxdError as error:
        return Line(FAILED, item, str(error))
