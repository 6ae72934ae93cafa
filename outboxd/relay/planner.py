"""When to look, when to claim, how much and from where. Pure: `now_s` (time.monotonic()) comes in, plans go out.

A claim starts behind the last row taken (the floors), so that nothing already claimed is read again. Sweeps start from
zero: they catch transactions with lower ids that commit late, and leases that ran out. A sweep is never made sooner
than 50 times its own duration after the last one (at most 60 s), since under a long-open snapshot it has to read
everything relayed since. Its duration is the shorter one of the last two: a single slow sweep has met a lock, or a
database that has just started, and must not hide lost leases for a minute.

A transaction with a lower id often commits just after a higher one was claimed. Where there is no backlog, looks, and
the claims that follow them, start a little behind (the trailing floor), so that its ring finds it and no sweep has to.
"""

import math
from collections import deque
from collections.abc import Callable

import msgspec

from outboxd.config.schema import Lane
from outboxd.publishers.fanout import ALL, NONE, ONE
from outboxd.store.api import ZERO, Claim, Floors, Peek, Want

SWEEP_SHARE = 50
SWEEP_MOST_S = 60.0
PARKED_SHARE = 4
"""While a publisher is broken, one claim in so many takes parked rows; the rest are left to the healthy ones."""
PARKED_PAUSE = 40
"""And after such a claim none does for so many times its duration: a parked row costs more than its claim, since it is
written once more, and a million of them come due again and again."""
PARKED_PAUSE_MOST_S = 5.0
DROPPED_AT_ONCE = 250
"""Stale events of one claim: they are deleted, and the fewer transactions that takes the better for other lanes."""
DROP_PAUSE, DROP_PAUSE_MOST_S = 3, 1.0
"""After a claim of nothing but stale events its worker rests so many times as long, and as many times as the lane has
workers here: together they keep the database about as busy as one of them would."""
TRAIL_S = 0.25
"""A look starts where the floor was so long ago: a transaction may commit so late, and its ring still finds it."""
TRAIL_STEP_S = 0.025
"""The floor's past is kept in steps of this."""


class Holding(msgspec.Struct, frozen=True):
    """What the worker holds and can take. waiting: not yet handed to a publisher. appetite: of Fanout. all_closed: no
    breaker is open. stale_before_ms: events created earlier are thrown away; 0: none are."""

    count: int
    payload_bytes: int
    waiting: int
    suspect: bool
    appetite: str
    all_closed: bool
    stale_before_ms: int = 0


class Look(msgspec.Struct, frozen=True):
    """Peek from the floors. rung: because of the doorbell."""

    floors: Floors
    sweep: bool
    rung: bool = False


class Take(msgspec.Struct, frozen=True):
    """Claim from the floors. rung: it is the first one after the doorbell rang."""

    want: Want
    floors: Floors
    sweep: bool
    rung: bool = False


