"""The supervisor's children: forked, signalled, reaped and told of in the log, as their `Child` decides.

Invariant: a pid is looked up before its exit status is understood: as PID 1, strangers end here too.
"""

import logging
import math
import os
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass

from outboxd import log
from outboxd.config import schema
from outboxd.supervisor import child
from outboxd.supervisor.child import Abandon, Action, Child, Exit, Limits, Signal, Spawn, decode
from outboxd.supervisor.scoreboard import Scoreboard, Slot
from outboxd.supervisor.spawn import Role, spawn
from outboxd.vitals import CRASHED, ENDED, EXIT_NEEDS_PERSON, EXIT_OK, HUNG, KILLED, State

SPARE_SLOTS = 1024
"""Room for workers that a reload adds. A page of memory is used once a slot on it is."""


@dataclass(slots=True)
class Member:
    """A child's place: what runs in it, what to do about it, where it tells of itself."""

    role: Role
    child: Child
    slot: Slot


def drain_limit_s(member: Member, within_s: float) -> float:
    """How long its drain may take, where the others' may take within_s."""
    return within_s if member.role.drain_limit_s is None else member.role.drain_limit_s


def limits(settings: schema.Supervisor, role: Role) -> Limits:
    """What holds for the role's children."""
    return Limits(
        restart_backoff_s=settings.restart_backoff_s,
        restart_backoff_max_s=settings.restart_backoff_max_s,
        stable_after_s=settings.stable_after_s,
        startup_s=settings.startup_timeout_s,
        heartbeat_s=role.heartbeat_limit_s,
    )


