"""What the workers of the lifecycle tests do, good and bad. Each is a real role, run in a real child."""

import ctypes
import os
import select
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable

from outboxd import log, vitals
from outboxd.supervisor.reload import EXIT_REFUSED
from outboxd.supervisor.spawn import ChildContext
from outboxd.vitals import State

_TURN_S = 0.2


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


def leisurely(context: ChildContext) -> int:
    """Takes more than a moment to end: it was still starting, on a machine that is busy."""
    return busy(context, 1.2)


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


def beats_without_coming_up(context: ChildContext) -> int:
    """Is never silent and never up."""
    while not context.stop.requested:
        context.slot.beat(time.monotonic())
        time.sleep(0.05)
    return 0


def deaf_and_never_up(context: ChildContext) -> int:
    """Is never silent, never up, and does not end when it is asked to."""
    while True:
        context.slot.beat(time.monotonic())
        time.sleep(0.05)


def up_then_refused(context: ChildContext) -> int:
    """Is up, and finds soon that only a person can help."""
    context.slot.set_state(State.RUNNING)
    time.sleep(0.2)
    return refused(context)


def hung_in_c(context: ChildContext) -> int:
    """Is in a call that holds the interpreter's lock: no Python code of this process runs any more."""
    context.slot.set_state(State.RUNNING)
    ctypes.PyDLL(None).sleep(1000)
    return 0


def deaf_in_c(context: ChildContext) -> int:
    """The same with all signals blocked, as some C libraries do."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return hung_in_c(context)


def shows_environment(context: ChildContext) -> int:
    """Logs what it would hand on to a program that it starts and that knows systemd."""
    names = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout.split()
    log.info(log.CONFIG_WARNING, message=" ".join(name for name in names if name.startswith(("NOTIFY", "WATCHDOG"))))
    return idle(context)


BEHAVIOURS: dict[str, Callable[[ChildContext], int]] = {
    role.__name__: role
    for role in (
        idle, busy, leisurely, slow, stubborn, silent, hung_at_boot, orphan_guard, told_by_the_kernel, crash_at_boot,
        crash_once, done, refused, leaves_strangers, beats_without_coming_up, up_then_refused, hung_in_c, deaf_in_c,
        shows_environment, deaf_and_never_up,
    )
}  # fmt: skip


def finds_nothing(_context: ChildContext) -> int:
    """A check that has no objection."""
    return 0


def finds_something(_context: ChildContext) -> int:
    """A check that refuses."""
    log.error(log.RELOAD_REFUSED, error="the table is missing")
    return EXIT_REFUSED


def takes_for_ever(_context: ChildContext) -> int:
    """A check whose database does not answer."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Event().wait()
    return 0


CHECKS = {check.__name__: check for check in (finds_nothing, finds_something, takes_for_ever, crash_at_boot)}