class Planner:
    """The state behind the decisions of one worker."""

    def __init__(self, lane: Lane, worker_id: str, random: Callable[[], float], token: Callable[[], int]) -> None:
        self._lane = lane
        self._worker_id = worker_id
        self._random = random
        self._token = token
        self.floors = ZERO
        self.paused = False
        self.poll_at_s = 0.0
        self._sweep_at_s = 0.0
        self._look_s = self._sweep_s = self._earlier_s = 0.0  # how long it took: the last sweep, and the one before
        self._sweeping = False
        self._trail = deque([(-math.inf, 0)])  # when the floor of fresh rows rose, and to what
        self._rung = self._follows_ring = False
        self._trails = self._backlog = False
        self._fresh = False
        self._due = False
        self._claims = 0
        self._parked_from_s = 0.0
        self._full = False
        self._suspects = False
        self._suspects_from_s = 0.0
        self._drops = False
        self._rests_until_s = 0.0
        self._others_until_s = 0.0
        self._suspects_until_s = 0.0

    def connected(self, now_s: float, others_pause_s: float = 0.0) -> None:
        """A new session: look at once, from the start, but leave other workers' lost leases alone for publish_timeout,
        so that those who lost the database too, and try again within others_pause_s, can settle first (G8)."""
        self.poll_at_s = self._sweep_at_s = now_s
        self._suspects = False
        self._suspects_from_s = now_s + others_pause_s + self._lane.publish_timeout_s

    def poll_soon(self, now_s: float) -> None:
        """Something was made due: look from the start at once."""
        self.poll_at_s = self._sweep_at_s = now_s

    def look_soon(self, now_s: float) -> None:
        """One event was made due now, which is behind the floors."""
        self.poll_at_s = now_s

    def rung(self, surely: bool) -> None:
        """Something was committed: look as soon as anything can be claimed. surely: claim without a look first."""
        if surely and self.idle:
            self._fresh = self._follows_ring = True
            self._trails = not self._backlog
        else:
            self._rung = True

    def freed(self) -> None:
        """Something was settled: there may be room in the byte budget again."""
        self._full = False

    @property
    def idle(self) -> bool:
        """The last look and claim found nothing."""
        return not (self._fresh or self._due)

    def next(self, now_s: float, holding: Holding) -> Look | Take | None:
        """What to do now; None: wait."""
        if now_s >= self.poll_at_s:
            return self._look(now_s)
        if self.paused or holding.suspect or holding.appetite == NONE:
            return None
        if self._is_suspects_turn(now_s):
            return self._take_suspect(holding.appetite) if not holding.count else None
        if self._rung and not self._fresh and not holding.waiting:
            return self._look(now_s)
        if holding.waiting or (self._full and holding.count) or self.idle or now_s < self._rests_until_s:
            return None
        self._rests_until_s = 0.0
        free_bytes = self._lane.max_inflight_bytes - holding.payload_bytes
        if free_bytes <= 0 or (holding.appetite == ONE and holding.count):
            return None
        fresh, due = self._fresh, self._due
        if not holding.all_closed and fresh and due:
            # Parked rows are most of the due ones now; a probe prefers an event that has not failed yet.
            in_turn = self._claims % PARKED_SHARE == 0 and now_s >= self._parked_from_s
            due = holding.appetite == ALL and in_turn
        limit = self._lane.batch_size if holding.appetite == ALL else 1
        want = self._want(limit, free_bytes, idle=holding.count == 0, fresh=fresh, due=due, suspects=False)
        if holding.stale_before_ms:
            want = self._with_stale(want, holding)
        floors = ZERO if self._sweeping else self._behind(now_s) if self._trails else self.floors
        return Take(want, floors, self._sweeping, self._follows_ring)

    def _with_stale(self, want: Want, holding: Holding) -> Want:
        """What is stale needs no publisher: of that a batch is taken even where only a probe may go, and more than a
        batch where nothing else came last time."""
        limit = max(DROPPED_AT_ONCE, self._lane.batch_size) if self._drops else self._lane.batch_size
        replaced: Want = msgspec.structs.replace(
            want, limit=limit, live_limit=want.limit, stale_before_ms=holding.stale_before_ms
        )
        return replaced

    def _look(self, now_s: float) -> Look:
        sweep = now_s >= self._sweep_at_s
        return Look(ZERO if sweep else self.floors if self._backlog else self._behind(now_s), sweep, self._rung)

    def _behind(self, now_s: float) -> Floors:
        """Where the floor of fresh rows was TRAIL_S ago, or a little earlier."""
        trail = self._trail
        while len(trail) > 1 and trail[1][0] <= now_s - TRAIL_S:
            trail.popleft()
        return Floors(min(trail[0][1], self.floors.fresh_id), self.floors.due_at_ms, self.floors.due_id)

    def _is_suspects_turn(self, now_s: float) -> bool:
        """Half of the time is for the others, as long as there are any."""
        return self._suspects and now_s >= self._suspects_from_s and (self.idle or now_s >= self._others_until_s)

    def _take_suspect(self, appetite: str) -> Take:
        lane = self._lane
        limit = lane.batch_size if appetite == ALL else 1
        want = self._want(limit, lane.max_inflight_bytes, idle=True, fresh=True, due=True, suspects=True)
        return Take(want, ZERO, True)

    def _want(self, limit: int, free_bytes: int, *, idle: bool, fresh: bool, due: bool, suspects: bool) -> Want:
        return Want(
            token=self._token(),
            worker_id=self._worker_id,
            lease_ms=round(self._lane.lease_s * 1000),
            limit=limit,
            budget_bytes=free_bytes,
            max_event_bytes=self._lane.max_event_bytes,
            idle=idle,
            fresh=fresh,
            due=due,
            suspects=suspects,
        )

    def saw(self, look: Look, peek: Peek, now_s: float, took_s: float) -> None:
        """What a look found."""
        self.poll_at_s = now_s + self._lane.poll_interval_s * (0.9 + 0.2 * self._random())
        self.paused = peek.paused
        self._fresh = self._fresh or peek.fresh
        self._due = self._due or peek.due
        self._rung, self._follows_ring = False, look.rung
        self._trails = not self._backlog
        if not peek.fresh and peek.last_id > self.floors.fresh_id:
            # What others relay moves this worker's floor, too: else each look would read all of it again.
            self._move(Floors(peek.last_id, self.floors.due_at_ms, self.floors.due_id), now_s)
        if look.sweep:
            self._earlier_s, self._look_s = self._sweep_s, took_s
            self._sweeping = peek.fresh or peek.due
            self._swept(now_s, took_s)

    def took(self, take: Take, claim: Claim, now_s: float, took_s: float) -> None:
        """What a claim found."""
        self._claims += 1
        start, end = take.floors, claim.floors
        found_fresh = claim.fresh_left or claim.cut_by_budget or end.fresh_id != start.fresh_id
        # A short claim may have passed over rows that are locked: another one sees. Not after a ring: who holds such
        # locks is another worker, or a producer who rings when they are free.
        goes_on = found_fresh and (not take.rung or claim.fresh_left or claim.cut_by_budget)
        moved = (end.due_at_ms, end.due_id) != (start.due_at_ms, start.due_id)
        found_due = claim.due_left or claim.cut_by_budget or moved
        self._follows_ring = self._trails = False
        if take.want.fresh:
            self._fresh = goes_on
            self._backlog = claim.fresh_left
        if take.want.due:
            self._due = found_due
            self._parked_from_s = now_s + min(PARKED_PAUSE_MOST_S, PARKED_PAUSE * took_s)
        self._full = claim.cut_by_budget and not claim.events
        before_ms = take.want.stale_before_ms
        self._drops = bool(claim.events) and all(0 < event.created_at_ms < before_ms for event in claim.events)
        if self._drops:
            self._rests_until_s = now_s + min(DROP_PAUSE_MOST_S, DROP_PAUSE * self._lane.concurrency * took_s)
        self._note_suspects(take, claim, now_s)
        if take.sweep:
            self._sweeping = False
            # Of claims this one alone: the suspects of a dead node are hundreds of them, each from the start.
            self._swept(now_s, self._look_s + took_s)
        # A class in which nothing was found keeps its floor: a sweep lowers it only by finding rows.
        fresh_id = end.fresh_id if take.want.fresh and found_fresh else self.floors.fresh_id
        due = end if take.want.due and found_due else self.floors
        self._move(Floors(fresh_id, due.due_at_ms, due.due_id), now_s)

    def _move(self, floors: Floors, now_s: float) -> None:
        self.floors = floors
        if floors.fresh_id != self._trail[-1][1] and now_s >= self._trail[-1][0] + TRAIL_STEP_S:
            self._trail.append((now_s, floors.fresh_id))

    def _note_suspects(self, take: Take, claim: Claim, now_s: float) -> None:
        if take.want.suspects:
            self._fresh = self._due = True  # what stood before and behind the suspect has not been looked at
            self._suspects = claim.suspects_wait or claim.suspect
            if now_s >= self._suspects_until_s:
                self._others_until_s = now_s + self._lane.poll_interval_s
                self._suspects_until_s = self._others_until_s + self._lane.poll_interval_s
        elif claim.suspects_wait and not self._suspects:
            self._suspects = True
            self._suspects_from_s = max(self._suspects_from_s, now_s)
            self._suspects_until_s = self._suspects_from_s + self._lane.poll_interval_s

    def _swept(self, now_s: float, took_s: float) -> None:
        self._sweep_s = took_s
        pause_s = min(SWEEP_MOST_S, SWEEP_SHARE * min(took_s, self._earlier_s))
        self._sweep_at_s = now_s + max(self._lane.poll_interval_s, pause_s)

    def wake_at_s(self, holding: Holding) -> float:
        """When to ask again if nothing else happens."""
        at_s = min(self.poll_at_s, self._rests_until_s or math.inf)
        if self._suspects and not holding.count:
            at_s = min(at_s, max(self._suspects_from_s, 0.0 if self.idle else self._others_until_s))
        return at_s
