"""The relay worker: one thread, one loop, one selector. Claims events, hands them to the publishers, settles outcomes.

One turn: collect outcomes, settle them (at the latest 50 ms after the first), renew leases past half-life, claim while
there is room, submit, wait. It does not work batch by batch, so a slow event holds up nothing. While there is backlog
it never sleeps; when nothing is found it waits for `poll_interval` or a signal.
"""

import contextlib
import gc
import random
import time
from collections.abc import Callable

from outboxd import log, vitals
from outboxd.config.schema import Lane
from outboxd.errors import CommitInDoubt, PublisherError, StoreConflict, StoreRefused, StoreUnavailable
from outboxd.guard import guard_drain
from outboxd.publishers.fanout import NONE, Fanout
from outboxd.publishers.ordered_fanout import OrderedFanout
from outboxd.relay.cleaner import Cleaner
from outboxd.relay.doorbell import LONGEST_DELAY_S, OWNER_DELAY_S, Doorbell
from outboxd.relay.drain import Drain
from outboxd.relay.ledger import Ledger
from outboxd.relay.link import Link
from outboxd.relay.meter import Meter
from outboxd.relay.ordered import Ordered
from outboxd.relay.planner import Holding
from outboxd.relay.source import Source, Unordered
from outboxd.store.api import ZERO, Store
from outboxd.waiting import Waiting

SETTLE_WITHIN_S = 0.05
SETTLE_RUNG_S = 0.01
"""When nothing is being published, and rings bring work: the next one's claim takes the outcomes along."""
CONFLICT_PAUSE_S = 0.1
PING_AFTER_S = 10.0
WAKE_ONE_EVERY_S = 1.0
"""The event woken for a probe may turn out to wait for another publisher: so often one is tried."""
LONGEST_WAIT_S = 1.0
"""The loop turns at least this often: it beats, and sees whether its supervisor is gone."""

WORKER_ID_CHARACTERS = 64
"""The width of the column `worker_id`."""


def run_worker(
    context: vitals.Context,
    lane: Lane,
    open_store: Callable[[], Store],
    open_fanout: Callable[[], Fanout],
    until_empty: bool = False,
    metrics_dir: str | None = None,
    redis_url: str | None = None,
) -> int:
    """Relay a lane until asked to stop; the exit status. Made for a forked child: everything it opens is its own.

    open_store, open_fanout: called here, in the process that uses what they make. until_empty: end, with 0, when every
    event is delivered or failed (delayed events that are not due do not count). metrics_dir: the folder of the metrics'
    files; None: none are written. redis_url: where producers ring; None: nobody does.
    """
    # Rows and events come and go by the hundred, and few of them in circles: the collector need not look so often.
    gc.set_threshold(50_000, 10, 10)
    begin_drain = guard_drain(context.stop.fileno(), lane.publish_timeout_s)
    try:
        fanout = open_fanout()
        meter = Meter(metrics_dir, context.slot.index, lane.name, fanout.routes)
        # In an ordered lane nobody else can answer for this one's rooms.
        doorbell = Doorbell(redis_url, lane.name, OWNER_DELAY_S if lane.is_ordered else LONGEST_DELAY_S)
        return Worker(context, lane, open_store, fanout, meter, until_empty, begin_drain, doorbell).run()
    except StoreRefused as error:
        log.error(log.DATABASE_REFUSED, error=str(error))
        return vitals.EXIT_NEEDS_PERSON
    except PublisherError as error:
        log.error(log.PUBLISHER_REFUSED, error=str(error))
        return vitals.EXIT_NEEDS_PERSON


def fitting(worker_id: str) -> str:
    """The worker's name as its column holds it: cut in the middle of the node's name, so that the number stays."""
    if len(worker_id) <= WORKER_ID_CHARACTERS:
        return worker_id
    return f"{worker_id[: WORKER_ID_CHARACTERS - 53]}~{worker_id[-52:]}"


