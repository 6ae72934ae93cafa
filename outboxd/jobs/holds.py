"""The locks that runs of this process hold, renewed while they run. One thread renews; any may take and give back.

A lock that is lost (its key is another's, or Redis was away until its time was over) stays lost: it is never renewed or
freed again by its former owner. The run cannot be stopped from outside; it is asked to stop, and its line says so.
"""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from outboxd.errors import LockUnavailable
from outboxd.jobs.lock import JobLock

RENEW_EVERY = 5
"""Renewals in the time for which a lock is held."""
TRY_AGAIN = 20
"""Tries in that time, while the server is away."""
LEAVE_S = 3.0
"""A run that is cut off by the end of its process goes on until then: nobody else is to begin before that."""


@dataclass(slots=True, eq=False)
class Hold:
    """One lock that was taken. until_s: not lost before, by time.monotonic(). lost: why it is, "" while it is held.
    on_lost: called once, by the thread that renews.
    """

    job_id: int
    token: str
    until_s: float
    renew_at_s: float
    on_lost: Callable[[str], None]
    lost: str = ""


class Holds:
    """Of one process."""

    def __init__(self, lock: JobLock) -> None:
        self._lock = lock
        self._every_s = lock.held_for_s / RENEW_EVERY
        self._changed = threading.Condition()
        self._held: set[Hold] = set()
        self._owed: dict[tuple[int, str], float] = {}  # to be freed, when the server is there: until when it matters

    def take(self, job_id: int, on_lost: Callable[[str], None]) -> Hold | None:
        """None: another run has it. Raises LockUnavailable."""
        now_s, token = time.monotonic(), self._lock.mark + secrets.token_hex(16)
        until_s = now_s + self._lock.held_for_s
        try:
            if not self._lock.take(job_id, token):
                return None
        except LockUnavailable:
            self._owe(job_id, token, until_s)  # the answer alone may have been lost
            raise
        hold = Hold(job_id, token, until_s, now_s + self._every_s, on_lost)
        with self._changed:
            self._held.add(hold)
            self._changed.notify()
        return hold

    def stranger(self, job_id: int) -> str:
        """As JobLock.stranger; "" also where nobody can tell just now. Never raises."""
        try:
            return self._lock.stranger(job_id)
        except LockUnavailable:
            return ""

    def give_back(self, hold: Hold, after_s: float = 0.0) -> None:
        """The run has ended; after_s: or will have by then. Never raises."""
        with self._changed:
            self._held.discard(hold)
        if hold.lost:
            return
        try:
            self._lock.free(hold.job_id, hold.token, after_s)
        except LockUnavailable:
            self._owe(hold.job_id, hold.token, hold.until_s)

    def _owe(self, job_id: int, token: str, until_s: float) -> None:
        with self._changed:
            self._owed[job_id, token] = until_s
            self._changed.notify()

    def renew_for_ever(self) -> None:
        """The thread's work."""
        while True:
            self.turn(time.monotonic())
            with self._changed:
                now_s = time.monotonic()
                at_s = min((hold.renew_at_s for hold in self._held), default=now_s + 60.0)
                wait_s = min(at_s - now_s, self._lock.held_for_s / TRY_AGAIN if self._owed else 60.0)
                self._changed.wait(max(0.01, wait_s))

    def turn(self, now_s: float) -> None:
        """Renew what is due, and free what could not be freed before."""
        with self._changed:
            due = [hold for hold in self._held if hold.renew_at_s <= now_s]
            owed = dict(self._owed)
        for hold in due:
            self._renew(hold)
        for (job_id, token), until_s in owed.items():
            try:
                if time.monotonic() < until_s:
                    self._lock.free(job_id, token)
            except LockUnavailable:
                return
            with self._changed:
                self._owed.pop((job_id, token), None)

    def _renew(self, hold: Hold) -> None:
        asked_s = time.monotonic()  # before the server is asked: it holds for longer than we think
        try:
            if self._lock.renew(hold.job_id, hold.token):
                hold.until_s, hold.renew_at_s = asked_s + self._lock.held_for_s, asked_s + self._every_s
                return
            why = "another run has it, or its key was removed"
        except LockUnavailable as error:
            hold.renew_at_s = asked_s + self._lock.held_for_s / TRY_AGAIN
            if asked_s < hold.until_s:
                return
            why = f"it could not be renewed in time: {error}"
        with self._changed:
            if hold not in self._held:
                return  # given back meanwhile
            self._held.discard(hold)
            hold.lost = why
        hold.on_lost(why)
