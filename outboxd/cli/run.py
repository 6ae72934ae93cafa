"""`outboxd run`: the daemon."""

import click

from outboxd import log
from outboxd.cli.shared import Options
from outboxd.config.schema import Config, Lane
from outboxd.errors import StoreUnavailable
from outboxd.publishers import open_publisher
from outboxd.relay.routes import open_fanout
from outboxd.relay.worker import run_worker
from outboxd.store import connect, open_store
from outboxd.store.migrate import create_missing
from outboxd.supervisor.loop import supervise
from outboxd.supervisor.spawn import ChildContext, Role

DRAIN_MARGIN_S = 2.0
HEARTBEAT_MARGIN_S = 10.0


def run_daemon(config: Config, until_empty: bool) -> int:
    """Supervise the workers of every enabled lane; the exit status."""
    log.configure(config.log.level, config.log.format, config.node_id)
    for warning in config.warnings:
        log.warning(log.CONFIG_WARNING, message=warning)
    lanes = [lane for lane in config.lanes.values() if lane.enabled]
    prepare(config, lanes)
    roles = [role_of(config, lane, number, until_empty) for lane in lanes for number in range(1, lane.concurrency + 1)]
    drain_limit_s = max(lane.publish_timeout_s for lane in lanes) + DRAIN_MARGIN_S
    return supervise(roles, config.supervisor, drain_limit_s, config.node_id, until_done=until_empty)


def prepare(config: Config, lanes: list[Lane]) -> None:
    """Create what is missing on the embedded database; MySQL is left alone."""
    if config.database.scheme != "sqlite":
        return
    try:
        connection = connect(config.database)
    except StoreUnavailable:  # locked or full just now: the workers wait for it, and say so
        return
    try:
        create_missing(connection, lanes)
    finally:
        connection.close()


def role_of(config: Config, lane: Lane, number: int, until_empty: bool) -> Role:
    """One relay worker."""
    publishers = [config.publishers[name] for name in lane.direct]

    def run(context: ChildContext) -> int:
        return run_worker(
            context,
            lane,
            lambda: open_store(config.database, lane),
            lambda: open_fanout(lane, publishers, open_publisher),
            until_empty,
        )

    limit_s = max(lane.publish_timeout_s, config.database.statement_timeout_s) + HEARTBEAT_MARGIN_S
    return Role(f"{lane.name}-{number:02d}", run, limit_s)


@click.command()
@click.option("--until-empty", is_flag=True, help="End when every event is delivered or a dead letter.")
@click.pass_obj
def run(options: Options, until_empty: bool = False) -> int:
    """Run the daemon: relay every enabled lane until SIGTERM or SIGINT.

    With --until-empty it ends by itself; events that a producer delayed and that are not due yet are not waited for.
    """
    return run_daemon(options.config, until_empty)
