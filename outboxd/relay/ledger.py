"""Between publishers and store: the events held, and the outcomes that wait to be settled.

Invariants: an event stays held (its lease renewed, its bytes counted) until its outcome is in the database, its claim
is lost or its row is gone. An outcome leaves the buffer only when a settle has answered; a settle without an answer is
repeated on the next connection, where the claim's token tells what was already written.
"""

from collections.abc import Callable, Iterable, Sequence

from outboxd import vitals
from outboxd.config.schema import Lane
from outboxd.errors import CommitInDoubt
from outboxd.event import Delivered, Event, RoomKey, room_of
from outboxd.publishers.fanout import Fanout
from outboxd.publishers.ordered_fanout import BEHIND
from outboxd.publishers.route import Item
from outboxd.relay import policy
from outboxd.relay.flight import Claimed, Flight
from outboxd.relay.listener import Listener, Owed
from outboxd.relay.meter import Meter
from outboxd.relay.parked import Parked
from outboxd.relay.report import Report
from outboxd.relay.stale import Stale, is_stale
from outboxd.store.api import RELEASED, RETRYABLE, ZERO, Claim, Floors, Pick, Settled, Store, Want


class Ledger:
    """What one worker holds and owes. listener: may be set before the first claim."""

    def __init__(
        self, lane: Lane, fanout: Fanout, slot: vitals.Slot, meter: Meter, random: Callable[[], float]
    ) -> None:
        self._lane = lane
        self._lease_ms = round(lane.lease_s * 1000)
        self._fanout = fanout
        self._slot = slot
        self._meter = meter
        self._random = random
        self._report = Report(slot, lane.name)
        self._flight = Flight(lane.lease_s)
        self._buffer: list[Owed] = []
        self._oldest_s = 0.0
        self._parked = Parked()
        self._flowing = False
        self._doubt: tuple[int, tuple[int, ...], float, bool] = (0, (), 0.0, False)
        self._asked: tuple[float, bool] = (0.0, False)
        self._stale = Stale(lane.stale_discard_after_s)
        self._clock_ms = self._clock_s = 0.0
        self.listener: Listener | None = None

    @property
    def count(self) -> int:
        """Events held."""
        return len(self._flight)

    def ids(self) -> list[int]:
        """Of the events held."""
        return [row_id for claimed in self._flight.claims() for row_id in claimed.items]

    @property
    def payload_bytes(self) -> int:
        """Of the events held."""
        return self._flight.payload_bytes

    @property
    def has_suspect(self) -> bool:
        """Is a suspect held? Then nothing else may be."""
        return self._flight.suspect is not None

    @property
    def publishing(self) -> bool:
        """Is an event with a publisher, or waiting for one?"""
        return len(self._flight) > len(self._buffer)

    @property
    def unsettled(self) -> bool:
        """Do outcomes wait to be written?"""
        return bool(self._buffer)

    def set_clock(self, database_ms: int, now_s: float) -> None:
        """The database's time at now_s (time.monotonic()); only ages are reckoned with it."""
        self._clock_ms, self._clock_s = float(database_ms), now_s

    def _database_ms(self, now_s: float) -> float:
        return self._clock_ms and self._clock_ms + (now_s - self._clock_s) * 1000

    # stale events

    def stale_before_ms(self, now_s: float) -> int:
        """Events that were created earlier are thrown away; 0: none are."""
        return self._stale.before_ms(self._database_ms(now_s))

    def drop_stale(self, now_s: float, is_last: bool = False) -> None:
        """What has become stale while it waited for a publisher is not published any more. is_last: the worker ends."""
        self._report.tell_discarded(now_s, is_last)
        for item in self._stale.taken_back(self._fanout, self._flight, self.stale_before_ms(now_s), now_s):
            self._owe([(item, policy.discard(item.event, item.token))], now_s)

    # outcomes

    def collect(self, now_s: float) -> None:
        """Take in what the publishers have finished."""
        finished = self._fanout.collect(now_s)
        if not finished:
            return
        self._note_breakers()
        database_ms = self._database_ms(now_s)
        outage_s = self._fanout.outage_s(now_s)
        observe, tells_each, delivered = self._meter.deliveries.observe, self._report.tells_each, 0
        ended: list[Owed] = []
        for item, outcome in finished:
            event = item.event
            if outcome is BEHIND:
                ended.append((item, policy.release(event, item.token)))
                continue
            settlement = policy.settlement_of(
                event, item.token, outcome, self._lane, outage_s, database_ms, self._random
            )
            ended.append((item, settlement))
            is_delivered = outcome.__class__ is Delivered
            if is_delivered:
                delivered += 1
                if event.created_at_ms:
                    observe((database_ms - event.created_at_ms) / 1000)
            if tells_each or not is_delivered:
                self._report.outcome(event, outcome, settlement)
        self._report.delivered(delivered)
        self._owe(ended, now_s)

    def _note_breakers(self) -> None:
        flowing = self._fanout.all_closed
        if flowing and not self._flowing:
            self._parked.wake_all()
        self._flowing = flowing
        self._report.breakers(self._fanout)

    @property
    def waking(self) -> bool:
        """Are parked events to be pulled forward, since their publisher works again?"""
        return self._parked.waking

    def wake_parked(self, store: Store) -> list[int]:
        """Pull some of them forward; which ones."""
        return self._parked.wake(store.hurry)

    def wake_one(self, store: Store) -> list[int]:
        """Pull one parked event forward, for a probe; none, if none is known to rest."""
        return self._parked.wake_one(store.hurry)

    def _owe(self, ended: Sequence[Owed], now_s: float) -> None:
        if not self._buffer:
            self._oldest_s = now_s
        self._buffer += ended
        if self.listener is not None:
            self.listener.owed(ended, now_s)

    def must_settle(self, now_s: float, within_s: float, hurry: bool, idle_within_s: float = 0.0) -> bool:
        """Is it time to settle even if nothing is to be claimed? within_s: of the first outcome, while others are
        awaited; idle_within_s: when all are there. hurry: at once."""
        if not self._buffer:
            return False
        late = now_s >= self._settle_at_s(within_s, idle_within_s)
        return late or hurry or len(self._buffer) >= self._lane.batch_size

    def _settle_at_s(self, within_s: float, idle_within_s: float) -> float:
        return self._oldest_s + (within_s if self.publishing else idle_within_s)

    def wake_at_s(self, within_s: float, idle_within_s: float = 0.0) -> float:
        """When a settle or a renewal is due, or forever."""
        settle_s = self._settle_at_s(within_s, idle_within_s) if self._buffer else float("inf")
        return min(settle_s, self._flight.next_renewal_s())

    # exchange with the store

    def exchange(self, store: Store, want: Want | Pick | None, floors: Floors, now_s: float) -> Claim:
        """Settle what is owed and claim; the claim's events are with the publishers when this returns. now_s: from
        before, so that no lease seems longer here than it is."""
        owed = self._buffer
        self._asked = (now_s, want is not None and want.suspects)
        if owed:  # before, so that no event is delivered and never counted, whenever this process is killed
            self._meter.write(now_s, settled=True)
        settled, claim = store.exchange([settlement for _, settlement in owed], want, floors)
        self._buffer = []
        if owed:
            self._account(owed, settled, now_s)
        if want is not None:
            self._admit(claim, now_s)
        return claim

    def _account(self, owed: Sequence[Owed], settled: Settled, now_s: float) -> None:
        self._slot.add(vitals.SETTLES)
        strange = frozenset(settled.lost) | frozenset(settled.gone)
        self._flight.finish(item for item, _ in owed)
        if self.listener is not None:
            self.listener.settled(owed, strange)
        for item, settlement in owed:
            if settlement.id in strange:
                gone = settlement.id in settled.gone
                (self._report.gone if gone else self._report.lost)(item.event)
            elif settlement.status == RETRYABLE and not settlement.counted and not self._flowing:
                self._parked.note(settlement.id, settlement.token)
            elif settlement.status == RELEASED:
                self._slot.add(vitals.RELEASED)
            elif policy.is_discard(settlement):
                self._report.discarded(item.event, self._database_ms(now_s), now_s)

    def _admit(self, claim: Claim, since_s: float) -> None:
        items = self._flight.add(claim.token, claim.events, since_s, claim.suspect)
        self._slot.add(vitals.CLAIMED, len(items) + len(claim.oversize))
        if claim.suspect:
            self._slot.add(vitals.SUSPECTS)
        for event, size_bytes in claim.oversize:
            (item,) = self._flight.add(claim.token, (event,), since_s)
            if self.listener is not None:
                self.listener.admitted((event,))
            settlement, dead = policy.oversize(event, claim.token, size_bytes, self._lane.max_event_bytes)
            self._owe([(item, settlement)], since_s)
            self._report.outcome(event, dead, settlement)
        self._hand_over(items, since_s, [event for event, _ in claim.oversize])

    def _hand_over(self, items: list[Item], now_s: float, dead: Iterable[Event] = ()) -> None:
        """dead: those of the same claim that are dead letters already."""
        if self.listener is not None:
            self.listener.admitted([item.event for item in items])
        fit: list[Item] = []
        blocks, ends = self._lane.blocks_on_dead, dict[RoomKey, int]()  # a room's first dead letter
        for event in dead if blocks else ():
            ends.setdefault(room_of(event), event.id)
        before_ms = self.stale_before_ms(now_s)
        for item in items:
            if ends and item.event.id > ends.get(room_of(item.event), item.event.id):
                self._owe([(item, policy.release(item.event, item.token))], now_s)
                continue
            if before_ms and is_stale(item.event, before_ms):
                self._owe([(item, policy.discard(item.event, item.token))], now_s)
            elif item.event.retry_count and policy.over_limit(item.event, self._lane):
                settlement, end = policy.limit_exceeded(item.event, item.token)
                self._owe([(item, settlement)], now_s)
                self._report.outcome(item.event, end, settlement)
                if blocks:
                    ends.setdefault(room_of(item.event), item.event.id)
            else:
                fit.append(item)
        self._stale.handed_over(item.event for item in fit)
        unmatched = self._fanout.offer(fit)
        if unmatched:
            self._slot.add(vitals.UNMATCHED, unmatched)

    # leases

    def renew(self, store: Store, now_s: float) -> None:
        """Lengthen leases past half of their life; what is no longer ours is not published any more."""
        for claimed in self._flight.due_for_renewal(now_s):
            self._renew(store, claimed, now_s)

    def _renew(self, store: Store, claimed: Claimed, now_s: float) -> None:
        ids = tuple(claimed.items)
        if store.renew(claimed.token, ids, self._lease_ms) < len(ids):
            held = store.held(claimed.token, ids)
            lost = {row_id for row_id in ids if row_id not in held}
            # What is with a publisher already ends there, and goes no further; its settle is fenced off.
            for row_id in lost:
                claimed.items[row_id].later = ()
            for item in self._fanout.take_back(lambda item: item.event.id not in lost or item.token != claimed.token):
                self._flight.finish((item,))
                self._report.lost(item.event)
                if self.listener is not None:
                    self.listener.lost(item.event)
        claimed.extend(now_s, self._lane.lease_s)

    def release_waiting(self, now_s: float) -> None:
        """Give back what no publisher has been asked about (drain)."""
        for item in self._fanout.take_back():
            self._owe([(item, policy.release(item.event, item.token))], now_s)

    # a connection lost and found

    def note_doubt(self, error: CommitInDoubt) -> None:
        """Remember a claim whose COMMIT got no answer."""
        if error.token:
            self._doubt = (error.token, error.ids, *self._asked)

    def recover(self, store: Store, now_s: float) -> None:
        """First of all on a new connection: settle what is owed, find the claim in doubt, renew every lease."""
        self._slot.add(vitals.RECONNECTS)
        if self._buffer:
            self.exchange(store, None, ZERO, now_s)
        token, ids, since_s, suspect = self._doubt
        if token:
            events = store.fetch(token, ids)
            self._doubt = (0, (), 0.0, False)
            items = self._flight.add(token, events, since_s, suspect and len(events) == 1)
            if self.listener is None or self.has_suspect:
                self._hand_over(items, now_s)
            else:  # an event in front of them may have failed meanwhile
                self.listener.admitted(events)
                self._owe([(item, policy.release(item.event, item.token)) for item in items], now_s)
        for claimed in self._flight.claims():
            self._renew(store, claimed, now_s)
