"""Forking one child, safely: nothing of the parent runs in it, no signal is lost on the way, and it outlives nobody."""

import contextlib
import ctypes
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from outboxd import log
from outboxd.supervisor.scoreboard import Scoreboard, Slot
from outboxd.supervisor.signals import SUPERVISOR_SIGNALS, Stop, reset_in_child
from outboxd.vitals import EXIT_CRASH, EXIT_OK

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_TITLE_BYTES = 15
_prctl = ctypes.CDLL(None).prctl  # loaded before the first fork


@dataclass(frozen=True, slots=True)
class ChildContext:
    """What a role is given: its slot, its signals, its name (`node/room_outbox-01`), the scoreboard."""

    slot: Slot
    stop: Stop
    supervisor_pid: int
    worker_id: str
    board: Scoreboard

    def orphaned(self) -> bool:
        """Is the supervisor gone? Asked in every turn of the loop; an orphan ends as if asked to stop."""
        return os.getppid() != self.supervisor_pid


@dataclass(frozen=True, slots=True)
class Role:
    """One supervised child: a name for its slot (`room_outbox-01`) and what it does.

    run: called in the forked child; its result is the exit status: 0 asked to stop or done, 70 crashed, 78 a person is
    needed (it has logged why; no restart mends it). It beats its slot in every turn of its loop, and sets it RUNNING
    once that turns; until then `startup_timeout_s` limits its silence, afterwards heartbeat_limit_s (None: nothing).
    is_errand: it does one thing for the supervisor and is no worker: nothing at info, no slot of the shared scoreboard.
    is_last: it serves the others, is no worker either, and is told to stop when they have ended.
    drain_limit_s: how long its drain may take, where that is not the plan's limit.
    """

    name: str
    run: Callable[[ChildContext], int]
    heartbeat_limit_s: float | None = None
    is_errand: bool = False
    is_last: bool = False
    drain_limit_s: float | None = None

    @property
    def group(self) -> str:
        """What it shares with its siblings: `room_outbox`."""
        return self.name.rpartition("-")[0] or self.name


def spawn(role: Role, slot: Slot, board: Scoreboard, node_id: str, forget: Callable[[Role], None]) -> int:
    """Fork a child that runs the role; its pid. Returns in the parent only.

    forget: closes, in the child, the descriptors that are not the role's. Raises OSError if the system
    refuses, RuntimeError if this process has more than one thread: a lock that another held would never be released
    in the child.
    """
    if (tasks := len(os.listdir("/proc/self/task"))) != 1:
        raise RuntimeError(f"{tasks} threads in the supervisor before a fork: nothing there may start one")
    supervisor_pid = os.getpid()
    _flush()  # else what is still buffered would be written twice
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SUPERVISOR_SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            _be_child(role, slot, board, node_id, forget, supervisor_pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def end_with_parent(signum: signal.Signals) -> None:
    """Ask the kernel to send this process the signal when its parent ends. It may have ended before: see getppid."""
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signum))


def _be_child(
    role: Role, slot: Slot, board: Scoreboard, node_id: str, forget: Callable[[Role], None], supervisor_pid: int
) -> NoReturn:
    """Everything a child ever does. Until the signals are unblocked, the order is what makes it safe."""
    code = EXIT_CRASH
    try:
        slot.set_pid(os.getpid())
        log.bind(worker=role.name)
        reset_in_child()
        stop = Stop()
        faulthandler.enable(file=2)  # SIGABRT, from a supervisor that hears nothing, shows where every thread stands
        end_with_parent(signal.SIGTERM)
        _prctl(_PR_SET_NAME, title(role.name))
        context = ChildContext(slot, stop, supervisor_pid, f"{node_id}/{role.name}", board)
        if context.orphaned():  # it died before the kernel had been asked to say so
            os._exit(EXIT_OK)
        forget(role)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # whoever started the supervisor may have blocked SIGABRT
        log.log(logging.DEBUG if role.is_errand else logging.INFO, log.WORKER_STARTED, pid=os.getpid())
        code = role.run(context)
    except BaseException as error:  # noqa: BLE001  the process ends here, whatever it was
        log.error(log.WORKER_CRASHED, exception=error)
    finally:
        _flush()
        os._exit(code)


def title(name: str) -> bytes:
    """What ps and top show: the slot's name, cut in the middle where it is too long, so that the number stays."""
    raw = name.encode("ascii", "replace")
    if len(raw) <= _TITLE_BYTES:
        return raw
    head, dash, number = raw.rpartition(b"-")
    return head[: _TITLE_BYTES - len(dash + number)] + dash + number


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads: nothing that could be done
            if stream is not None:
                stream.flush()
