"""A slot's state machine: what to do about one child, decided from `now_s` and the scoreboard alone. No I/O.

    EMPTY ──fork──▶ STARTING ──up──▶ RUNNING        stop: ──▶ STOPPING ──deadline──▶ KILLING
      ▲               │ silent        │ silent             (a slot without a child: ──▶ DONE)
      │               └──▶ KILLING ◀──┘
      └─ BACKOFF ◀── died ──┘            asked to stop, done, or nothing that a restart mends: ──▶ DONE
                                         renewed: as a stop, but ──▶ EMPTY

Every wait is an absolute deadline on the monotonic clock. The loop may call `decide` as often as it likes: being woken
early never shortens a wait.
"""

import math
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass

from outboxd import backoff
from outboxd.vitals import EXIT_NEEDS_PERSON, EXIT_OK, SlotView, State

HANG_DUMP_S = 1.0
"""From SIGABRT, at which a child's faulthandler dumps its threads, to SIGKILL."""

HURRY_S = 0.5
"""From the second signal to SIGKILL: long enough to give back what was not yet published."""

UNKILLABLE_S = 5.0
"""How long the end of the supervisor waits for a killed child: one in uninterruptible sleep may never go."""

LOOK_S = 0.05
"""How often a child that starts is looked at."""

_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a child may be silent, and how its slot backs off.

    heartbeat_s: None switches the limit off, for a child that is up; startup_s holds from the fork until then.
    """

    restart_backoff_s: float
    restart_backoff_max_s: float
    stable_after_s: float
    startup_s: float
    heartbeat_s: float | None = None


@dataclass(frozen=True, slots=True)
class Spawn:
    """Fork a child for the slot."""


@dataclass(frozen=True, slots=True)
class Signal:
    """Send the signal to the slot's child. silent_s: it is sent because the child has been silent that long."""

    signum: signal.Signals
    silent_s: float | None = None


@dataclass(frozen=True, slots=True)
class Abandon:
    """Go on without the child: it was killed and does not end."""


Action = Spawn | Signal | Abandon


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: by a code or by a signal."""

    code: int | None
    signum: int | None

    def __str__(self) -> str:
        if self.signum is None:
            return f"exit status {self.code}"
        try:
            return signal.Signals(self.signum).name
        except ValueError:  # a real-time signal
            return f"signal {self.signum}"


def decode(status: int) -> Exit:
    """What waitpid's status says."""
    if os.WIFSIGNALED(status):
        return Exit(None, os.WTERMSIG(status))
    return Exit(os.WEXITSTATUS(status), None)


