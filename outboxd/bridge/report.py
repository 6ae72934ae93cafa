"""What the bridge says of its messages and its queue: log lines bounded per fault (G9)."""

import logging
import time

from outboxd import log, vitals
from outboxd.bridge.hand import Hand
from outboxd.event import Retry

BURST = 10
"""Lines of one kind that may be written in one PERIOD_S; the rest are counted in the next one."""
PERIOD_S = 10.0


class Report:
    """The narrator of one bridge."""

    def __init__(self, slot: vitals.Slot) -> None:
        self._slot = slot
        self._windows: dict[str, tuple[float, int]] = {}
        self._away = ""
        self._why: Retry | None = None
        self._is_stopped = False

    def retryable(self, hand: Hand, outcome: Retry) -> None:
        """It failed by itself, and will come again."""
        self._line(logging.WARNING, log.BRIDGE_RETRYABLE, hand, {"reason": outcome.reason, "error": outcome.error})

    def dead(self, hand: Hand, reason: str) -> None:
        """It was given up."""
        self._line(logging.ERROR, log.BRIDGE_DEAD_LETTER, hand, {"error": reason})

    def held(self, outcome: Retry) -> None:
        """It failed by the receiver's fault, or its configuration's."""
        if self._why is None or self._why.reason != outcome.reason:
            log.warning(log.BRIDGE_HELD, reason=outcome.reason, error=outcome.error)
        self._why = outcome

    def stopped(self, in_hand: int) -> None:
        """The receiver fails for everything."""
        self._is_stopped = True
        why = self._why
        log.warning(log.BRIDGE_STOPPED, in_hand=in_hand, error=why.error if why else None)

    def resumed(self) -> None:
        """It accepts messages again."""
        if self._is_stopped:
            log.info(log.BRIDGE_RESUMED)
        self._is_stopped = False
        self._why = None

    def unavailable(self, error: str) -> None:
        """The queue, or the memory, cannot be asked. Said once for each reason."""
        if error != self._away:
            log.warning(log.SUBSCRIPTION_UNAVAILABLE, error=error)
        self._away = error

    def available(self) -> None:
        """Both can."""
        if self._away:
            log.info(log.SUBSCRIPTION_AVAILABLE)
        self._away = ""

    def _line(self, level: int, name: str, hand: Hand, fields: dict[str, object]) -> None:
        now_s = time.monotonic()
        since_s, count = self._windows.get(name, (0.0, 0))
        if now_s - since_s >= PERIOD_S:
            if count > BURST:
                fields["not_shown_before"] = count - BURST
            since_s, count = now_s, 0
        self._windows[name] = (since_s, count + 1)
        if count < BURST:
            log.log(level, name, **hand.named(), attempt=hand.delivery.attempt, **fields)
