"""Where a worker's events come from: what a source promises, and the source of lanes without order."""

import random
import time
from collections.abc import Sequence
from typing import Protocol

from outboxd import log, vitals
from outboxd.config.schema import Lane
from outboxd.relay.doorbell import Doorbell
from outboxd.relay.ledger import Ledger
from outboxd.relay.meter import Meter
from outboxd.relay.planner import Holding, Look, Planner, Take
from outboxd.store.api import Store


class Source(Protocol):
    """Decides when to look and what to claim; claims go through the ledger, which settles in the same transaction."""

    @property
    def idle(self) -> bool:
        """The last look found nothing."""

    def connected(self, store: Store, now_s: float, others_pause_s: float) -> None:
        """A new session; what the ledger held is settled and renewed. others_pause_s: how long others that lost the
        database too may pause before they try again."""

    def keep(self, store: Store, now_s: float) -> None:
        """Before leases are renewed: keep what a claim rests on."""

    def woken(self, ids: Sequence[int], now_s: float, is_all: bool) -> None:
        """Parked events were made due now. is_all: many were, else one for a probe."""

    def rung(self, surely: bool) -> None:
        """The doorbell: something was committed. surely: this worker found work when it was last rung."""

    def freed(self) -> None:
        """Something was settled: there may be room in the byte budget again."""

    def turn(self, store: Store, now_s: float, holding: Holding) -> bool | None:
        """Look or claim, if it is time; did that write anything? None: nothing was to be done."""

    def wake_at_s(self, holding: Holding) -> float:
        """When to ask again (time.monotonic()) if nothing else happens."""

    def finished(self, store: Store) -> bool:
        """Is nothing left to be claimed, now or by waiting? Asked when idle. What only a person can let go does not
        count."""

    def end(self, store: Store) -> None:
        """The worker ends, its last outcomes are settled."""


class Unordered:
    """Claims whatever is due, oldest first, beside all other workers (SKIP LOCKED). Implements Source."""

    def __init__(
        self, lane: Lane, worker_id: str, ledger: Ledger, meter: Meter, slot: vitals.Slot, doorbell: Doorbell
    ) -> None:
        self._lane = lane
        self._ledger = ledger
        self._meter = meter
        self._slot = slot
        self._doorbell = doorbell
        self._planner = Planner(lane, worker_id, random.random, new_token)

    @property
    def idle(self) -> bool:
        return self._planner.idle

    def connected(self, store: Store, now_s: float, others_pause_s: float) -> None:
        self._planner.connected(now_s, others_pause_s)

    def keep(self, store: Store, now_s: float) -> None:
        pass

    def woken(self, ids: Sequence[int], now_s: float, is_all: bool) -> None:
        if is_all:
            self._planner.poll_soon(now_s)
        else:
            self._planner.look_soon(now_s)

    def rung(self, surely: bool) -> None:
        self._planner.rung(surely)

    def freed(self) -> None:
        self._planner.freed()

    def turn(self, store: Store, now_s: float, holding: Holding) -> bool | None:
        plan = self._planner.next(now_s, holding)
        if isinstance(plan, Take):
            return self._take(store, plan)
        if isinstance(plan, Look):
            self._look(store, plan)
            return False
        return None

    def wake_at_s(self, holding: Holding) -> float:
        return self._planner.wake_at_s(holding)

    def finished(self, store: Store) -> bool:
        return not store.unfinished()

    def end(self, store: Store) -> None:
        pass

    def _take(self, store: Store, take: Take) -> bool:
        """Claim, and settle what is owed; True if that wrote anything."""
        start_s = time.monotonic()
        self._slot.beat(start_s)
        owed = self._ledger.unsettled
        claim = self._ledger.exchange(store, take.want, take.floors, start_s)
        now_s = time.monotonic()
        self._planner.took(take, claim, now_s, now_s - start_s)
        self._meter.claims.observe(now_s - start_s)
        if take.sweep:
            self._meter.sweeps.observe(now_s - start_s)
        if owed:  # the budget was reckoned with what this very transaction has settled
            self._planner.freed()
        self._slot.add(vitals.CLAIMS)
        if take.rung:
            self._doorbell.answered(bool(claim.events))
        return owed or bool(claim.events or claim.oversize)

    def _look(self, store: Store, look: Look) -> None:
        start_s = time.monotonic()
        self._slot.beat(start_s)
        was_paused = self._planner.paused
        peek = store.peek(look.floors)
        now_s = time.monotonic()
        self._slot.add(vitals.LOOKS)
        self._planner.saw(look, peek, now_s, now_s - start_s)
        if look.rung and not peek.fresh:
            self._doorbell.answered(found=False)
        if look.sweep:
            self._meter.sweeps.observe(now_s - start_s)
        self._ledger.set_clock(peek.now_ms, now_s)
        if peek.paused != was_paused:
            tell_pause(self._lane.name, peek.paused)


def new_token() -> int:
    """For a claim: 1 to 2^62."""
    return random.getrandbits(62) | 1


def tell_pause(lane: str, paused: bool) -> None:
    """The lane was paused, or is resumed."""
    log.info(log.LANE_PAUSED if paused else log.LANE_RESUMED, lane=lane)
