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
import select
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable

from outboxd import log, vitals
from outboxd.config import schema
from outboxd.supervisor.loop import supervise
from outboxd.supervisor.scoreboard import Scoreboard
from outboxd.supervisor.spawn import ChildContext, Role
from outboxd.vitals import State

_TURN_S = 0.2
_PR_SET_CHILD_SUBREAPER = 36
_NOBODY = 65534


def idle(context: ChildContext) -> int:
    """Loops until it is asked to stop or the supervisor is gone, as every role does."""
    with selectors.DefaultSelector() as selector:
        selector.register(context.stop, selectors.EVENT_READ)
        context.slot.set_state(State.RUNNING)
        while not context.stop.requested and not context.orphaned():
            context.slot.beat(time.monotonic())
            selector.select(_TURN_S)
            context.stop.clear()
    context.slot.set_state(State.STOPPING)
    return 0


def busy(context: ChildContext, takes_s: float = 0.4) -> int:
    """Has one event in flight when it is asked to stop, and finishes it unless told to end at once."""
    idle(context)
    until_s = time.monotonic() + takes_s
    while time.monotonic() < until_s and context.stop.requested < 2:
        context.slot.beat(time.monotonic())
        time.sleep(0.02)
    if context.stop.requested < 2:
        context.slot.add(vitals.DELIVERED)
    return 0


def slow(context: ChildContext) -> int:
    """As busy, with an event that takes half a minute."""
    return busy(context, 30.0)


def stubborn(context: ChildContext) -> int:
    """Beats, and never ends by itself."""
    context.slot.set_state(State.RUNNING)
    while True:
        context.slot.beat(time.monotonic())
        time.sleep(_TURN_S)


def silent(context: ChildContext) -> int:
    """Is up, then waits for ever for something without beating."""
    context.slot.set_state(State.RUNNING)
    threading.Event().wait()
    return 0


def hung_at_boot(_context: ChildContext) -> int:
    """Never comes up."""
    threading.Event().wait()
    return 0


def orphan_guard(context: ChildContext) -> int:
    """Does not hear SIGTERM, not even the parent-death signal: it has only its own look at the parent."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    context.slot.set_state(State.RUNNING)
    while not context.orphaned():
        context.slot.beat(time.monotonic())
        time.sleep(0.05)
    return 0


def told_by_the_kernel(context: ChildContext) -> int:
    """Waits for a signal only: it has not even a look at the parent."""
    context.slot.set_state(State.RUNNING)
    while not context.stop.requested:
        select.select([context.stop], [], [])
        context.stop.clear()
    return 0


def crash_at_boot(_context: ChildContext) -> int:
    """Fails as soon as it starts."""
    raise ValueError("this role cannot start")


def crash_once(context: ChildContext) -> int:
    """Its first process counts an event and crashes; the next one does its work."""
    if context.slot.read().starts == 1:
        context.slot.add(vitals.DELIVERED)
        raise ValueError("the first process crashes")
    context.slot.add(vitals.DELIVERED)
    return 0


def done(_context: ChildContext) -> int:
    """Has nothing to do and says so."""
    return 0


def refused(_context: ChildContext) -> int:
    """Is refused by the database: only a person can mend it."""
    log.error(log.DATABASE_REFUSED, error="access denied: correct database.url")
    return 78


def leaves_strangers(context: ChildContext) -> int:
    """Leaves a process behind whose parent is gone, once, with an exit status that means something in a worker."""
    if context.slot.read().starts == 1 and os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.1)
            os._exit(78)
        os._exit(0)
    return idle(context)


BEHAVIOURS: dict[str, Callable[[ChildContext], int]] = {
    role.__name__: role
    for role in (
        idle, busy, slow, stubborn, silent, hung_at_boot, orphan_guard, told_by_the_kernel, crash_at_boot, crash_once,
        done, refused, leaves_strangers,
    )
}  # fmt: skip


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


def main() -> int:
    """Run the supervisor as the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--behaviour", default="idle")
    parser.add_argument("--drain-limit", type=float, default=5.0)
    parser.add_argument("--backoff", type=float, default=0.1)
    parser.add_argument("--startup-timeout", type=float, default=30.0)
    parser.add_argument("--heartbeat-limit", type=float)
    parser.add_argument("--until-done", action="store_true")
    parser.add_argument("--subreaper", action="store_true")
    parser.add_argument("--boots", type=int, default=0)
    parser.add_argument("--tick", choices=TICKS)
    options = parser.parse_args()
    log.configure("debug", "json", "test")
    if options.subreaper:  # what PID 1 of a container is for everyone in it
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)
    names = options.behaviour.split(",")
    behaviours = [BEHAVIOURS[names[min(i, len(names) - 1)]] for i in range(options.workers)]
    roles = [Role(f"lane-{i:02}", run, options.heartbeat_limit) for i, run in enumerate(behaviours, start=1)]
    settings = schema.Supervisor(
        restart_backoff_s=options.backoff,
        restart_backoff_max_s=options.backoff * 4,
        stable_after_s=60.0,
        startup_timeout_s=options.startup_timeout,
    )
    if options.tick == "no_processes" and os.getuid() == 0:  # whom no limit holds
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    tick = TICKS[options.tick] if options.tick else None
    for delay_s in (random.uniform(0, 0.006) for _ in range(options.boots)):
        term_after(delay_s)
        if supervise(roles, settings, options.drain_limit, "test") != 0:
            return 1
    if options.boots:
        return 0
    return supervise(roles, settings, options.drain_limit, "test", options.until_done, tick)


if __name__ == "__main__":
    sys.exit(main())
