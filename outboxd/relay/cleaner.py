"""Background cleanup of a lane that opted in: once per interval one worker, of all nodes, deletes what is too old.

The worker that wins a round makes it in slices, between its turns: one small transaction, then a pause as long, so that
claims, settles, renewals and the heartbeat never wait for more than a slice. A round ends at `cleanup_batch_size` rows,
at the next interval, or where nothing that old is left; whoever wins the next one goes on.
"""

import time
from collections.abc import Sequence

from outboxd import log, vitals
from outboxd.config.schema import Lane
from outboxd.errors import StoreConflict
from outboxd.store.api import Store
from outboxd.store.old_api import Kind, Position
from outboxd.store.prune import CONFLICT_PAUSE_S, LEAST_ROWS, Size, Step, Walk

SLOW_S, QUICK_S = 0.1, 0.05
"""Of a slice: publishes of this worker wait so long."""
FIRST_ROWS = 500
SHARE = 1
"""A slice is followed by a pause so many times as long: half of the time is the worker's own."""
LEAST_PAUSE_S = 0.01
READ_SHARE = 4
"""A round reads so many times as many rows as it may delete: those that stay cost little each, but not nothing."""
AGAIN_SHARE, AGAIN_MOST_S = 50, 3600.0
"""A walk begins at the lowest id again after so many times as long as it took to find something there."""
FOREVER_S = float("inf")


class Course:
    """A walk through rows of one kind over many rounds: it goes on where it ended, and starts anew now and then."""

    def __init__(self, kind: Kind) -> None:
        self._walk = Walk(kind)
        self._searched_s = 0.0
        self._again_at_s = 0.0
        self.before_ms = 0
        self.is_done = False

    @property
    def is_terminal(self) -> bool:
        """Are these rows that nothing becomes of?"""
        return self._walk.kind.is_terminal

    def begin(self, before_ms: int, now_s: float) -> None:
        """A round; rows older than before_ms go."""
        self.before_ms, self.is_done = before_ms, False
        if now_s >= self._again_at_s:
            self._walk.position = Position()
            self._searched_s, self._again_at_s = 0.0, FOREVER_S

    def step(self, store: Store, most: int, now_s: float) -> Step:
        """A slice."""
        is_searching = self._again_at_s == FOREVER_S
        step = self._walk.step(store.old_rows, self.before_ms, min(most, LEAST_ROWS) if is_searching else most)
        self.is_done = step.is_done
        if is_searching:
            end_s = time.monotonic()
            self._searched_s += end_s - now_s
            if step.deleted or step.is_done:
                self._again_at_s = end_s + min(AGAIN_MOST_S, AGAIN_SHARE * self._searched_s)
        return step


class Cleaner:
    """One worker's part in it. at_s: when it wants a turn, time.monotonic(); forever where the lane has no cleanup."""

    def __init__(self, lane: Lane, slot: vitals.Slot) -> None:
        self._lane = lane
        self._slot = slot
        self._size = Size(SLOW_S, QUICK_S, FIRST_ROWS)
        self._courses = _courses(lane)
        self._ends_at_s = 0.0
        self._left = self._to_read = 0
        self._deleted = [0, 0]
        self._in_round = False
        self.at_s = 0.0 if lane.cleans_up else FOREVER_S

    def turn(self, store: Store, now_s: float) -> None:
        """A slice, or a look whether it is time for a round, if it is time for either. Raises StoreUnavailable."""
        if now_s < self.at_s:
            return
        try:
            if self._in_round:
                self._slice(store, now_s)
            else:
                self._ask(store, now_s)
        except StoreConflict:
            self._size.halve()
            self.at_s = time.monotonic() + CONFLICT_PAUSE_S

    def _ask(self, store: Store, now_s: float) -> None:
        lane = self._lane
        found = store.old_rows.win(round(lane.cleanup_interval_s * 1000))
        if not found.is_won:
            self.at_s = now_s + min(lane.cleanup_interval_s, max(0.1, found.wait_ms / 1000))
            return
        for course in self._courses:
            age_s = lane.cleanup_terminal_after_s if course.is_terminal else lane.cleanup_active_after_s
            course.begin(found.now_ms - round(age_s * 1000), now_s)
        self._in_round, self._ends_at_s = True, now_s + lane.cleanup_interval_s
        self._left, self._to_read = lane.cleanup_batch_size, READ_SHARE * lane.cleanup_batch_size
        self._deleted = [0, 0]
        self.at_s = time.monotonic()

    def _slice(self, store: Store, now_s: float) -> None:
        course = next((course for course in self._courses if not course.is_done), None)
        if course is None or self._left <= 0 or self._to_read <= 0 or now_s >= self._ends_at_s:
            self._end(is_complete=course is None)
            return
        step = course.step(store, min(self._size.rows, self._left), now_s)
        end_s = time.monotonic()
        self._size.took(end_s - now_s, step.deleted)
        self._left, self._to_read = self._left - step.deleted, self._to_read - step.read
        self._deleted[course.is_terminal] += step.deleted
        self._slot.add(vitals.CLEANED_TERMINAL if course.is_terminal else vitals.CLEANED_ACTIVE, step.deleted)
        self.at_s = end_s + max(LEAST_PAUSE_S, SHARE * (end_s - now_s))

    def _end(self, is_complete: bool) -> None:
        # The next round begins where this one had to stop: old rows that stay must not use up every round's reading.
        ended = next((place for place, course in enumerate(self._courses) if not course.is_done), 0)
        self._courses = [*self._courses[ended:], *self._courses[:ended]]
        active, terminal = self._deleted
        if active or terminal:
            log.info(log.ROBOT_OUTBOX_CLEANUP_DELETED, active=active, terminal=terminal, is_complete=is_complete)
        self._in_round, self.at_s = False, self._ends_at_s


def _courses(lane: Lane) -> Sequence[Course]:
    kinds = (Kind.DELIVERED, Kind.FAILED) if lane.cleanup_terminal_after_s > 0 else ()
    return [Course(kind) for kind in (*((Kind.FRESH, Kind.TRIED) if lane.cleanup_active_after_s > 0 else ()), *kinds)]
