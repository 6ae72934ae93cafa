"""`outboxd run`: the daemon."""

import errno
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import click

from outboxd import log
from outboxd.admin.ending import end_when_told
from outboxd.admin.sockets import Listeners, bound
from outboxd.cli.bridge import bridge_roles
from outboxd.cli.folder import metrics_folder
from outboxd.cli.jobs_role import jobs_roles
from outboxd.cli.preflight import SIGNALS, preflight
from outboxd.cli.reload import load_plan
from outboxd.cli.shared import EXIT_DONE, Command, Options
from outboxd.config.schema import Config, Lane
from outboxd.errors import OutboxdError
from outboxd.publishers import open_publisher
from outboxd.relay.routes import open_fanout
from outboxd.relay.worker import run_worker
from outboxd.store import open_store
from outboxd.supervisor.loop import supervise
from outboxd.supervisor.reload import Plan
from outboxd.supervisor.signals import STOPS
from outboxd.supervisor.spawn import ChildContext, Role

ADMIN = "admin"
DRAIN_MARGIN_S = 2.0
HEARTBEAT_MARGIN_S = 10.0

_NO_ROOM = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What the system says when a limit is reached: processes, open files, memory."""


def run_daemon(
    config: Config, lanes: list[Lane], until_empty: bool, read_again: Callable[[], Config] | None = None
) -> int:
    """Supervise the lanes' workers; the exit status. Raises OutboxdError for what a person must put right first.

    read_again: the configuration as it is now, for a reload. Without it, and with until_empty, SIGHUP is as SIGTERM.
    """
    log.configure(config.log.level, config.log.format, config.node_id)
    for warning in config.warnings:
        log.warning(log.CONFIG_WARNING, message=warning)
    # Blocked until the supervisor has its handlers, so that a signal in between waits; and again when everything has
    # ended, up to the end of the process, so that one that comes late does not take the place of the exit status.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        return _run(config, lanes, until_empty, read_again)
    except BaseException:  # telling it may have to wait for a reader, and that can then be ended
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise


def _run(config: Config, lanes: list[Lane], until_empty: bool, read_again: Callable[[], Config] | None) -> int:
    try:
        found = preflight(config, lanes)
        if found.stopped:
            return EXIT_DONE
        if found.refusal:
            raise OutboxdError(found.refusal)
        if until_empty:
            return supervise(plan_of(config, lanes, until_empty=True), config.node_id, until_done=True)
        with bound(config.admin, give_up=_is_stopped) as listeners, metrics_folder(config) as folder:
            make_plan = partial(plan_of, listeners=listeners, folder=folder)
            load = None if read_again is None else partial(load_plan, config, read_again, make_plan)
            return supervise(
                make_plan(config, lanes),
                config.node_id,
                load=load,
                forget=lambda role: listeners.keep_for_serving() if role.name == ADMIN else listeners.close(),
            )
    except OutboxdError:
        if _take_stop():
            return EXIT_DONE
        raise
    except OSError as refusal:
        if refusal.errno not in _NO_ROOM:
            raise
        limits = "the limits of open files (ulimit -n, LimitNOFILE=), processes (ulimit -u, TasksMax=) and memory"
        raise OutboxdError(f"the system grants no more: {refusal.strerror}; look at {limits}") from refusal


def _is_stopped() -> bool:
    """Has a signal asked us to end, and waits for the supervisor?"""
    return bool(signal.sigpending() & set(STOPS))


def _take_stop() -> bool:
    """The same; and it waits no more, since it would kill us once it is let through."""
    was_asked = False
    while signal.sigtimedwait(STOPS, 0) is not None:
        was_asked = True
    return was_asked


def plan_of(
    config: Config,
    lanes: list[Lane],
    listeners: Listeners | None = None,
    folder: str | None = None,
    until_empty: bool = False,
) -> Plan:
    """What the supervisor is to run. listeners: what the admin role serves; None: there is no such role. folder: for
    the metrics.
    """
    roles = relay_roles(config, lanes, folder, until_empty)
    if not until_empty:
        roles += jobs_roles(config, folder)
        roles += bridge_roles(config)
    if listeners is not None:
        roles.append(_admin(config, lanes, listeners, folder))
    drain_limit_s = max(lane.publish_timeout_s for lane in lanes) + DRAIN_MARGIN_S
    return Plan(roles, config.supervisor, drain_limit_s)


def _admin(config: Config, lanes: list[Lane], listeners: Listeners, folder: str | None) -> Role:
    def run(context: ChildContext) -> int:
        end_when_told(context.stop.fileno())
        from outboxd.admin.role import run_admin

        return run_admin(context, config, lanes, listeners, folder)

    return Role(ADMIN, run, config.database.statement_timeout_s + HEARTBEAT_MARGIN_S, is_last=True)


def relay_roles(config: Config, lanes: list[Lane], folder: str | None = None, until_empty: bool = False) -> list[Role]:
    """The relay workers of the lanes."""
    return [
        _role(config, lane, number, folder, until_empty) for lane in lanes for number in range(1, lane.concurrency + 1)
    ]


def _role(config: Config, lane: Lane, number: int, folder: str | None, until_empty: bool) -> Role:
    publishers = [config.publishers[name] for name in lane.publishers]

    def run(context: ChildContext) -> int:
        return run_worker(
            context,
            lane,
            lambda: open_store(config.database, lane, lambda: context.slot.beat(time.monotonic())),
            lambda: open_fanout(lane, publishers, open_publisher),
            until_empty,
            folder,
            None if until_empty else config.redis.url,
        )

    database = config.database
    longest_s = max(lane.publish_timeout_s, database.statement_timeout_s, database.connect_timeout_s)
    return Role(f"{lane.name}-{number:02d}", run, longest_s + HEARTBEAT_MARGIN_S)


@click.command(cls=Command)
@click.option("--until-empty", is_flag=True, help="End when every event is delivered or a dead letter.")
@click.pass_obj
def run(options: Options, until_empty: bool = False) -> int:
    """Run the daemon: relay every enabled lane until SIGTERM or SIGINT. SIGHUP: go over to the file as it is now.

    With --until-empty it ends by itself; events that a producer delayed and that are not due yet are not waited for.
    """
    # A copy has read nothing yet.
    return run_daemon(options.config, options.enabled_lanes, until_empty, lambda: replace(options).config)
