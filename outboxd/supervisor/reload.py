"""Going over to new settings while everything runs: checked first, then slot by slot.

Invariants:
- One worker at a time is away: the next one drains when the last one's successor is up.
- A worker that does not come up, or that fails before the reload is over, stops it. Its slot goes back to what ran
  there before; those renewed before it keep the new settings, those after it the old ones.
- Workers that are wanted no longer go last, when the new ones have been up for a moment: a reload that stops takes none
  away.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from outboxd import log
from outboxd.config import schema
from outboxd.supervisor.child import HANG_DUMP_S, HURRY_S, UNKILLABLE_S, Exit, Limits
from outboxd.supervisor.children import Children, Member, drain_limit_s, limits
from outboxd.supervisor.spawn import Role
from outboxd.vitals import State

EXIT_REFUSED = 1
"""Of the check: it found what a person must put right, and has logged `reload_refused`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to run, and how. Every role has a name of its own.

    drain_limit_s: the longest that a drain may take. For a reload also: check, an errand that looks at what the new
    settings name and ends with EXIT_REFUSED if they cannot work (any other end says nothing against them); and accept,
    called after it, before the first worker is renewed. settle_s: how long the last new worker must stay up: one that
    its database refuses learns it only then.
    """

    roles: Sequence[Role]
    settings: schema.Supervisor
    drain_limit_s: float
    check: Role | None = None
    accept: Callable[[], None] = lambda: None
    settle_s: float = 0.5


class Reload:
    """One reload: `turn` until it says that it is over, `ended` for every child that has ended meanwhile."""

    def __init__(self, plan: Plan, children: Children, drain_limit_s: float, now_s: float) -> None:
        self.drain_limit_s = drain_limit_s
        """What a drain may take as things stand."""
        self._deadline_s = now_s  # of the present step
        self._plan = plan
        self._children = children
        self._since_s = self._now_s = now_s
        self._before: dict[str, tuple[Role, Limits] | None] = {}  # of each that was touched; None: it is new
        self._renewed: list[Member] = []
        self._how: dict[str, Exit] = {}
        self._steps = self._go()

    @property
    def due_s(self) -> float:
        """When to call `turn` again, unless a child has changed before."""
        return math.inf if self._has_hung() else self._deadline_s

    def turn(self, now_s: float) -> bool:
        """Do what can be done now; is it over?"""
        self._now_s = now_s
        if self._has_hung():
            return False
        try:
            for member in self._renewed:
                if _has_failed(member) and (member.child.failures or member.child.state is State.DONE):
                    raise _Stopped(member, f"its new process came up, then {self._what_happened(member)}")
            return next(self._steps, True)
        except _Stopped as stopped:
            self._step_back(stopped.member, str(stopped))
            return True

    def ended(self, member: Member, how: Exit) -> bool:
        """A child has ended; is it one that this reload has put there, so that its end is this reload's concern?"""
        if member.child.is_renewing:
            return False
        self._how[member.role.name] = how
        return member.role.is_errand or member.role.name in self._before

    def _go(self) -> Iterator[bool]:
        """Yields, False, wherever it has to wait."""
        plan, within_s = self._plan, self.drain_limit_s
        if plan.check is not None:
            yield from self._pass(plan.check)
            if self._how[plan.check.name].code == EXIT_REFUSED:
                return
        plan.accept()
        self.drain_limit_s = max(within_s, plan.drain_limit_s)
        for role in plan.roles:
            yield from self._bring_up(role, within_s)
        self._deadline_s = self._now_s + plan.settle_s
        while self._now_s < self._deadline_s:
            yield False
        self._deadline_s = math.inf
        wanted = {role.name for role in plan.roles}
        leaving = [member for member in self._children.workers if member.role.name not in wanted]
        for member in leaving:
            self._children.stop(member, self._now_s, drain_limit_s(member, within_s))
        while any(self._children.find(member.role.name) for member in leaving):
            yield False
        self.drain_limit_s = plan.drain_limit_s
        took_s = round(self._now_s - self._since_s, 3)
        log.info(log.RELOAD_FINISHED, workers=len(plan.roles), removed=len(leaving), took_s=took_s)

    def _pass(self, errand: Role) -> Iterator[bool]:
        self._children.add(errand, self._plan.settings)
        self._deadline_s = math.inf
        while errand.name not in self._how:
            yield False

    def _bring_up(self, role: Role, within_s: float) -> Iterator[bool]:
        settings = self._plan.settings
        if (member := self._children.find(role.name)) is not None:
            within_s = drain_limit_s(member, within_s)
        self._deadline_s = self._now_s + within_s + HANG_DUMP_S + UNKILLABLE_S
        while (member := self._children.find(role.name)) is not None and member.child.is_stopping:
            yield self._waits(member, "its old process does not end")  # an earlier reload is still taking it away
        if member is None:
            self._before[role.name], member = None, self._children.add(role, settings)
        else:
            self._before[role.name] = member.role, member.child.limits
            self._children.renew(member, role, limits(settings, role), self._now_s, within_s)
        self._deadline_s = self._now_s + within_s + HANG_DUMP_S + UNKILLABLE_S
        while member.child.is_renewing:
            yield self._waits(member, "its old process does not end")
        self._deadline_s = self._now_s + settings.startup_timeout_s
        while member.child.state is not State.RUNNING:
            if _has_failed(member):
                raise _Stopped(member, f"its new process {self._what_happened(member)}")
            yield self._waits(member, f"its new process was not up within {settings.startup_timeout_s:g} s")
        self._renewed.append(member)

    def _has_hung(self) -> bool:
        """Is a new process being killed? What that means is told once it has ended, after the dump of its threads."""
        changed = (self._children.find(name) for name in self._before)
        children = [member.child for member in changed if member is not None]
        return any(child.state is State.KILLING and not child.is_renewing for child in children)

    def _waits(self, member: Member, over: str) -> bool:
        if self._now_s >= self._deadline_s:
            raise _Stopped(member, over)
        return False

    def _what_happened(self, member: Member) -> str:
        how = self._how.get(member.role.name)
        return "could not be started: the system refused it" if how is None else f"ended with {how}"

    def _step_back(self, member: Member, error: str) -> None:
        renewed = [other for other in self._renewed if other is not member]
        kept = len(self._children.workers) - len(renewed) - 1
        log.error(log.RELOAD_STOPPED, worker=member.role.name, error=error, renewed=len(renewed), kept=kept)
        for name, before in self._before.items():
            undone = self._children.find(name)
            if undone is None or undone in renewed:
                continue
            is_starting = undone.child.state is State.STARTING
            within_s = HURRY_S if is_starting else drain_limit_s(undone, self.drain_limit_s)
            if before is None:
                self._children.stop(undone, self._now_s, within_s)
            else:
                self._children.renew(undone, *before, self._now_s, within_s)


class _Stopped(Exception):
    """The reload goes no further because of this member."""

    def __init__(self, member: Member, error: str) -> None:
        super().__init__(error)
        self.member = member


def _has_failed(member: Member) -> bool:
    return member.child.state in (State.BACKOFF, State.DONE)
