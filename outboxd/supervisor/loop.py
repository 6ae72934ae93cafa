"""The supervisor's loop: signals, reap, decide, wait. One thread; it owns processes and sleeps until the next deadline.

Invariants:
- `Child` decides about one child, `Reload` about the order of all, `Children` does it: forks, kills, waitpid, the log.
- However it ends, also by an exception, no child of ours is left behind.
"""

import math
import os
import selectors
import signal
import time
from collections.abc import Callable

from outboxd import log
from outboxd.errors import ConfigError, OutboxdError
from outboxd.supervisor.children import Children
from outboxd.supervisor.reload import Plan, Reload
from outboxd.supervisor.report import log_slots, status_line
from outboxd.supervisor.scoreboard import Scoreboard
from outboxd.supervisor.signals import Signals
from outboxd.supervisor.spawn import Role
from outboxd.supervisor.systemd import Notifier, Phase
from outboxd.vitals import EXIT_NEEDS_PERSON, State

_TICK_S = 0.5
ONE_ASKING_S = 0.2
"""The same signal twice within this time was meant once: `timeout` and others send it to the process and its group."""
_OVERSLEPT_S = 1.0
"""Woken later than this, the supervisor was frozen, and silence of the children says nothing about them."""

Tick = Callable[[Scoreboard], None]


def supervise(
    plan: Plan,
    node_id: str,
    *,
    until_done: bool = False,
    load: Callable[[], Plan] | None = None,
    tick: Tick | None = None,
    forget: Callable[[Role], None] = lambda role: None,
) -> int:
    """Run every role in a child of its own, replace those that die, and end when told to. In the main thread only.

    SIGTERM or SIGINT: all children drain, for the plan's drain_limit_s at most; a second one, or SIGQUIT, ends them at
    once. SIGHUP: over to the plan that `load` returns, slot by slot, or not, if it raises. SIGUSR1: every child is
    logged. A child that ends with 78 makes the others drain. until_done: a child that ends with 0 is not replaced.

    load: reads the settings again; may raise ConfigError with all that is wrong. Without it SIGHUP is as SIGTERM, or
    nothing, if it was ignored before (nohup).
    tick: called with the scoreboard about twice a second. forget: called in each child, to close what the caller has
    opened before and the role does not need. None of them may block, load a client library or start a thread.

    Returns the exit status: 0; or 1, if a child had to be killed at the end or a person is needed.
    """
    supervisor = _Supervisor(plan, node_id, until_done, load, forget)
    try:
        return supervisor.run(tick)
    finally:
        supervisor.close()