class Children:
    """All of them, by name. `was_killed`: one had to be, after `drain` was called.

    replace_done: a worker that ends with 0, unasked, is followed by another. forget: closes, in a child, the
    descriptors that are not its role's.
    """

    def __init__(self, node_id: str, slots: int, replace_done: bool, forget: Callable[[Role], None]) -> None:
        self.board = Scoreboard(slots + SPARE_SLOTS)
        self.was_killed = False
        self._node_id = node_id
        self._replace_done = replace_done
        self._forget = forget
        self._is_draining = False
        self._drain_until_s = 0.0
        self._members: dict[str, Member] = {}

    @property
    def members(self) -> Collection[Member]:
        """Errands too."""
        return self._members.values()

    @property
    def workers(self) -> list[Member]:
        """All but errands and those that serve the others."""
        return [member for member in self.members if not (member.role.is_errand or member.role.is_last)]

    def find(self, name: str) -> Member | None:
        """The member of that name, if there is one."""
        return self._members.get(name)

    def add(self, role: Role, settings: schema.Supervisor) -> Member:
        """Its child is forked by the next `decide`. Raises ValueError when the scoreboard is full."""
        board = Scoreboard(1) if role.is_errand else self.board
        member = Member(role, Child(role.name, limits(settings, role), self._replace_done), board.take(role.name))
        self._members[role.name] = member
        return member

    def renew(self, member: Member, role: Role, limits: Limits, now_s: float, within_s: float) -> None:
        """Let its child drain, for within_s at most, and run the role in the next one."""
        member.role = role
        self._do(member, member.child.renew(limits, now_s + within_s), now_s)

    def stop(self, member: Member, now_s: float, within_s: float) -> None:
        """Let its child drain, for within_s at most; no other follows.

        Once it has ended it is known no more, unless everything ends. What it has counted stays on the scoreboard.
        """
        self._do(member, member.child.stop(now_s + within_s), now_s)
        if not member.child.is_alive:
            member.slot.end(member.child.state)

    def drain(self, now_s: float, within_s: float) -> None:
        """Stop all but those that end last, within within_s or what their role has."""
        self._is_draining = True
        self._drain_until_s = now_s + self.longest_s(within_s)
        self.board.set_draining()
        for member in self.members:
            if member.role.is_last and member.child.is_alive:
                # A signal to the whole group may end it before its turn comes.
                member.child.replace_done = False
            else:
                self.stop(member, now_s, drain_limit_s(member, within_s))

    def longest_s(self, within_s: float) -> float:
        """How long a drain of all may take."""
        return max([drain_limit_s(member, within_s) for member in self.members], default=within_s)

    def stop_last(self, now_s: float) -> None:
        """Stop those that end last, once nothing else runs: within the rest of the drain's time."""
        if all(member.child.state is State.DONE for member in self.members if not member.role.is_last):
            for member in self.members:
                self.stop(member, now_s, max(self._drain_until_s - now_s, child.HURRY_S))

    def hurry(self, now_s: float) -> None:
        """Those that are told to stop are to end at once."""
        for member in self.members:
            self.stop(member, now_s, child.HURRY_S)
            self._do(member, member.child.hurry(now_s + child.HURRY_S), now_s)

    def decide(self, now_s: float, awake_s: float) -> None:
        """Do what is due for each."""
        for member in self.members:
            self._do(member, member.child.decide(now_s, member.slot.read(), awake_s), now_s)
        if not self._is_draining:
            gone = [member for member in self.members if member.child.is_stopping and member.child.state is State.DONE]
            for member in gone:
                del self._members[member.role.name]

    def wake_at(self) -> float:
        """When to call `decide` again at the latest."""
        return min((member.child.wake_at() for member in self.members), default=math.inf)

    def is_done(self) -> bool:
        """Has every child ended, and none will follow?"""
        return all(member.child.state is State.DONE for member in self.members)

    def kill(self) -> None:
        """Leave nothing behind. After a proper end there is nothing left."""
        for member in self.members:
            if member.child.is_alive and member.child.state is not State.DONE:
                os.kill(member.child.pid, signal.SIGKILL)
                os.waitpid(member.child.pid, 0)

    def reap(self, now_s: float) -> list[tuple[Member, Exit]]:
        """Those that have ended, and how. An errand is known no more."""
        by_pid = {member.child.pid: member for member in self.members if member.child.is_alive}
        ended: list[tuple[Member, Exit]] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # there is none at all
                return ended
            if pid == 0:
                return ended
            if (member := by_pid.get(pid)) is None:
                log.debug(log.STRANGER_REAPED, pid=pid)
                continue
            how = decode(status)
            self._exited(member, how, now_s)
            ended.append((member, how))

    def _exited(self, member: Member, how: Exit, now_s: float) -> None:
        ended = member.child
        is_expected = how.code in (EXIT_OK, EXIT_NEEDS_PERSON) or ended.state is State.KILLING
        level = logging.DEBUG if member.role.is_errand else logging.INFO if is_expected else logging.ERROR
        text = "killed (out of memory?)" if how.signum == signal.SIGKILL and not ended.kill_sent else str(how)
        ran_s = round(now_s - ended.started_s, 3)
        log.log(level, log.WORKER_EXITED, worker=ended.name, pid=ended.pid, ran_s=ran_s, how=text)
        was_hung = ended.state is State.KILLING
        ended.exited(how, now_s)
        member.slot.end(ended.state)
        if member.role.is_errand:
            del self._members[member.role.name]
        elif ended.state is State.BACKOFF:
            member.slot.note_restart(HUNG if was_hung else _reason(how))
            delay_s = round(ended.due_s - now_s, 3)
            log.info(log.WORKER_RESTARTING, worker=ended.name, delay_s=delay_s, failures=ended.failures)

    def _do(self, member: Member, action: Action | None, now_s: float) -> None:
        name, pid = member.child.name, member.child.pid
        match action:
            case Spawn():
                self._spawn(member, now_s)
            case Signal(signum, silent_s):
                if silent_s is not None:
                    log.error(log.WORKER_HUNG, worker=name, pid=pid, silent_s=round(silent_s, 3))
                if signum == signal.SIGKILL:
                    log.error(log.WORKER_KILLED, worker=name, pid=pid)
                    self.was_killed = self.was_killed or self._is_draining
                os.kill(pid, signum)  # after the log, so that the dump of a hung one stands behind its line
                if signum == signal.SIGABRT:
                    os.kill(pid, signal.SIGCONT)  # one that somebody has stopped hears nothing before
            case Abandon():
                log.error(log.WORKER_ABANDONED, worker=name, pid=pid)

    def _spawn(self, member: Member, now_s: float) -> None:
        member.slot.begin(now_s)
        try:
            pid = spawn(member.role, member.slot, self.board, self._node_id, self._forget)
        except OSError as refusal:
            member.child.spawn_failed(now_s)
            member.slot.end(member.child.state)
            delay_s = round(member.child.due_s - now_s, 3)
            log.error(log.WORKER_START_FAILED, worker=member.child.name, error=str(refusal), delay_s=delay_s)
            return
        member.slot.set_pid(pid)
        member.child.spawned(pid, now_s)


def _reason(how: Exit) -> int:
    """Why another child follows, of those whom nobody had to kill."""
    if how.signum is not None:
        return KILLED
    return ENDED if how.code == EXIT_OK else CRASHED
