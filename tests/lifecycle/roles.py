"""A supervisor over tiny real roles, as a program of its own: what the lifecycle tests start, signal and watch.

    python -m tests.lifecycle.roles --workers 3 --behaviour idle

One behaviour for each worker, separated by commas; the last one holds for the rest. The log on standard error is what a
test waits for.
"""

import argparse
import ctypes
import os
import random
import resource
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

from outboxd import log
from outboxd.config import schema
from outboxd.errors import ConfigError
from outboxd.supervisor.loop import supervise
from outboxd.supervisor.reload import Plan
from outboxd.supervisor.scoreboard import Scoreboard
from outboxd.supervisor.signals import SUPERVISOR_SIGNALS
from outboxd.supervisor.spawn import Role
from tests.lifecycle.behaviours import BEHAVIOURS, CHECKS

_PR_SET_CHILD_SUBREAPER = 36
_NOBODY = 65534


def totals_to_stdout(board: Scoreboard) -> None:
    """A tick: every slot's view, one line each."""
    for index in range(len(board)):
        view = board.read(index)
        os.write(1, f"{index} {view.state.name} {view.starts} {view.total('delivered')}\n".encode())  # one line, whole


def start_a_thread(_board: Scoreboard) -> None:
    """A tick that does what is forbidden: from now on no fork is safe."""
    if threading.active_count() == 1:
        threading.Thread(target=threading.Event().wait, daemon=True).start()


def no_processes(board: Scoreboard) -> None:
    """A tick: once its worker runs the system grants no further process, until two starts have been refused."""
    is_refusing = 1 <= board.read(0).starts < 4
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (0 if is_refusing else most, most))


def term_after(delay_s: float) -> None:
    """Have SIGTERM sent to this process; until the supervisor asks for signals it stays pending."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    if os.fork() == 0:
        time.sleep(delay_s)
        os.kill(os.getppid(), signal.SIGTERM)
        os._exit(0)


TICKS = {"totals": totals_to_stdout, "thread": start_a_thread, "no_processes": no_processes}


def arguments() -> argparse.ArgumentParser:
    """What the program understands."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--behaviour", default="idle")
    parser.add_argument("--last", help="the behaviour of one more role, which ends after the workers")
    parser.add_argument("--lanes", type=int, default=1, help="workers are dealt to so many lanes, one after the other")
    parser.add_argument("--drain-limit", type=float, default=5.0)
    parser.add_argument("--backoff", type=float, default=0.1)
    parser.add_argument("--startup-timeout", type=float, default=30.0)
    parser.add_argument("--heartbeat-limit", type=float)
    parser.add_argument("--settle", type=float, default=0.0)
    parser.add_argument("--check", choices=CHECKS, default="finds_nothing")
    parser.add_argument("--until-done", action="store_true")
    parser.add_argument("--subreaper", action="store_true")
    parser.add_argument("--boots", type=int, default=0)
    parser.add_argument("--tick", choices=TICKS)
    parser.add_argument("--reload", type=Path, help="on SIGHUP: a file with other arguments, or with problems")
    return parser


def plan_of(options: argparse.Namespace) -> Plan:
    """What the arguments ask for."""
    names = options.behaviour.split(",")
    lanes = ["lane", *(f"lane{number}" for number in range(2, options.lanes + 1))]
    roles = [
        Role(
            f"{lanes[i % options.lanes]}-{i // options.lanes + 1:02}",
            BEHAVIOURS[names[min(i, len(names) - 1)]],
            options.heartbeat_limit,
        )
        for i in range(options.workers)
    ]
    if options.last:
        roles.append(Role("last", BEHAVIOURS[options.last], options.heartbeat_limit, is_last=True))
    settings = schema.Supervisor(
        restart_backoff_s=options.backoff,
        restart_backoff_max_s=options.backoff * 4,
        stable_after_s=60.0,
        startup_timeout_s=options.startup_timeout,
    )
    check = Role("check", CHECKS[options.check], is_errand=True)
    accept = partial(log.info, log.CONFIG_WARNING, message="accepted")
    return Plan(roles, settings, options.drain_limit, check, accept, options.settle)


def load_again(path: Path) -> Plan:
    """What the file says now."""
    text = path.read_text(encoding="utf-8")
    if text.startswith("bug"):
        raise RuntimeError("the loader has a bug")
    if text.startswith("bad"):
        raise ConfigError(text.splitlines()[1:])
    return plan_of(arguments().parse_args(text.split()))


def main() -> int:
    """Run the supervisor as the arguments say. As in the daemon, no signal counts before it is there, or after."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SUPERVISOR_SIGNALS)
    options = arguments().parse_args()
    log.configure("debug", "json", "test")
    if options.subreaper:  # what PID 1 of a container is for everyone in it
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)
    if options.tick == "no_processes" and os.getuid() == 0:  # whom no limit holds
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    plan = plan_of(options)
    tick = TICKS[options.tick] if options.tick else None
    load = partial(load_again, options.reload) if options.reload and not options.until_done else None
    for delay_s in (random.uniform(0, 0.006) for _ in range(options.boots)):
        term_after(delay_s)
        if supervise(plan, "test") != 0:
            return 1
    if options.boots:
        return 0
    return supervise(plan, "test", until_done=options.until_done, load=load, tick=tick)


if __name__ == "__main__":
    sys.exit(main())
