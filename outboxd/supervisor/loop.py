"""The supervisor's loop: signals, reap, decide, wait. One thread; it owns processes and sleeps until the next deadline.

Invariants:
- `Child` decides, this module does: forks, kills, waitpid, the log.
- A pid is looked up before its exit status is understood: as PID 1, strangers end here too.
- However it ends, also by an exception, no child of ours is left behind.
"""

import logging
import math
import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence

from outboxd import log
from outboxd.config import schema
from outboxd.supervisor import child
from outboxd.supervisor.child import Abandon, Action, Child, Limits, Signal, Spawn, decode
from outboxd.supervisor.scoreboard import Scoreboard
from outboxd.supervisor.signals import Signals
from outboxd.supervisor.spawn import Role, spawn
from outboxd.vitals import State

_TICK_S = 0.5
_OVERSLEPT_S = 1.0
"""Woken later than this, the supervisor was frozen, and silence of the children says nothing about them."""


def supervise(
    roles: Sequence[Role],
    settings: schema.Supervisor,
    drain_limit_s: float,
    node_id: str,
    until_done: bool = False,
    tick: Callable[[Scoreboard], None] | None = None,
) -> int:
    """Run every role in a child of its own, replace those that die, and end when told to. In the main thread only.

    SIGTERM or SIGINT: all children drain, for drain_limit_s at most; a second one, or SIGQUIT, ends them at once. A
    child that ends with 78 makes the others drain. until_done: a child that ends with 0 is not replaced.

    tick: called with the scoreboard about twice a second; must not block, nor start a thread.

    Returns the exit status: 0; or 1, if a child had to be killed at the end or a person is needed.
    """
    supervisor = _Supervisor(roles, settings, drain_limit_s, node_id, until_done)
    try:
        return supervisor.run(tick)
    finally:
        supervisor.close()


