"""The bridge's process: takes messages from a queue, does them at Tencent IM, and tells the queue what became of each.

One loop, one thread, as a relay worker: outcomes, leases, what the queue is to be told, publishes, new messages. The
way to Tencent IM has the same filter, rate and breaker as a lane's: an outage is not poison (G6). What fails by the
receiver's fault stays in hand and is tried again; what fails by its own is given back to the queue, which counts it.
The outbox is never touched.
"""

import contextlib
import random
import time
from collections.abc import Callable
from functools import partial

from outboxd import log, vitals
from outboxd.backoff import exponential, jittered
from outboxd.bridge.api import Subscription
from outboxd.bridge.hand import OFFERED, OWED, READY, UNCHECKED, Hand
from outboxd.bridge.memory import Memory
from outboxd.bridge.report import Report
from outboxd.config.schema import Bridge
from outboxd.errors import PublisherError, StoreRefused, SubscriptionError
from outboxd.event import PARKED, Dead, Delivered, Outcome, Retry
from outboxd.guard import guard_drain
from outboxd.publishers.fanout import ALL, NONE, Fanout
from outboxd.publishers.route import Item
from outboxd.waiting import Waiting

AT_ONCE = 32
MOST_IN_HAND = 256
"""Messages; beyond it those that only wait are given back, uncounted where the queue can."""
RECEIVE_S, GLANCE_S = 1.0, 0.05
"""How long an idle bridge waits for a message, and a busy one between two looks."""
MOST_PROBES = 64
"""Messages in hand while the receiver fails: then they serve as probes again."""
HOLD_S, HOLD_MOST_S = 1.0, 30.0
"""Until what failed by the receiver's fault is tried again."""
AGAIN_S, AGAIN_MOST_S = 5.0, 300.0
"""Until what failed by its own fault comes again; queues may know less than the most."""
PAUSE_S, PAUSE_MOST_S = 1.0, 10.0
"""Between tries while the queue, or the memory, cannot be asked."""


def run_bridge(
    context: vitals.Context,
    bridge: Bridge,
    open_subscription: Callable[[], Subscription],
    open_memory: Callable[[], Memory],
    open_fanout: Callable[[], Fanout],
) -> int:
    """Carry messages on until asked to stop; the exit status. Made for a forked child: all it opens is its own."""
    guard_drain(context.stop.fileno(), bridge.publish_timeout_s)
    try:
        return BridgeWorker(context, bridge, open_subscription(), open_memory(), open_fanout()).run()
    except StoreRefused as error:
        log.error(log.DATABASE_REFUSED, error=str(error))
        return vitals.EXIT_NEEDS_PERSON
    except PublisherError as error:
        log.error(log.PUBLISHER_REFUSED, error=str(error))
        return vitals.EXIT_NEEDS_PERSON


