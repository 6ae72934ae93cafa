"""Tells an outage from poison: one breaker per publisher and process. Pure: `now_s` comes in, decisions go out.

States: `half_open` (a process starts so: its first publish is a lone probe), `closed` (everything flows), `open` (only
probes, one at a time, each with another event, further and further apart). It opens after `distinct_events` different
events failed in a row with no success between, so one event alone can never open it (G7), and after `dead_brake`
different events in a row ended in Dead, so that a broken deployment of the receiver buries no backlog.

A receiver that fails at random never fails often enough in a row. So a failure is not blamed on its event either while
as many different events failed among the last outcomes (MEMORY times as many), whether in a row or not.
"""

from collections import deque

from outboxd.backoff import exponential
from outboxd.config.schema import Breaker as Settings
from outboxd.event import INVALID, PARKED, Dead, Delivered, Outcome, Retry

HALF_OPEN = "half_open"
CLOSED = "closed"
OPEN = "open"

KNOWN = 10_000
"""Events remembered as having failed here before; the oldest are forgotten."""

MEMORY = 4
"""`distinct_events` different failures are an outage of the publisher among so many times as many outcomes."""


class Breaker:
    """What one publisher's outcomes say about it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.state = HALF_OPEN if settings.enabled else CLOSED
        self.braked = False
        """Opened by the dead brake: its answers `Dead` are not believed until one event has been accepted."""
        self.since_s = 0.0
        """When the outage began (the first failure in the row); meaningful while not closed."""
        self.next_probe_s = 0.0
        self._probes = 0
        self._probing: int | None = None
        self._failed: set[int] = set()
        self._dead: set[int] = set()
        self._known: dict[int, None] = {}
        self._recent: deque[int | None] = deque(maxlen=MEMORY * settings.distinct_events)

    @property
    def closed(self) -> bool:
        """Everything flows."""
        return self.state == CLOSED

    @property
    def opened(self) -> bool:
        """Only probes flow, and not just for being new: several different events have failed."""
        return self.state == OPEN or (self.state == HALF_OPEN and len(self._failed) > 1)

    @property
    def probing(self) -> bool:
        """A probe is on its way."""
        return self._probing is not None

    def admits(self, now_s: float) -> bool:
        """May an event be published now?"""
        return self.state == CLOSED or (self._probing is None and now_s >= self.next_probe_s)

    def parks(self, now_s: float) -> bool:
        """Should events that wait for the publisher be parked? Not while a first probe may yet clear the way."""
        return self.state == OPEN or (self.state == HALF_OPEN and self._probing is None and now_s < self.next_probe_s)

    def outage_s(self, now_s: float) -> float:
        """How long the publisher has been failing; 0 while it works."""
        return now_s - self.since_s if self._failed or self._dead or self.state == OPEN else 0.0

    def started(self, event_id: int) -> None:
        """An event admitted was handed to the publisher."""
        if self.state != CLOSED:
            self._probing = event_id

    def judge(self, event_id: int, outcome: Outcome, now_s: float) -> Outcome:
        """Take note of an outcome and return it as it counts (G6)."""
        if not self._settings.enabled:
            return outcome
        was_probe = self._probing == event_id
        if was_probe:
            self._probing = None
        if isinstance(outcome, Delivered):
            self._recent.append(None)
            if self.state != CLOSED or self._failed or self._dead:
                self._close()
            return outcome
        if outcome.reason in (INVALID, PARKED):  # judged on this side: it says nothing about the receiver
            return outcome
        if isinstance(outcome, Dead):
            return self._judge_dead(event_id, outcome, now_s, was_probe)
        return self._judge_retry(event_id, outcome, now_s, was_probe)

    def _judge_dead(self, event_id: int, outcome: Dead, now_s: float, was_probe: bool) -> Outcome:
        if self.braked:
            if was_probe:
                self._put_off(now_s)
            return Retry(PARKED, f"held, since the receiver refuses everything: {outcome.error}", counted=False)
        self._recent.append(None)
        if self.state != CLOSED:
            self._close()  # the receiver is there and judges events
        self._note_start(now_s)
        self._dead.add(event_id)
        self._failed.discard(event_id)
        if len(self._dead) >= self._settings.dead_brake:
            self.braked = True
            self._open(now_s)
        return outcome

    def _judge_retry(self, event_id: int, outcome: Retry, now_s: float, was_probe: bool) -> Retry:
        lone = self.state == HALF_OPEN and self._failed == {event_id}
        self._note_start(now_s)
        if self._is_news(event_id, outcome) or self.state != CLOSED:
            self._failed.add(event_id)
        if event_id not in self._recent:  # one event must not fill the memory
            self._recent.append(event_id)
        if self.state == CLOSED:
            if len(self._failed) >= self._settings.distinct_events:
                self._open(now_s)
            return _uncounted(outcome) if self._others_fail(event_id) else outcome
        if was_probe:
            self._put_off(now_s)
        if self.state == HALF_OPEN and len(self._failed) >= self._settings.distinct_events:
            self.state = OPEN
        return outcome if lone else _uncounted(outcome)

    def _is_news(self, event_id: int, outcome: Retry) -> bool:
        """Does the failure tell of the receiver? Not that of an event which failed before and is to blame: poison that
        comes due together must not close the way for others (G7)."""
        if not outcome.counted:
            return True
        is_known = event_id in self._known
        self._known[event_id] = None
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]
        return not is_known

    def _others_fail(self, event_id: int) -> bool:
        """Have so many others failed lately that one more failure says nothing about this event?"""
        others = sum(other is not None and other != event_id for other in self._recent)
        return others >= self._settings.distinct_events - 1

    def _note_start(self, now_s: float) -> None:
        if not self._failed and not self._dead and self.state != OPEN:
            self.since_s = now_s

    def _open(self, now_s: float) -> None:
        self.state = OPEN
        self._probes = 0
        self._put_off(now_s)

    def _put_off(self, now_s: float) -> None:
        delay_s = exponential(self._probes + 1, self._settings.initial_probe_s, self._settings.max_probe_s)
        self._probes += 1
        self.next_probe_s = now_s + delay_s

    def _close(self) -> None:
        self.state = CLOSED
        self.braked = False
        self._probing = None
        self._probes = 0
        self._failed.clear()
        self._dead.clear()


def _uncounted(outcome: Retry) -> Retry:
    return Retry(outcome.reason, outcome.error, False, outcome.retry_after_s, outcome.accepted, outcome.refused)