class _Supervisor:
    def __init__(
        self, roles: Sequence[Role], settings: schema.Supervisor, drain_limit_s: float, node_id: str, until_done: bool
    ) -> None:
        self._roles = roles
        self._drain_limit_s = drain_limit_s
        self._node_id = node_id
        self._board = Scoreboard(len(roles))
        self._children = [
            Child(role.name, _limits(settings, role.heartbeat_limit_s), replace_done=not until_done) for role in roles
        ]
        self._drain_since_s: float | None = None
        self._was_asked = False  # by a signal; a worker that needs a person starts a drain too
        self._status = 0
        self._awake_s = 0.0
        self._signals = Signals()
        self._selector = selectors.PollSelector()  # has no descriptor of its own that a child would inherit
        self._selector.register(self._signals.doorbell, selectors.EVENT_READ)

    def run(self, tick: Callable[[Scoreboard], None] | None) -> int:
        log.bind(worker="supervisor")
        log.info(log.SUPERVISOR_STARTED, pid=os.getpid(), workers=len(self._roles))
        while True:
            now_s = time.monotonic()
            for signum in self._signals.take():
                self._obey(signum, now_s)
            self._reap(now_s)
            for index, slot_child in enumerate(self._children):
                self._do(index, slot_child.decide(now_s, self._board.read(index), self._awake_s), now_s)
            if tick is not None:
                tick(self._board)
            if all(slot_child.state is State.DONE for slot_child in self._children):
                break
            self._wait(math.inf if tick is None else now_s + _TICK_S)
        if self._drain_since_s is not None:
            log.info(log.DRAIN_FINISHED, took_s=round(time.monotonic() - self._drain_since_s, 3))
        log.info(log.SUPERVISOR_STOPPED, status=self._status)
        return self._status

    def close(self) -> None:
        """Leave nothing behind. After a proper end there is nothing left."""
        for slot_child in self._children:
            if slot_child.is_alive and slot_child.state is not State.DONE:
                os.kill(slot_child.pid, signal.SIGKILL)
                os.waitpid(slot_child.pid, 0)
        self._selector.close()
        self._signals.close()

    def _wait(self, latest_s: float) -> None:
        until_s = min(latest_s, *(slot_child.wake_at() for slot_child in self._children))
        timeout_s = None if math.isinf(until_s) else max(0.0, until_s - time.monotonic())
        self._selector.select(timeout_s)
        now_s = time.monotonic()
        if now_s - until_s > _OVERSLEPT_S:
            self._awake_s = now_s

    def _obey(self, signum: int, now_s: float) -> None:
        if signum == signal.SIGCHLD:
            return
        name = signal.Signals(signum).name
        is_second, self._was_asked = self._was_asked, True
        self._drain(now_s, name)
        if is_second or signum == signal.SIGQUIT:
            log.warning(log.DRAIN_HURRIED, reason=name)
            for index, slot_child in enumerate(self._children):
                self._do(index, slot_child.hurry(now_s + child.HURRY_S), now_s)

    def _drain(self, now_s: float, reason: str) -> None:
        if self._drain_since_s is not None:
            return
        self._drain_since_s = now_s
        log.info(log.DRAIN_STARTED, reason=reason, limit_s=self._drain_limit_s)
        for index, slot_child in enumerate(self._children):
            self._do(index, slot_child.stop(now_s + self._drain_limit_s), now_s)

    def _do(self, index: int, action: Action | None, now_s: float) -> None:
        slot_child = self._children[index]
        match action:
            case Spawn():
                self._spawn(index, now_s)
            case Signal(signum, silent_s):
                if silent_s is not None:
                    log.error(log.WORKER_HUNG, worker=slot_child.name, pid=slot_child.pid, silent_s=round(silent_s, 3))
                if signum == signal.SIGKILL:
                    log.error(log.WORKER_KILLED, worker=slot_child.name, pid=slot_child.pid)
                    self._status = 1 if slot_child.is_stopping else self._status
                os.kill(slot_child.pid, signum)  # after the log, so that the dump of a hung one stands behind its line
            case Abandon():
                log.error(log.WORKER_ABANDONED, worker=slot_child.name, pid=slot_child.pid)

    def _spawn(self, index: int, now_s: float) -> None:
        slot_child, slot = self._children[index], self._board.slot(index)
        slot.begin(now_s)
        try:
            pid = spawn(self._roles[index], slot, self._node_id, self._forget_in_child)
        except OSError as refusal:
            slot_child.spawn_failed(now_s)
            slot.end(slot_child.state)
            delay_s = round(slot_child.due_s - now_s, 3)
            log.error(log.WORKER_START_FAILED, worker=slot_child.name, error=str(refusal), delay_s=delay_s)
            return
        slot.set_pid(pid)
        slot_child.spawned(pid, now_s)

    def _forget_in_child(self) -> None:
        self._selector.close()
        self._signals.doorbell.forget()

    def _reap(self, now_s: float) -> None:
        by_pid = {slot_child.pid: index for index, slot_child in enumerate(self._children) if slot_child.is_alive}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # there is none at all
                return
            if pid == 0:
                return
            if pid in by_pid:
                self._exited(by_pid[pid], decode(status), now_s)
            else:
                log.debug(log.STRANGER_REAPED, pid=pid)

    def _exited(self, index: int, how: child.Exit, now_s: float) -> None:
        slot_child = self._children[index]
        is_expected = how.code in (child.EXIT_OK, child.EXIT_NEEDS_PERSON) or slot_child.state is State.KILLING
        text = "killed (out of memory?)" if how.signum == signal.SIGKILL and not slot_child.kill_sent else str(how)
        facts = {"worker": slot_child.name, "pid": slot_child.pid, "ran_s": round(now_s - slot_child.started_s, 3)}
        log.log(logging.INFO if is_expected else logging.ERROR, log.WORKER_EXITED, **facts, how=text)
        slot_child.exited(how, now_s)
        self._board.slot(index).end(slot_child.state)
        if slot_child.state is State.BACKOFF:
            delay_s = round(slot_child.due_s - now_s, 3)
            log.info(log.WORKER_RESTARTING, worker=slot_child.name, delay_s=delay_s, failures=slot_child.failures)
        elif how.code == child.EXIT_NEEDS_PERSON:
            self._status = 1
            log.error(log.WORKER_REFUSED, worker=slot_child.name)
            self._drain(now_s, f"{slot_child.name} needs a person")


def _limits(settings: schema.Supervisor, heartbeat_limit_s: float | None) -> Limits:
    return Limits(
        restart_backoff_s=settings.restart_backoff_s,
        restart_backoff_max_s=settings.restart_backoff_max_s,
        stable_after_s=settings.stable_after_s,
        startup_s=settings.startup_timeout_s,
        heartbeat_s=heartbeat_limit_s,
    )