class BridgeWorker:
    """One bridge's life."""

    def __init__(
        self, context: vitals.Context, bridge: Bridge, subscription: Subscription, memory: Memory, fanout: Fanout
    ) -> None:
        self._context, self._slot, self._bridge = context, context.slot, bridge
        self._subscription, self._memory, self._fanout = subscription, memory, fanout
        self._report = Report(context.slot)
        self._waiting = Waiting(context.stop.fileno())
        self._hands: list[Hand] = []
        self._by_item: dict[int, Hand] = {}  # by the event's id, those with the publisher
        self._extended_s = time.monotonic()
        self._failures = 0
        self._ask_again_s = 0.0
        self._probes = 0

    def run(self) -> int:
        """The loop."""
        self._slot.set_state(vitals.State.RUNNING)
        while not (self._context.stop.requested or self._context.orphaned() or self._fanout.worn_out):
            if not self._turn(is_ending=False):
                self._wait()
        return self._end()

    def _turn(self, is_ending: bool) -> bool:
        """One round of everything; True if there may be more to do at once."""
        now_s = time.monotonic()
        self._slot.beat(now_s)
        self._collect(now_s)
        received = now_s >= self._ask_again_s and self._ask(now_s, is_ending)
        if not is_ending:
            self._offer(now_s)
        self._fanout.pump(time.monotonic())
        self._note_breaker(now_s)
        self._slot.set_in_flight(len(self._hands))
        return received

    def _ask(self, now_s: float, is_ending: bool) -> bool:
        """All that needs the queue or the memory. A step that fails keeps none of the others from being taken."""
        failure: SubscriptionError | None = None
        received = False
        for step in (self._extend, self._tell, self._look_up, self._receive):
            if is_ending and step == self._receive:
                break
            try:
                received = step(now_s)
            except SubscriptionError as error:
                failure = failure or error
        if failure is None:
            self._failures = 0
            self._report.available()
        else:
            self._failures += 1
            self._ask_again_s = now_s + exponential(self._failures, PAUSE_S, PAUSE_MOST_S)
            self._report.unavailable(str(failure))
        return received

    # outcomes

    def _collect(self, now_s: float) -> None:
        for item, outcome in self._fanout.collect(now_s):
            hand = self._by_item.pop(item.event.id)
            self._settle(hand, outcome, now_s)

    def _settle(self, hand: Hand, outcome: Outcome, now_s: float) -> None:
        if isinstance(outcome, Delivered):
            hand.owe(partial(self._done, hand))
            self._slot.add(vitals.DELIVERED)
        elif isinstance(outcome, Dead):
            self._bury(hand, f"{outcome.reason}: {outcome.error}")
        elif not outcome.counted:
            self._hold(hand, outcome, now_s)
        elif hand.delivery.attempt >= self._bridge.max_reconsume_times:
            self._bury(hand, f"tried {hand.delivery.attempt} times, at last {outcome.reason}: {outcome.error}")
        else:
            after_s = exponential(hand.delivery.attempt, AGAIN_S, AGAIN_MOST_S)
            hand.owe(lambda: self._subscription.give_back(hand.delivery, after_s))
            self._slot.add(vitals.RETRIED)
            self._report.retryable(hand, outcome)

    def _hold(self, hand: Hand, outcome: Retry, now_s: float) -> None:
        if outcome.reason != PARKED:
            hand.tries += 1
            self._report.held(outcome)
        delay_s = jittered(exponential(max(1, hand.tries), HOLD_S, HOLD_MOST_S), 0.1, random.random)
        hand.put_off(now_s + delay_s)
        if len(self._hands) >= MOST_IN_HAND and self._fanout.all_closed:
            hand.owe(lambda: self._subscription.release([hand.delivery], self._subscription.invisible_s))

    def _bury(self, hand: Hand, reason: str) -> None:
        hand.owe(lambda: self._subscription.bury(hand.delivery, reason))
        self._slot.add(vitals.DEAD)
        self._report.dead(hand, reason)

    def _done(self, hand: Hand) -> None:
        if hand.message is not None:
            with contextlib.suppress(SubscriptionError):  # once acknowledged it does not come again
                self._memory.remember(hand.message)
        self._subscription.done([hand.delivery])

    # the queue

    def _tell(self, now_s: float) -> bool:
        """What the queue is owed. What is ours no longer comes again, or is another's: it is let go."""
        self._hands = [hand for hand in self._hands if hand.until_s > now_s or hand.state in (OFFERED, OWED)]
        for hand in [hand for hand in self._hands if hand.state == OWED]:
            assert hand.owed is not None
            self._hands.remove(hand)
            try:
                hand.owed()
            except SubscriptionError:
                if hand.until_s > now_s:
                    self._hands.append(hand)  # last, so that the others get their turn
                raise
        return False

    def _extend(self, now_s: float) -> bool:
        if now_s - self._extended_s < self._subscription.invisible_s / 3 or not self._hands:
            return False
        hands = list(self._hands)
        held = self._subscription.hold([hand.delivery for hand in hands])
        self._extended_s = now_s
        for hand, delivery in zip(hands, held, strict=True):
            hand.extend(delivery, now_s + self._subscription.invisible_s)
        return False

    def _look_up(self, _now_s: float) -> bool:
        """Is it a message, and not done yet?"""
        for hand in [hand for hand in self._hands if hand.state == UNCHECKED]:
            attempt = hand.delivery.attempt
            if hand.message is None:
                self._bury(hand, hand.problem)
            elif self._memory.is_done(hand.message):
                hand.owe(partial(self._subscription.done, [hand.delivery]))
                self._slot.add(vitals.UNMATCHED)
            elif attempt > self._bridge.max_reconsume_times:  # nobody was left to count the last one
                self._bury(hand, f"tried {attempt - 1} times, and never finished")
            else:
                hand.put_off(0.0)
        return False

    def _receive(self, now_s: float) -> bool:
        self._slot.set_in_flight(len(self._hands))  # before a wait
        room = self._room(now_s)
        if room <= 0:
            return False
        is_idle = not self._hands
        new = self._subscription.receive(room, RECEIVE_S if is_idle else 0.0)
        until_s = now_s + self._subscription.invisible_s
        if not self._hands:
            self._extended_s = now_s
        self._hands += [Hand(delivery, until_s) for delivery in new]
        self._slot.add(vitals.CLAIMED, len(new))
        return bool(new) or is_idle

    def _room(self, now_s: float) -> int:
        """How many messages may be taken now: while the receiver fails, one for every other probe, so that what is in
        hand, which may be all that fails, does not keep out the rest."""
        stuck = sum(hand.state in (UNCHECKED, OWED) for hand in self._hands)
        room = min(AT_ONCE - len(self._by_item) - stuck, MOST_IN_HAND - len(self._hands))
        appetite = self._fanout.appetite(now_s)
        if appetite == ALL:  # what has just failed may be the first of an outage: no more than a batch of that
            return room - sum(hand.state == READY and hand.tries <= 1 for hand in self._hands)
        is_probe = appetite != NONE and not self._by_item
        takes_new = not any(hand.state == READY for hand in self._hands) or (
            self._probes % 2 == 1 and len(self._hands) < MOST_PROBES
        )
        return min(room, 1) if is_probe and takes_new and not stuck else 0

    # the publisher

    def _offer(self, now_s: float) -> None:
        appetite = self._fanout.appetite(now_s)
        ready = sorted((hand for hand in self._hands if hand.state == READY), key=lambda hand: hand.try_at_s)
        if appetite == NONE or not ready:
            return
        self._probes += appetite != ALL and not self._by_item
        if appetite == ALL:
            ready = [hand for hand in ready if hand.try_at_s <= now_s][: AT_ONCE - len(self._by_item)]
        else:
            ready = [] if self._by_item else ready[:1]
        items: list[Item] = []
        for hand in ready:
            # Two lanes may use the same number, and the publisher tells events apart by it: one after the other.
            if hand.message is not None and hand.message.outbox_id not in self._by_item:
                items.append(hand.offered(hand.message))
                self._by_item[hand.message.outbox_id] = hand
        self._fanout.offer(items)

    def _note_breaker(self, now_s: float) -> None:
        for _, is_open in self._fanout.changes():
            if is_open:
                self._report.stopped(len(self._hands))
            else:
                self._report.resumed()
                for hand in self._hands:
                    if hand.state == READY:
                        hand.try_at_s = now_s

    # waiting and ending

    def _wait(self) -> None:
        now_s = time.monotonic()
        at_s = min(now_s + RECEIVE_S, self._fanout.wake_at_s(now_s))
        if self._fanout.appetite(now_s) == ALL and now_s >= self._ask_again_s:
            at_s = min(at_s, now_s + GLANCE_S)
        if self._ask_again_s > now_s:
            at_s = min(at_s, self._ask_again_s)
        read, write = self._fanout.descriptors()
        if self._waiting.wait(read, write, at_s - now_s):
            self._context.stop.clear()

    def _end(self) -> int:
        self._slot.set_state(vitals.State.STOPPING)
        log.info(log.DRAIN_STARTED, limit_s=self._bridge.publish_timeout_s, in_flight=len(self._by_item))
        since_s = time.monotonic()
        self._fanout.take_back()
        while self._fanout.in_flight and time.monotonic() < since_s + self._bridge.publish_timeout_s + 0.2:
            self._turn(is_ending=True)
            self._wait()
        self._ask_again_s = 0.0
        self._turn(is_ending=True)
        with contextlib.suppress(SubscriptionError):  # else they come again when they have been invisible long enough
            self._subscription.release([hand.delivery for hand in self._hands if hand.state != OWED], 0.0)
        self._subscription.close()
        self._memory.close()
        self._fanout.close(time.monotonic() + 0.5)
        self._waiting.close()
        took_s = round(time.monotonic() - since_s, 2)
        log.info(log.DRAIN_FINISHED, unsettled=len(self._hands), took_s=took_s)
        return vitals.EXIT_OK
