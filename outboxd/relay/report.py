"""What a worker says of its events: totals for every one, log lines bounded per fault (G9)."""

import logging
import time

from outboxd import log, vitals
from outboxd.event import Delivered, Event, Outcome
from outboxd.publishers.fanout import Fanout
from outboxd.store.api import FAILED, Settlement

BURST = 10
"""Lines of one kind and reason that may be written in one PERIOD_S; the rest are counted in the next one."""
PERIOD_S = 10.0
TELL_STALE_AFTER_S = 0.5
"""So many come together that the first line is about them."""


class Report:
    """The narrator of one worker."""

    def __init__(self, slot: vitals.Slot, lane: str) -> None:
        self._slot = slot
        self._lane = lane
        self._windows: dict[tuple[str, str], tuple[float, int]] = {}
        self._stale: Event | None = None  # the last one that was discarded and has not been told of
        self._stale_count = 0
        self._stale_age_s = self._tell_stale_at_s = 0.0
        self.tells_each = log.is_enabled(logging.DEBUG)
        """Has an event that was delivered a line of its own?"""

    def delivered(self, count: int) -> None:
        """So many events were; what each of them was, `outcome` tells."""
        self._slot.add(vitals.DELIVERED, count)

    def outcome(self, event: Event, outcome: Outcome, settlement: Settlement) -> None:
        """An event's publish has ended."""
        if isinstance(outcome, Delivered):
            if self.tells_each:
                log.debug(log.OUTBOX_DELIVERED, **_facts(event, settlement, None))
            return
        if settlement.status == FAILED:
            self._slot.add(vitals.DEAD)
            self._line(logging.ERROR, log.OUTBOX_DEAD_LETTER, outcome.reason, event, settlement)
        else:
            self._slot.add(vitals.RETRIED)
            self._line(logging.WARNING, log.OUTBOX_PUBLISH_RETRYABLE, outcome.reason, event, settlement)

    def discarded(self, event: Event, database_ms: float, now_s: float) -> None:
        """It was stale, and is deleted."""
        self._slot.add(vitals.STALE_DISCARDED)
        self._stale_count += 1
        self._stale, self._stale_age_s = event, round((database_ms - event.created_at_ms) / 1000, 1)
        if self.tells_each:
            log.debug(log.ROBOT_OUTBOX_STALE_DISCARDED, **_facts(event, None, None), age_s=self._stale_age_s)
        if self._stale_count == 1:
            self._tell_stale_at_s = max(self._tell_stale_at_s, now_s + TELL_STALE_AFTER_S)

    def tell_discarded(self, now_s: float, is_last: bool = False) -> None:
        """How many those were since the last line, if any: one line in PERIOD_S, the first one soon."""
        if self._stale is None or not (is_last or now_s >= self._tell_stale_at_s):
            return
        facts = {"count": self._stale_count, "age_s": self._stale_age_s, **_facts(self._stale, None, None)}
        log.info(log.ROBOT_OUTBOX_STALE_DISCARDED, **facts)
        self._tell_stale_at_s = now_s + PERIOD_S
        self._stale, self._stale_count = None, 0

    def breakers(self, fanout: Fanout) -> None:
        """Which of them have opened or closed, if any."""
        changes = fanout.changes()
        if changes:
            self._slot.set_open(fanout.open_breakers)
        for name, is_open in changes:
            if is_open:
                log.warning(log.BREAKER_OPENED, lane=self._lane, publisher=name)
            else:
                log.info(log.BREAKER_CLOSED, lane=self._lane, publisher=name)

    def lost(self, event: Event) -> None:
        """The event's claim no longer holds."""
        self._slot.add(vitals.LEASE_LOST)
        self._line(logging.WARNING, log.LEASE_LOST, "", event, None)

    def gone(self, event: Event) -> None:
        """The event's row was deleted while it was held."""
        self._slot.add(vitals.EVENT_GONE)
        self._line(logging.WARNING, log.EVENT_GONE, "", event, None)

    def _line(self, level: int, name: str, reason: str, event: Event, settlement: Settlement | None) -> None:
        now_s = time.monotonic()
        since_s, count = self._windows.get((name, reason), (0.0, 0))
        fields = _facts(event, settlement, reason)
        if now_s - since_s >= PERIOD_S:
            if count > BURST:
                fields["not_shown_before"] = count - BURST
            since_s, count = now_s, 0
        self._windows[name, reason] = (since_s, count + 1)
        if count < BURST:
            log.log(level, name, **fields)


def _facts(event: Event, settlement: Settlement | None, reason: str | None) -> dict[str, object]:
    fields: dict[str, object] = {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "room_id": event.room_id,
        "retry_count": event.retry_count,
    }
    if settlement is not None:
        fields |= {"retry_count": event.retry_count + settlement.counted, "status": settlement.status}
        if settlement.last_error is not None:
            fields["error"] = settlement.last_error
        if settlement.delay_ms:
            fields["retry_in_s"] = round(settlement.delay_ms / 1000, 1)
    if reason:
        fields["reason"] = reason
    return fields
