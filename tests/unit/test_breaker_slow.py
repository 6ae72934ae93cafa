"""Failures that come late: an event that hangs is known to have failed long after those that went with it succeeded."""

import heapq
import random

import pytest

from outboxd.config.schema import Breaker as Settings
from outboxd.event import DELIVERED, TIMEOUT, Retry
from outboxd.relay.breaker import Breaker
from tests.unit.test_breaker import counted

EVENTS = 3000
CONNECTIONS = 32
ANSWERED_S, TIMED_OUT_S, RESTED_S = 0.002, 0.3, 0.5
HANGS = Retry(TIMEOUT, "no complete answer in time")


@pytest.mark.parametrize("hanging", [0.2, 0.5, 0.7, 0.9])
def test_a_receiver_that_hangs_at_random_uses_up_nobodys_attempts(hanging: float) -> None:
    """G6: time-outs come in bursts, between bursts of successes that look like health."""
    chance = random.Random(20_261_129)
    breaker = Breaker(Settings(initial_probe_s=0.02, max_probe_s=0.1))
    counts = dict.fromkeys(range(EVENTS), 0)
    due = [(0.0, event_id) for event_id in counts]
    in_flight: list[tuple[float, int, bool]] = []
    now_s = 0.0
    while due or in_flight:
        while in_flight and in_flight[0][0] <= now_s:
            _, event_id, is_accepted = heapq.heappop(in_flight)
            outcome = breaker.judge(event_id, DELIVERED if is_accepted else HANGS, now_s)
            if not is_accepted:
                counts[event_id] += counted(outcome)
                heapq.heappush(due, (now_s + RESTED_S * (0.5 + chance.random()), event_id))
        while due and due[0][0] <= now_s and len(in_flight) < CONNECTIONS and breaker.admits(now_s):
            _, event_id = heapq.heappop(due)
            is_accepted = chance.random() >= hanging
            takes_s = (ANSWERED_S if is_accepted else TIMED_OUT_S) * (0.9 + 0.2 * chance.random())
            heapq.heappush(in_flight, (now_s + takes_s, event_id, is_accepted))
            breaker.started(event_id)
        moments_s = [in_flight[0][0]] if in_flight else []
        if due and len(in_flight) < CONNECTIONS and not breaker.probing:
            moments_s.append(max(due[0][0], 0.0 if breaker.closed else breaker.next_probe_s))
        now_s = max(now_s, min(moments_s, default=now_s))
    assert max(counts.values()) < 10, "max_retry_count as it is by default"