@dataclass(slots=True)
class Child:
    """The supervisor's view of one slot. `replace_done`: a child that ends with 0, unasked, is followed by another."""

    name: str
    limits: Limits
    replace_done: bool = True
    random: Callable[[], float] = random.random
    state: State = State.EMPTY
    pid: int = 0
    started_s: float = 0.0
    heard_s: float = 0.0  # from when its silence counts
    looked_s: float = 0.0  # when it was last decided about
    due_s: float = math.inf  # when the wait of a STOPPING, KILLING or BACKOFF slot is over
    failures: int = 0  # in a row
    is_stopping: bool = False
    is_renewing: bool = False  # until the next child is forked
    kill_sent: bool = False

    @property
    def is_alive(self) -> bool:
        """Is there a process."""
        return self.pid != 0

    def decide(self, now_s: float, view: SlotView, awake_s: float = 0.0) -> Action | None:
        """What to do now, if anything.

        awake_s: since when the supervisor has run without a pause. A child's silence counts from then on at the
        earliest: whatever froze the supervisor (a suspended container) will have frozen the children too.
        """
        if self.state is State.STARTING and view.state in (State.RUNNING, State.STOPPING):
            self.state = State.RUNNING
        self.heard_s, self.looked_s = max(view.heartbeat_s, awake_s), now_s
        if now_s < self._due_at():
            return None
        match self.state:
            case State.EMPTY | State.BACKOFF:
                return Spawn()
            case State.STARTING | State.RUNNING:
                self.state, self.due_s = State.KILLING, now_s + HANG_DUMP_S
                return Signal(signal.SIGABRT, silent_s=now_s - self.heard_s)
            case State.STOPPING | State.KILLING if not self.kill_sent:
                self.state, self.due_s, self.kill_sent = State.KILLING, now_s + UNKILLABLE_S, True
                return Signal(signal.SIGKILL)
            case State.KILLING if self.is_stopping:
                self.state, self.due_s = State.DONE, math.inf
                return Abandon()
            case State.KILLING:  # its slot stays taken until it goes
                self.due_s = now_s + UNKILLABLE_S
        return None

    def wake_at(self) -> float:
        """When to call `decide` again at the latest; infinity: when something happens."""
        if self.state is State.STARTING:  # that it is up, and its other limit holds, is only seen by looking
            return min(self._due_at(), self.looked_s + LOOK_S)
        return self._due_at()

    def spawned(self, pid: int, now_s: float) -> None:
        """The fork has happened."""
        self.state, self.pid, self.kill_sent, self.is_renewing = State.STARTING, pid, False, False
        self.started_s, self.heard_s, self.looked_s, self.due_s = now_s, now_s, now_s, math.inf

    def spawn_failed(self, now_s: float) -> None:
        """The fork was refused (no memory, no process left): the same as a crash."""
        self.is_renewing = False
        self._back_off(now_s)

    def stop(self, deadline_s: float) -> Action | None:
        """Asked to end, by deadline_s. A slot between two children ends here. Repeats change nothing."""
        if self.is_stopping:
            return None
        self.is_stopping = True
        if not self.is_alive:
            self.state, self.due_s = State.DONE, math.inf
            return None
        return self._ask(deadline_s)

    def renew(self, limits: Limits, deadline_s: float) -> Action | None:
        """The present child is to end by deadline_s, as for a stop; the next one starts then, without backoff."""
        self.limits, self.failures, self.is_renewing = limits, 0, True
        if self.is_alive:
            return self._ask(deadline_s)
        self.state = State.EMPTY
        return None

    def hurry(self, deadline_s: float) -> Action | None:
        """Asked to end at once: deadline_s replaces a later one."""
        if not self.is_alive or self.kill_sent:
            return None
        self.due_s = min(self.due_s, deadline_s)
        return Signal(signal.SIGQUIT) if self.state is State.STOPPING else None

    def exited(self, how: Exit, now_s: float) -> None:
        """The child was reaped: the slot is in BACKOFF until due_s, or DONE."""
        self.pid = 0
        if now_s - self.started_s >= self.limits.stable_after_s:
            self.failures = 0
        if self.is_renewing and not self.is_stopping:
            self.state, self.due_s = State.EMPTY, math.inf
        elif self.is_stopping or how.code == EXIT_NEEDS_PERSON or (how.code == EXIT_OK and not self.replace_done):
            self.state, self.due_s = State.DONE, math.inf
        elif how.code == EXIT_OK:
            # It ended for a reason of its own (a worn-out worker): replaced at once, unless it makes a habit of it.
            self.state, self.due_s = State.BACKOFF, max(now_s, self.started_s + self.limits.restart_backoff_s)
        else:
            self._back_off(now_s)

    def _ask(self, deadline_s: float) -> Action | None:
        if self.state is State.KILLING:
            return None
        if self.state is State.STOPPING:  # it was asked before: it keeps the time it had then
            self.due_s = min(self.due_s, deadline_s)
            return None
        self.state, self.due_s = State.STOPPING, deadline_s
        return Signal(signal.SIGTERM)

    def _back_off(self, now_s: float) -> None:
        self.failures += 1
        delay_s = backoff.exponential(self.failures, self.limits.restart_backoff_s, self.limits.restart_backoff_max_s)
        self.state, self.due_s = State.BACKOFF, now_s + backoff.jittered(delay_s, _JITTER, self.random)

    def _due_at(self) -> float:
        match self.state:
            case State.EMPTY:
                return 0.0
            case State.STARTING:
                return self.heard_s + self.limits.startup_s
            case State.RUNNING:
                return math.inf if self.limits.heartbeat_s is None else self.heard_s + self.limits.heartbeat_s
            case _:
                return self.due_s