class Worker:
    """One worker's life."""

    def __init__(
        self,
        context: vitals.Context,
        lane: Lane,
        open_store: Callable[[], Store],
        fanout: Fanout,
        meter: Meter,
        until_empty: bool,
        begin_drain: Callable[[], None],
        doorbell: Doorbell,
    ) -> None:
        self._context = context
        self._slot = context.slot
        self._lane = lane
        self._until_empty = until_empty
        self._begin_drain = begin_drain
        self._doorbell = doorbell
        self._fanout = fanout
        self._meter = meter
        self._link = Link(open_store, random.random)
        self._ledger = Ledger(lane, fanout, context.slot, meter, random.random)
        name = fitting(context.worker_id)
        self._source: Source
        if isinstance(fanout, OrderedFanout):
            self._source = Ordered(lane, name, self._ledger, fanout, meter, context.slot, doorbell)
        else:
            self._source = Unordered(lane, name, self._ledger, meter, context.slot, doorbell)
        self._cleaner = Cleaner(lane, context.slot)
        self._waiting = Waiting(context.stop.fileno())
        self._drain: Drain | None = None
        self._not_before_s = 0.0
        self._conflicts = False
        self._used_s = 0.0
        self._wake_one_at_s = 0.0
        self._empty = False
        self._recovered = False

    def run(self) -> int:
        """The loop."""
        self._slot.set_state(vitals.State.RUNNING)
        while True:
            now_s = time.monotonic()
            self._slot.beat(now_s)
            self._heed_signals(now_s)
            if self._drain is not None and self._drain.over(now_s, self._ledger):
                break
            if self._empty and not self._ledger.count:
                break
            busy = self._turn(now_s)
            self._slot.set_in_flight(self._ledger.count)
            self._meter.write(now_s)
            if not busy:
                self._wait()
        return self._end()

    def _heed_signals(self, now_s: float) -> None:
        if self._drain is not None:
            self._drain.hurry = self._drain.hurry or self._context.stop.requested > 1
            return
        if self._context.stop.requested or self._context.orphaned() or self._fanout.worn_out:
            log.info(log.DRAIN_STARTED, limit_s=self._lane.publish_timeout_s, in_flight=self._ledger.count)
            self._slot.set_state(vitals.State.STOPPING)
            self._begin_drain()
            self._drain = Drain(now_s, self._lane.publish_timeout_s)
            self._ledger.release_waiting(now_s)

    def _turn(self, now_s: float) -> bool:
        """One round of everything; True if there may be more to do at once."""
        self._ledger.collect(now_s)
        self._ledger.drop_stale(now_s)
        took = False
        if now_s >= self._not_before_s:
            try:
                took = self._use_store(now_s)
            except StoreConflict as error:
                if not self._conflicts:  # one line, however long another transaction keeps its locks
                    log.info(log.WORKER_BATCH_FAILED, error=str(error))
                self._conflicts = True
                self._not_before_s = time.monotonic() + CONFLICT_PAUSE_S * (1 + random.random())
            except StoreUnavailable as error:
                if isinstance(error, CommitInDoubt):
                    self._ledger.note_doubt(error)
                self._link.lost(error)
        self._fanout.pump(time.monotonic())
        return took

    def _use_store(self, now_s: float) -> bool:
        if self._link.store is None:
            # A connection attempt may take seconds; until the publishes in flight have ended they come first.
            if self._fanout.in_flight or not self._link.connect(now_s):
                return False
            self._recovered = False
        store = self._link.store
        if store is None:
            return False
        if not self._recovered:
            self._recover(store)
        self._source.keep(store, now_s)
        self._ledger.renew(store, now_s)
        if self._ledger.waking and self._drain is None:
            self._source.woken(self._ledger.wake_parked(store), now_s, is_all=True)
        elif now_s >= self._wake_one_at_s and self._drain is None and self._fanout.lacks_probe(now_s):
            self._wake_one_at_s = now_s + WAKE_ONE_EVERY_S
            woken = self._ledger.wake_one(store)
            if woken:
                self._source.woken(woken, now_s, is_all=False)
        if self._drain is None:
            self._cleaner.turn(store, now_s)
        wrote = None
        if self._drain is None and not self._empty:
            wrote = self._source.turn(store, now_s, self._holding(now_s))
        if wrote is not None:
            if self._until_empty and self._source.idle and not self._ledger.count:
                self._empty = self._source.finished(store)
        elif self._ledger.must_settle(now_s, SETTLE_WITHIN_S, self._drain is not None, self._settle_idle_s):
            self._ledger.exchange(store, None, ZERO, now_s)
            self._source.freed()
            wrote = True
        elif now_s - self._used_s >= PING_AFTER_S:
            store.ping()
        else:
            return False
        self._used_s = time.monotonic()
        self._link.used(self._used_s, bool(wrote))
        self._conflicts = self._conflicts and not wrote
        return True

    def _recover(self, store: Store) -> None:
        now_s = time.monotonic()
        self._ledger.recover(store, now_s)
        if self._drain is not None:
            self._ledger.release_waiting(now_s)
        self._source.connected(store, time.monotonic(), self._link.others_pause_s())
        self._recovered = True

    def _holding(self, now_s: float) -> Holding:
        ledger = self._ledger
        return Holding(
            count=ledger.count,
            payload_bytes=ledger.payload_bytes,
            waiting=self._fanout.waiting,
            suspect=ledger.has_suspect,
            appetite=self._fanout.appetite(now_s),
            all_closed=self._fanout.all_closed,
            stale_before_ms=ledger.stale_before_ms(now_s),
        )

    def _wait(self) -> None:
        now_s = time.monotonic()
        at_s = min(now_s + LONGEST_WAIT_S, self._fanout.wake_at_s(now_s))
        if self._link.store is None:
            at_s = min(at_s, max(self._link.retry_at_s, now_s + 0.01))
        else:
            at_s = min(at_s, max(self._not_before_s, self._ledger.wake_at_s(SETTLE_WITHIN_S, self._settle_idle_s)))
        if self._link.store is not None and self._drain is None:
            holding = self._holding(now_s)
            at_s = min(at_s, max(self._not_before_s, min(self._source.wake_at_s(holding), self._cleaner.at_s)))
            if holding.appetite == NONE:
                at_s = min(at_s, self._fanout.asks_again_at_s(now_s))
        if self._drain is not None:
            at_s = min(at_s, self._drain.deadline_s)
        read, write = self._fanout.descriptors()
        if self._waiting.wait(read | {self._doorbell.fileno()}, write, at_s - now_s):
            self._context.stop.clear()
        if self._doorbell.heard():
            self._slot.add(vitals.RINGS)
            self._source.rung(surely=self._doorbell.is_quick)

    @property
    def _settle_idle_s(self) -> float:
        return SETTLE_RUNG_S if self._doorbell.is_quick else 0.0

    def _end(self) -> int:
        self._meter.write(time.monotonic(), settled=True)
        self._ledger.drop_stale(time.monotonic(), is_last=True)
        self._doorbell.close()
        store = self._link.store
        if store is not None:
            with contextlib.suppress(StoreConflict, StoreUnavailable):  # what is not given back runs out by itself
                self._source.end(store)
        self._fanout.close(time.monotonic() + 0.5)
        self._link.close()
        self._waiting.close()
        if self._drain is not None:
            log.info(log.DRAIN_FINISHED, unsettled=self._ledger.count, took_s=round(self._drain.age_s(), 2))
        return vitals.EXIT_OK
