"""The bridge's process: takes messages from a queue, does them at Tencent IM, and tells the queue what became of each.

One loop, one thread: take some, publish them all, settle each. Done: remembered, then acknowledged. Dead, or tried too
often: to the queue's dead letters. While the receiver fails for everybody, what was taken is held in hand and costs no
attempt (G6); what fails while others succeed is given back, and its attempts count. The outbox is never touched.
"""

import contextlib
import logging
import select
import time
from collections.abc import Callable, Sequence

from outboxd import log, vitals
from outboxd.backoff import exponential
from outboxd.bridge.api import Delivery, Subscription
from outboxd.bridge.memory import Memory
from outboxd.config.schema import Bridge
from outboxd.errors import PublisherError, StoreRefused, SubscriptionError
from outboxd.event import Dead, Delivered, Event, Outcome, Retry
from outboxd.guard import guard_drain
from outboxd.message import InvalidMessage, Message, decode
from outboxd.publishers.api import Publisher

AT_ONCE = 32
RECEIVE_S = 1.0
PAUSE_S, PAUSE_MOST_S = 1.0, 10.0
"""Between tries while the receiver fails, and while the queue cannot be asked."""
AGAIN_S, AGAIN_MOST_S = 5.0, 300.0
"""Until a message that failed by itself comes again; queues may know less than the most."""


def run_bridge(
    context: vitals.Context,
    bridge: Bridge,
    open_subscription: Callable[[], Subscription],
    open_memory: Callable[[], Memory],
    open_publisher: Callable[[], Publisher],
) -> int:
    """Carry messages on until asked to stop; the exit status. Made for a forked child: all it opens is its own."""
    guard_drain(context.stop.fileno(), bridge.publish_timeout_s)
    try:
        worker = BridgeWorker(context, bridge, open_subscription(), open_memory(), open_publisher())
        return worker.run()
    except StoreRefused as error:
        log.error(log.DATABASE_REFUSED, error=str(error))
        return vitals.EXIT_NEEDS_PERSON
    except PublisherError as error:
        log.error(log.PUBLISHER_REFUSED, error=str(error))
        return vitals.EXIT_NEEDS_PERSON


