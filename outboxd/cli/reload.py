"""SIGHUP: the configuration read again, compared with the one that runs, made into what the supervisor goes over to.

Everything here but the check runs in the supervisor: no client library, no thread, no waiting.
"""

import dataclasses
import os
import signal
import threading
from collections.abc import Callable

from outboxd import log
from outboxd.cli.preflight import MARGIN_S, limit_s, refusals
from outboxd.config.schema import Config, Lane
from outboxd.errors import ConfigError
from outboxd.redact import clip, redact
from outboxd.supervisor.reload import EXIT_REFUSED, Plan
from outboxd.supervisor.spawn import ChildContext, Role
from outboxd.vitals import EXIT_OK, State

NEEDS_RESTART = ("node_id", "database", "admin", "metrics_dir")
"""Sections and keys that cannot change while the daemon runs."""

LONGEST_ERROR = 1000


def load_plan(running: Config, read: Callable[[], Config], plan_of: Callable[[Config, list[Lane]], Plan]) -> Plan:
    """What to go over to. read: the configuration as it is now. Raises ConfigError with all that is in the way."""
    config = read()
    lanes = [lane for lane in config.lanes.values() if lane.enabled]
    problems = [
        f"{name}: changed, which needs a restart; put the old value back, or restart outboxd"
        for name in NEEDS_RESTART
        if getattr(config, name) != getattr(running, name)
    ]
    if not lanes:
        problems.append("lanes: none is enabled, so there is nothing to do: enable one")
    if problems:
        raise ConfigError(problems)

    def accept() -> None:
        log.change(config.log.level, config.log.format)
        for warning in config.warnings:
            log.warning(log.CONFIG_WARNING, message=warning)

    return dataclasses.replace(plan_of(config, lanes), check=_check(config, lanes), accept=accept)


def _check(config: Config, lanes: list[Lane]) -> Role:
    """The daemon's look at database, tables and publishers before its start, as a child of the supervisor."""

    def run(context: ChildContext) -> int:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing here is worth finishing
        if context.stop.requested:
            return EXIT_OK
        context.slot.set_state(State.RUNNING)
        giving_up = threading.Timer(limit_s(config), os._exit, args=(EXIT_OK,))  # as at the start: it refuses nothing
        giving_up.daemon = True
        giving_up.start()
        found = list(refusals(config, lanes))
        for refusal in found:
            log.error(log.RELOAD_REFUSED, error=clip(redact(refusal), LONGEST_ERROR))
        return EXIT_REFUSED if found else EXIT_OK

    return Role("reload-check", run, limit_s(config) + MARGIN_S, is_errand=True)
