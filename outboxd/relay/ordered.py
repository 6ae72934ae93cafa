"""The source of an ordered lane: partitions that this worker owns, their rooms in memory, claims by ids.

Only a partition's owner claims its rows, and a room's rows are all in one partition. So what keeps an event from being
claimed can be known here: it is read once, and what this worker does is noted as it does it. Rows are claimed one by
one as in any lane, so leases, fencing and suspects are the same. docs/decisions/0008 tells why.
"""

import random
import time
from collections.abc import Sequence

from outboxd import vitals
from outboxd.config.schema import Lane
from outboxd.publishers.fanout import ALL, NONE, ONE
from outboxd.publishers.ordered_fanout import OrderedFanout
from outboxd.relay.doorbell import Doorbell
from outboxd.relay.ledger import Ledger
from outboxd.relay.meter import Meter
from outboxd.relay.planner import Holding
from outboxd.relay.reading import Reading
from outboxd.relay.room import LIGHT
from outboxd.relay.rooms import Rooms
from outboxd.relay.source import new_token, tell_pause
from outboxd.relay.tenure import Tenure
from outboxd.store.api import ZERO, Partitions, Pick, Store

PER_ROOM = 32
"""Events of one room in hand, with a publisher that takes one at a time: enough until the next claim."""

RUN = 8
"""Events of one room at once, with a publisher that chains: they cost it less than those of as many rooms."""