class BridgeWorker:
    """One bridge's life."""

    def __init__(
        self,
        context: vitals.Context,
        bridge: Bridge,
        subscription: Subscription,
        memory: Memory,
        publisher: Publisher,
    ) -> None:
        self._context = context
        self._slot = context.slot
        self._bridge = bridge
        self._subscription = subscription
        self._memory = memory
        self._publisher = publisher
        self._held: list[Delivery] = []
        self._held_since_s = 0.0
        self._try_at_s = 0.0
        self._tries = 0
        self._failures = 0

    def run(self) -> int:
        """The loop."""
        self._slot.set_state(vitals.State.RUNNING)
        while not (self._context.stop.requested or self._context.orphaned()):
            self._slot.beat(time.monotonic())
            try:
                self._turn()
            except SubscriptionError as error:
                self._failures += 1
                if self._failures == 1:
                    log.warning(log.SUBSCRIPTION_UNAVAILABLE, error=str(error))
                self._sleep(exponential(self._failures, PAUSE_S, PAUSE_MOST_S))
        return self._end()

    def _turn(self) -> None:
        now_s = time.monotonic()
        if self._held and now_s < self._try_at_s:
            if now_s - self._held_since_s > self._subscription.invisible_s / 3:
                self._hold(self._held)
            self._sleep(min(RECEIVE_S, self._try_at_s - now_s))
            return
        # While some are held, new ones come along: if those succeed, it is not the receiver that fails.
        new = self._subscription.receive(AT_ONCE, 0.05 if self._held else RECEIVE_S)
        if self._failures:
            log.info(log.SUBSCRIPTION_AVAILABLE)
            self._failures = 0
        if self._held:
            self._hold(self._held)
        self._slot.add(vitals.CLAIMED, len(new))
        batch, self._held = [*self._held, *new], []
        if batch:
            self._handle(batch)

    def _hold(self, deliveries: Sequence[Delivery]) -> None:
        self._held = self._subscription.hold(deliveries)
        self._held_since_s = time.monotonic()

    def _handle(self, batch: Sequence[Delivery]) -> None:
        wanted: list[tuple[Delivery, Message]] = []
        for delivery in batch:
            try:
                message = decode(delivery.body)
            except InvalidMessage as error:
                self._bury(delivery, None, str(error))
                continue
            if delivery.attempt > self._bridge.max_reconsume_times:  # nobody was left to count the last one
                self._bury(delivery, message, f"tried {delivery.attempt - 1} times, and never finished")
                continue
            wanted.append((delivery, message))
        try:
            wanted = [pair for pair in wanted if not self._is_repeated(*pair)]
        except SubscriptionError:  # the memory is away, which is nobody's attempt
            self._hold(batch)
            self._try_at_s = time.monotonic() + PAUSE_S
            raise
        self._slot.set_in_flight(len(wanted))
        outcomes = self._publish([message for _, message in wanted])
        works = any(isinstance(outcome, Delivered) for outcome in outcomes)
        held: list[Delivery] = []
        for (delivery, message), outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, Retry) and not (outcome.counted or works):
                held.append(delivery)
            else:
                self._settle(delivery, message, outcome)
        self._slot.set_in_flight(len(held))
        self._note_held(held, outcomes)

    def _is_repeated(self, delivery: Delivery, message: Message) -> bool:
        if not self._memory.is_done(message):
            return False
        self._subscription.done([delivery])
        self._slot.add(vitals.UNMATCHED)
        return True

    def _note_held(self, held: list[Delivery], outcomes: Sequence[Outcome]) -> None:
        if not held:
            if self._tries and outcomes:
                log.info(log.BRIDGE_RESUMED)
                self._tries = 0
            return
        self._tries += 1
        reason = next(outcome for outcome in outcomes if isinstance(outcome, Retry) and not outcome.counted)
        if self._tries == 1:
            log.warning(log.BRIDGE_HELD, reason=reason.reason, error=reason.error, held=len(held))
        pause_s = max(exponential(self._tries, PAUSE_S, PAUSE_MOST_S), min(reason.retry_after_s or 0.0, 60.0))
        self._try_at_s = time.monotonic() + pause_s
        self._hold(held)

    def _publish(self, messages: Sequence[Message]) -> list[Outcome]:
        """An outcome for each, within publish_timeout: what the publisher has no room for waits for the others."""
        events = [_event(number, message) for number, message in enumerate(messages)]
        waiting, outcomes = events[::-1], dict[int, Outcome]()
        by_id = {id(event): number for number, event in enumerate(events)}
        deadline_s = time.monotonic() + self._bridge.publish_timeout_s
        while len(outcomes) < len(events):
            self._slot.beat(time.monotonic())
            while waiting and self._publisher.submit(waiting[-1], deadline_s):
                waiting.pop()
            waits = self._publisher.wait_on()
            until_s = deadline_s if waits.until_s is None else min(deadline_s, waits.until_s)
            select.select(waits.read, waits.write, (), max(0.0, until_s - time.monotonic()))
            outcomes.update((by_id[id(event)], outcome) for event, outcome in self._publisher.collect())
            if waiting and time.monotonic() >= deadline_s:
                late = Retry("parked", "not sent: the ones before it took too long", counted=False)
                outcomes.update((by_id[id(event)], late) for event in waiting)
                waiting.clear()
        return [outcomes[number] for number in range(len(events))]

    def _settle(self, delivery: Delivery, message: Message, outcome: Outcome) -> None:
        if isinstance(outcome, Delivered):
            with contextlib.suppress(SubscriptionError):  # once acknowledged it does not come again
                self._memory.remember(message)
            self._subscription.done([delivery])
            self._slot.add(vitals.DELIVERED)
        elif isinstance(outcome, Dead):
            self._bury(delivery, message, f"{outcome.reason}: {outcome.error}")
        elif delivery.attempt >= self._bridge.max_reconsume_times:
            self._bury(delivery, message, f"tried {delivery.attempt} times, at last {outcome.reason}: {outcome.error}")
        else:
            self._subscription.give_back(delivery, exponential(delivery.attempt, AGAIN_S, AGAIN_MOST_S))
            self._slot.add(vitals.RETRIED)
            why = {"attempt": delivery.attempt, "reason": outcome.reason, "error": outcome.error}
            log.warning(log.BRIDGE_RETRYABLE, **_named(message), **why)

    def _bury(self, delivery: Delivery, message: Message | None, reason: str) -> None:
        self._subscription.bury(delivery, reason)
        self._slot.add(vitals.DEAD)
        named = _named(message) if message else {}
        log.log(logging.ERROR, log.BRIDGE_DEAD_LETTER, **named, attempt=delivery.attempt, error=reason)

    def _sleep(self, seconds: float) -> None:
        """Until then, or until a signal comes."""
        if select.select([self._context.stop.fileno()], (), (), max(0.0, seconds))[0]:
            self._context.stop.clear()

    def _end(self) -> int:
        self._slot.set_state(vitals.State.STOPPING)
        log.info(log.DRAIN_STARTED, limit_s=self._bridge.publish_timeout_s, in_flight=len(self._held))
        since_s = time.monotonic()
        try:
            for delivery in self._held:
                self._subscription.give_back(delivery, 0.0)
        except SubscriptionError:
            pass  # they come again when they have been invisible for long enough
        self._subscription.close()
        self._memory.close()
        self._publisher.close(time.monotonic() + 0.5)
        log.info(log.DRAIN_FINISHED, unsettled=len(self._held), took_s=round(time.monotonic() - since_s, 2))
        return vitals.EXIT_OK


def _event(number: int, message: Message) -> Event:
    """The event as the relay had it. number: its place in the batch, if nobody knows the row."""
    return Event(
        id=message.outbox_id or number,
        event_id=message.event_id,
        event_type=message.event_type,
        room_id=message.room_id,
        app_code=message.app_code,
        envelope=message.envelope,
        content_type=message.content_type,
        headers=None,
        retry_count=0,
        created_at_ms=message.created_at_ms,
        published_to="",
        last_error=None,
        lane=message.lane,
    )


def _named(message: Message) -> dict[str, object]:
    return {"event_id": message.event_id, "event_type": message.event_type, "room_id": message.room_id}