class _Supervisor:
    def __init__(
        self,
        plan: Plan,
        node_id: str,
        until_done: bool,
        load: Callable[[], Plan] | None,
        forget: Callable[[Role], None],
    ) -> None:
        self._notifier = Notifier(os.environ)
        self._load = load
        self._forget = forget
        self._drain_limit_s = plan.drain_limit_s
        self._drain_since_s: float | None = None
        # By a signal: a worker that needs a person starts a drain too.
        self._asked_s: float | None = None
        self._asked_by: signal.Signals | None = None
        self._needs_person = False
        self._reload: Reload | None = None
        self._reload_again = False
        self._is_up = False
        self._awake_s = 0.0
        self._signals = Signals()
        self._selector = selectors.PollSelector()  # has no descriptor of its own that a child would inherit
        self._selector.register(self._signals.doorbell, selectors.EVENT_READ)
        self._children = Children(node_id, len(plan.roles), not until_done, self._forget_in_child)
        for role in plan.roles:
            self._children.add(role, plan.settings)

    def run(self, tick: Tick | None) -> int:
        log.bind(worker="supervisor")
        log.info(log.SUPERVISOR_STARTED, pid=os.getpid(), workers=len(self._children.workers))
        while True:
            now_s = time.monotonic()
            for signum in self._signals.take():
                self._obey(signum, now_s)
            self._reap(now_s)
            self._children.decide(now_s, self._awake_s)
            self._children.stop_last(now_s)
            self._go_on_reloading(now_s)
            if tick is not None:
                tick(self._children.board)
            self._notifier.turn(now_s, self._phase(), lambda: status_line(self._children))
            if self._children.is_done():
                break
            self._wait(math.inf if tick is None else now_s + _TICK_S)
        if self._drain_since_s is not None:
            log.info(log.DRAIN_FINISHED, took_s=round(time.monotonic() - self._drain_since_s, 3))
        status = int(self._needs_person or self._children.was_killed)
        log.info(log.SUPERVISOR_STOPPED, status=status)
        return status

    def close(self) -> None:
        """Leave nothing behind. After a proper end there is nothing left."""
        self._children.kill()
        self._selector.close()
        self._signals.close()

    def _forget_in_child(self, role: Role) -> None:
        self._selector.close()
        self._signals.doorbell.forget()
        self._forget(role)

    def _wait(self, latest_s: float) -> None:
        until_s = min(latest_s, self._children.wake_at(), self._notifier.wake_at())
        if self._reload is not None:
            until_s = min(until_s, self._reload.due_s)
        timeout_s = None if math.isinf(until_s) else max(0.0, until_s - time.monotonic())
        self._selector.select(timeout_s)
        now_s = time.monotonic()
        if now_s - until_s > _OVERSLEPT_S:
            self._awake_s = now_s

    def _phase(self) -> Phase:
        """Ready from when a worker of every group is up; what becomes of them later is not the manager's business."""
        if self._drain_since_s is not None:
            return Phase.STOPPING
        if self._reload is not None:
            return Phase.RELOADING
        if not self._is_up:
            workers = self._children.workers
            up = {member.role.group for member in workers if member.child.state is State.RUNNING}
            self._is_up = up == {member.role.group for member in workers}
        return Phase.READY if self._is_up else Phase.STARTING

    def _obey(self, signum: int, now_s: float) -> None:
        match signum:
            case signal.SIGCHLD:
                return
            case signal.SIGUSR1:
                log_slots(self._children, now_s)
            case signal.SIGHUP if self._load is not None:
                self._start_reload(now_s)
            case signal.SIGHUP if self._signals.was_ignored(signal.SIGHUP):
                return
            case _:
                self._end(signal.Signals(signum), now_s)

    def _end(self, signum: signal.Signals, now_s: float) -> None:
        is_second = self._asked_s is not None
        if self._asked_s is not None and signum == self._asked_by and now_s - self._asked_s < ONE_ASKING_S:
            return
        self._asked_s, self._asked_by = now_s, signum
        self._drain(now_s, signum.name)
        if is_second or signum == signal.SIGQUIT:
            log.warning(log.DRAIN_HURRIED, reason=signum.name)
            self._children.hurry(now_s)

    def _drain(self, now_s: float, reason: str) -> None:
        if self._drain_since_s is not None:
            return
        self._drain_since_s = now_s
        if self._reload is not None:
            log.warning(log.RELOAD_STOPPED, error=f"everything ends: {reason}")
            self._reload = None
        log.info(log.DRAIN_STARTED, reason=reason, limit_s=self._children.longest_s(self._drain_limit_s))
        self._children.drain(now_s, self._drain_limit_s)

    def _reap(self, now_s: float) -> None:
        for member, how in self._children.reap(now_s):
            is_reloads = self._reload is not None and self._reload.ended(member, how)
            if how.code == EXIT_NEEDS_PERSON and member.child.state is State.DONE and not is_reloads:
                self._needs_person = True
                log.error(log.WORKER_REFUSED, worker=member.role.name)
                self._drain(now_s, f"{member.role.name} needs a person")

    def _start_reload(self, now_s: float) -> None:
        if self._reload is not None:
            self._reload_again = True
            return
        if self._drain_since_s is not None:
            log.warning(log.RELOAD_REFUSED, error="everything ends")
            return
        log.info(log.RELOAD_STARTED)
        self._notifier.tell(Phase.RELOADING)
        if (plan := self._read_plan()) is not None:
            self._reload = Reload(plan, self._children, self._drain_limit_s, now_s)

    def _read_plan(self) -> Plan | None:
        assert self._load is not None
        try:
            plan = self._load()
        except ConfigError as refusal:
            for problem in refusal.problems:
                log.error(log.RELOAD_REFUSED, error=problem)
        except OutboxdError as refusal:
            log.error(log.RELOAD_REFUSED, error=str(refusal))
        except Exception as failure:  # noqa: BLE001  whatever the file holds, what runs goes on running
            log.error(log.RELOAD_REFUSED, exception=failure)
        else:
            board = self._children.board
            known = {board.name(index) for index in range(len(board))}
            added = {role.name for role in plan.roles} - known
            if len(added) <= board.capacity - len(board):
                return plan
            log.error(log.RELOAD_REFUSED, error=f"there is no room left for {len(added)} more workers, restart outboxd")
        return None

    def _go_on_reloading(self, now_s: float) -> None:
        if self._reload is None:
            return
        is_over = self._reload.turn(now_s)
        self._drain_limit_s = self._reload.drain_limit_s
        if is_over:
            self._reload = None
            if self._reload_again:
                self._reload_again = False
                self._start_reload(now_s)