class Ordered:
    """Implements Source."""

    def __init__(
        self,
        lane: Lane,
        worker_id: str,
        ledger: Ledger,
        fanout: OrderedFanout,
        meter: Meter,
        slot: vitals.Slot,
        doorbell: Doorbell,
    ) -> None:
        self._lane = lane
        self._worker_id = worker_id
        self._ledger = ledger
        self._fanout = fanout
        self._meter = meter
        self._slot = slot
        self._doorbell = doorbell
        self._rooms = Rooms(lane.blocks_on_dead)
        self._reading = Reading(lane, self._rooms, meter)
        self._tenure = Tenure(worker_id, lane.lease_s, lane.concurrency, new_token())
        self._paused = False
        self._suspects_from_s = self._suspects_until_s = 0.0
        self._found = self._has_rung = self._is_done = False
        self._had = -1  # so many events were to be claimed before the last read
        ledger.listener = self._rooms

    # the worker asks

    @property
    def idle(self) -> bool:
        return self._reading.is_done and not (self._found or self._reading.found)

    def connected(self, store: Store, now_s: float, others_pause_s: float) -> None:
        self._tenure.connected(_of(store), now_s)
        self._own()
        self._reading.all_again(now_s)
        self._suspects_from_s = now_s + others_pause_s + self._lane.publish_timeout_s

    def keep(self, store: Store, now_s: float) -> None:
        self._tenure.keep(_of(store), now_s)
        self._own()

    def woken(self, ids: Sequence[int], now_s: float, is_all: bool) -> None:
        self._rooms.hurried(ids)

    def rung(self, surely: bool) -> None:
        self._has_rung = True
        self._reading.poll_at_s = 0.0

    def freed(self) -> None:
        pass

    def finished(self, store: Store) -> bool:
        if not store.unfinished():
            return True
        # What is left is somebody else's or behind a dead letter; of what is nobody's, nobody knows what stands in it.
        self._is_done = self._rooms.are_all_blocked and self._tenure.leaves_none(_of(store))
        return self._is_done

    def end(self, store: Store) -> None:
        self._tenure.end(_of(store), self._is_done)

    def turn(self, store: Store, now_s: float, holding: Holding) -> bool | None:
        partitions = _of(store)
        self._rooms.wake(now_s)
        if self._upkeep(partitions, now_s):
            return False
        if self._paused or holding.suspect or holding.appetite == NONE:
            return None
        suspect = self._rooms.waits.suspect()
        if suspect is not None and self._is_suspects_turn(now_s):
            if holding.count:
                return None
            is_much = self._reading.look_for_late(partitions, now_s, surely=True)  # it was read a lease ago, or longer
            if is_much or self._rooms.waits.suspect() != suspect:
                return False
            return self._exchange(store, self._pick(ids=(suspect,), suspects=True))
        if not self._has_room(holding):
            return None
        return self._claim(store, partitions, now_s, holding)

    def _is_suspects_turn(self, now_s: float) -> bool:
        """Half of the time is for the others, as long as there are any."""
        if now_s < self._suspects_from_s:
            return False
        if now_s >= self._suspects_until_s:
            if self._suspects_until_s > self._suspects_from_s and not self.idle:
                self._suspects_from_s = now_s + self._lane.poll_interval_s
                return False
            self._suspects_until_s = now_s + self._lane.poll_interval_s
        return True

    def wake_at_s(self, holding: Holding) -> float:
        at_s = min(self._tenure.tick_at_s, self._rooms.waits.next_s)
        if self._tenure.numbers:
            at_s = min(at_s, self._reading.wake_at_s)
        may_claim = not (self._paused or holding.count or holding.appetite == NONE)
        if may_claim and self._rooms.waits.suspect() is not None:
            at_s = min(at_s, self._suspects_from_s)
        return at_s

    # what has to be done from time to time

    def _upkeep(self, partitions: Partitions, now_s: float) -> bool:
        """One statement or a few, if it is time for any."""
        if now_s >= self._tenure.tick_at_s:
            self._tick(partitions, now_s)
        elif self._reading.upkeep(partitions, now_s, self._has_rung):
            return True
        elif now_s >= self._reading.poll_at_s and self._tenure.numbers:
            self._look(partitions, now_s)
        else:
            return False
        return True

    def _tick(self, partitions: Partitions, now_s: float) -> None:
        in_hand = {self._rooms.number_of(row_id) for row_id in self._ledger.ids()}
        self._tenure.tick(partitions, now_s, in_hand)
        self._own()
        # Not what this tick has brought: one before it may have been cut short.
        new = self._reading.unread()
        self._reading.begin(partitions, sorted(new & self._tenure.clean), new - self._tenure.clean, now_s)

    def _own(self) -> None:
        self._reading.own(self._tenure.numbers, self._tenure.leaving)

    def _look(self, partitions: Partitions, now_s: float) -> None:
        peek = self._reading.look(partitions, now_s)
        self._slot.add(vitals.LOOKS)
        self._reading.poll_at_s = time.monotonic() + self._lane.poll_interval_s * random.uniform(0.9, 1.1)
        self._ledger.set_clock(peek.now_ms, time.monotonic())
        if self._has_rung and not (peek.fresh or peek.due):
            self._doorbell.answered(found=False)
        self._has_rung = False
        if peek.paused != self._paused:
            self._paused = peek.paused
            tell_pause(self._lane.name, peek.paused)

    # claims

    def _has_room(self, holding: Holding) -> bool:
        """May more be claimed, beside what is held?"""
        waits = holding.waiting or self._fanout.queued >= self._lane.batch_size
        return not waits and holding.payload_bytes < self._lane.max_inflight_bytes and (
            holding.appetite == ALL or not holding.count
        )  # fmt: skip

    def _claim(self, store: Store, partitions: Partitions, now_s: float, holding: Holding) -> bool | None:
        limit = 1 if holding.appetite == ONE else self._lane.batch_size
        budget_bytes = self._lane.max_inflight_bytes - holding.payload_bytes
        chains = self._fanout.chains
        most_held = self._lane.batch_size if chains else min(PER_ROOM, self._lane.batch_size)
        if self._reading.look_for_late(partitions, now_s):
            return False
        is_little = self._had < 0 and self._rooms.ready_count < limit
        if is_little and self._reading.read_more(partitions, now_s, budget_bytes):
            self._had = 0
            return False
        chosen = self._rooms.pick(limit, budget_bytes, most_held, not holding.count, RUN if chains else 1)
        # Of one room alone, or for the bytes allowed, the batch never gets full: read on only as long as that helps.
        if len(chosen) < limit and (not chosen or len(chosen) > self._had):
            self._had = len(chosen)
            if self._reading.read_more(partitions, now_s, budget_bytes):
                return False
        self._had = -1
        self._found, self._reading.found = bool(chosen), False
        if not chosen:
            return None
        pick = self._pick(
            rows=tuple([one for one in chosen if len(one) > LIGHT]),
            ids=tuple([one[0] for one in chosen if len(one) == LIGHT]),
        )
        return self._exchange(store, pick)

    def _pick(
        self, rows: tuple[tuple[object, ...], ...] = (), ids: tuple[int, ...] = (), *, suspects: bool = False
    ) -> Pick:
        lane = self._lane
        return Pick(
            token=new_token(), worker_id=self._worker_id, lease_ms=round(lane.lease_s * 1000),
            max_event_bytes=lane.max_event_bytes, owner=self._tenure.owner, numbers=tuple(sorted(self._tenure.numbers)),
            rows=rows, ids=ids, suspects=suspects,
        )  # fmt: skip

    def _exchange(self, store: Store, pick: Pick) -> bool:
        """Claim, and settle what is owed."""
        start_s = time.monotonic()
        self._slot.beat(start_s)
        claim = self._ledger.exchange(store, pick, ZERO, start_s)
        self._meter.claims.observe(time.monotonic() - start_s)
        self._slot.add(vitals.CLAIMS)
        if claim.events:
            self._doorbell.answered(found=True)
        if claim.disowned:
            self._tenure.disowned(claim.disowned)
            self._own()
        else:
            self._tenure.kept(start_s)
            self._rooms.missed(claim.missed)
        return True


def _of(store: Store) -> Partitions:
    partitions = store.partitions
    if partitions is None:
        raise AssertionError("the lane is ordered, its store is not")
    return partitions
