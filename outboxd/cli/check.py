"""`outboxd check`: is everything there that the daemon needs? One line each."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import click

from outboxd import publishers
from outboxd.admin.access import is_closed
from outboxd.cli import bridge, check_admin, check_jobs, job_handlers, ring, show
from outboxd.cli.shared import EXIT_DONE, EXIT_FAILED, Command, Options, in_words
from outboxd.config.schema import Config, Lane
from outboxd.errors import OutboxdError, StoreConflict, StoreRefused, StoreUnavailable
from outboxd.store import statements
from outboxd.store.connection import Connection
from outboxd.store.migrate import verify
from outboxd.store.migrations import PARTITION_TABLE

CHECK_S = 5.0
OK, FAILED, WARNING = "ok", "failed", "warning"

NO_CHANGE = "UPDATE {table} SET lock_until_ms = lock_until_ms WHERE id = 0"
"""Primary key. No row has it; where nothing may be written it is refused all the same."""
KEEP_NONE = f"UPDATE {PARTITION_TABLE} SET lock_until_ms = lock_until_ms WHERE lane = '' AND number = 0"
"""The same for what an ordered lane writes beside its events."""
NO_DELETE = "DELETE FROM {table} WHERE id = 0"
"""The same for a lane that throws events away."""
NO_ROUND = "UPDATE outboxd_lane SET last_cleanup_ms = last_cleanup_ms WHERE lane = ''"
"""The same for one that is cleaned up."""
_READ_ONLY = re.compile(r"\((1290|1792|1836)\)$")


class Line(NamedTuple):
    """What was looked at, and what was found."""

    result: str
    item: str
    text: str


@click.command(cls=Command)
@click.pass_obj
def check(options: Options) -> int:
    """Check configuration, database, tables, publishers, admin role, one line each; exit 0 if all are well, else 1.

    Nothing is changed and no event is sent. A write that changes nothing is tried on each table, and rolled back. Each
    publisher is connected to, and asked for what it can tell without an event.
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
    if config.jobs.enabled:  # before publishers are asked, whose libraries start threads: it forks
        yield _tried("jobs.handlers", partial(job_handlers.look, config.jobs))
    if config.jobs.enabled and config.redis.url is not None:
        yield _tried("jobs locks", partial(check_jobs.try_to_lock, config))
    used = dict.fromkeys(name for lane in lanes for name in lane.publishers)
    for name in used:
        timeout_s = max(lane.publish_timeout_s for lane in lanes if name in lane.publishers)
        yield _tried(f"publisher {name}", partial(publishers.check, config.publishers[name], timeout_s))
    if config.redis.url is not None:
        yield _tried("doorbell", partial(ring.listen_at, config.redis.url, lanes))
    if config.bridge.enabled:
        name = config.bridge.publisher
        if name not in used:
            used[name] = None
            yield _tried(f"publisher {name}", partial(publishers.check, config.publishers[name], CHECK_S))
        yield _tried("bridge", partial(bridge.look, config))
    for name in sorted(config.publishers.keys() - used):
        yield Line(OK, f"publisher {name}", "not looked at: no enabled lane uses it")
    yield from _admin(config)


def _admin(config: Config) -> Iterator[Line]:
    yield _tried("admin.listen", partial(check_admin.listen, config.admin))
    if is_closed(config.admin):
        text = "other machines can reach it and no token is configured: it serves metrics and health only"
        yield Line(WARNING, "admin.listen", text)
    yield _tried("admin.socket", partial(check_admin.unix_socket, config.admin))
    yield Line(OK, "admin tokens", check_admin.tokens(config.admin))
    yield _tried("metrics", partial(check_admin.metrics, config))


def _database(options: Options, lanes: list[Lane]) -> Iterator[Line]:
    where = options.config.database.shown
    try:
        with options.connection() as connection:
            yield Line(OK, "database", f"{where} answers ({getattr(connection, 'version', connection.dialect)})")
            for lane in lanes:
                yield _tried(f"table {lane.name}", partial(_verified, connection, lane))
            yield _jobs(connection, options.config)
    except OutboxdError as error:
        yield Line(FAILED, "database", str(error))


def _jobs(connection: Connection, config: Config) -> Line:
    """Where this node runs no job, what is missing is a warning."""
    runs_here = config.jobs.enabled
    try:
        text, problems = check_jobs.look(connection)
        if runs_here:
            check_jobs.try_to_run(connection, config.lanes.values())
    except OutboxdError as error:
        return Line(FAILED if runs_here else WARNING, "jobs", str(error))
    text += "" if runs_here else ", none on this node (jobs.enabled)"
    return Line(WARNING, "jobs", f"{text}; {problems}") if problems else Line(OK, "jobs", text)


def _verified(connection: Connection, lane: Lane) -> str:
    verify(connection, lane)
    try:
        _try_to_write(connection, lane)
    except StoreConflict as error:
        raise StoreConflict(in_words(error)) from error
    except StoreUnavailable as error:
        is_read_only = _READ_ONLY.search(str(error)) is not None
        advice = "; point database.url at the server that takes writes" if is_read_only else ""
        raise StoreUnavailable(f"cannot be written: {error}{advice}") from error
    except StoreRefused as error:
        raise StoreRefused(f"cannot be written: {error}") from error
    return "is there, up to date, and can be written"


def _try_to_write(connection: Connection, lane: Lane) -> None:
    connection.begin()
    try:
        connection.execute(statements.render(NO_CHANGE, connection.dialect, lane.name, lane.columns))
        if lane.is_ordered:
            connection.execute(KEEP_NONE)
        if lane.discards_stale or lane.cleans_up:
            connection.execute(statements.render(NO_DELETE, connection.dialect, lane.name, lane.columns))
        if lane.cleans_up:
            connection.execute(NO_ROUND)
    finally:
        connection.rollback()


def _tried(item: str, look: Callable[[], str]) -> Line:
    try:
        return Line(OK, item, look())
    except OutboxdError as error:
        return Line(FAILED, item, str(error))
