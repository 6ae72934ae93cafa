"""The breaker tells an outage from poison; time comes in as a number."""

import random

import pytest

from outboxd.config.schema import Breaker as Settings
from outboxd.event import (
    CONNECT,
    DELIVERED,
    REJECTED,
    SERVER_ERROR,
    Dead,
    Outcome,
    Retry,
)
from outboxd.relay.breaker import MEMORY, Breaker

AWAY = Retry(CONNECT, "refused", counted=False)
FAULT = Retry(SERVER_ERROR, "HTTP 500")
REFUSED = Dead(REJECTED, "HTTP 422")


def publish(breaker: Breaker, event_id: int, outcome: Outcome, now_s: float = 0.0) -> Outcome:
    """One event, admitted or not: handed over and judged."""
    breaker.started(event_id)
    return breaker.judge(event_id, outcome, now_s)


def closed(**settings: float) -> Breaker:
    """One through which everything flows."""
    breaker = Breaker(Settings(**settings))  # type: ignore[arg-type]  # each test's words are the settings' own
    publish(breaker, 0, DELIVERED)
    return breaker


def opened(**settings: float) -> Breaker:
    """One that has just opened, at 0 s."""
    breaker = closed(**settings)
    for event_id in range(1, 6):
        publish(breaker, event_id, FAULT)
    return breaker


def test_the_first_publish_of_a_process_is_a_lone_probe() -> None:
    """G6: after a restart in an outage a process must not charge its first handful of events before it understands."""
    breaker = Breaker(Settings())
    assert breaker.admits(0.0)
    breaker.started(1)
    assert not breaker.admits(1e9)
    breaker.judge(1, DELIVERED, 1.0)
    assert breaker.closed
    assert breaker.admits(1.0)


def test_a_first_probe_that_fails_is_not_counted() -> None:
    """G6: any number of restarts in an outage cost a healthy event no attempt."""
    for _ in range(20):
        outcome = publish(Breaker(Settings()), 1, FAULT)
        assert isinstance(outcome, Retry)
        assert (outcome.counted, outcome.reason, outcome.error) == (False, SERVER_ERROR, "HTTP 500")


def test_a_lone_event_that_fails_again_at_the_start_is_counted() -> None:
    """G6: a poisonous event that is alone in the table would be tried for ever otherwise."""
    breaker = Breaker(Settings())
    counted = [publish(breaker, 1, FAULT, at_s) for at_s in (0.0, 10.0, 20.0)]
    assert [outcome.counted for outcome in counted if isinstance(outcome, Retry)] == [False, True, True]


def test_a_lone_event_is_not_counted_for_what_is_the_publishers_fault() -> None:
    """G6: a request that never reached the receiver says nothing about the event, however often."""
    breaker = Breaker(Settings())
    for at_s in range(0, 1000, 50):
        outcome = publish(breaker, 1, AWAY, float(at_s))
        assert outcome == AWAY


def test_it_opens_after_five_different_events_in_a_row() -> None:
    """The fifth, not the fourth."""
    breaker = closed()
    states = []
    for event_id in range(1, 6):
        publish(breaker, event_id, FAULT)
        states.append(breaker.state)
    assert states == ["closed"] * 4 + ["open"]


def test_one_event_alone_never_opens_it() -> None:
    """G7: a bad event that fails a thousand times is no outage, whether it is blamed or not."""
    breaker = closed()
    for outcome in (FAULT, AWAY, REFUSED) * 300:
        publish(breaker, 7, outcome)
    assert breaker.closed


def test_four_bad_events_among_good_ones_never_open_it() -> None:
    """G7: what fails in a row is counted anew after each success."""
    breaker = closed()
    for turn in range(100):
        for event_id in range(1, 5):
            publish(breaker, event_id + 4 * turn, FAULT)
        publish(breaker, 10_000 + turn, DELIVERED)
    assert breaker.closed


def test_what_fails_while_it_is_closed_is_judged_as_it_is() -> None:
    """G6: 500 is blamed on the event, a refused connection is not."""
    breaker = closed()
    assert publish(breaker, 1, FAULT) is FAULT
    assert publish(breaker, 2, AWAY) is AWAY


@pytest.mark.parametrize("outcome", [FAULT, AWAY])
def test_nothing_is_counted_while_it_is_open(outcome: Retry) -> None:
    """G6: an outage that shows itself as 500 costs a waiting event no attempt, however long it lasts."""
    breaker = opened()
    for event_id in range(10, 200):
        judged = publish(breaker, event_id, outcome, event_id * 100.0)
        assert isinstance(judged, Retry)
        assert not judged.counted
        assert (judged.reason, judged.error) == (outcome.reason, outcome.error)


def test_what_was_in_flight_when_it_opened_is_not_counted() -> None:
    """G6: 32 connections that time out together are one outage; only the first, before it shows, are blamed."""
    breaker = closed()
    for event_id in range(32):
        breaker.started(event_id)
    judged = [breaker.judge(event_id, FAULT, 3.0) for event_id in range(32)]
    assert sum(isinstance(outcome, Retry) and outcome.counted for outcome in judged) == 4


def test_poison_that_meets_an_outage_is_counted_again_once_others_succeed() -> None:
    """G7: as a probe it costs no attempt; when few others have failed among the last outcomes, it does."""
    breaker = opened()
    for _ in range(10):
        assert not counted(publish(breaker, 100, FAULT, 10.0))
    others = iter(range(101, 1000))
    verdicts = []
    for _ in range(MEMORY * 5):
        publish(breaker, next(others), DELIVERED, 30.0)
        verdicts.append(counted(publish(breaker, 100, FAULT, 30.0)))
    assert verdicts == sorted(verdicts)
    assert verdicts[-1]


@pytest.mark.parametrize("failing", [0.2, 0.3, 0.5, 0.7, 0.9, 0.97])
def test_a_receiver_that_fails_at_random_uses_up_nobodys_attempts(failing: float) -> None:
    """G6: it never fails often enough in a row to open the breaker for long, and yet the fault is not the events'."""
    chance = random.Random(20_261_129)
    breaker, now_s = closed(), 0.0
    counts = dict.fromkeys(range(100), 0)
    for event_id in range(100, 5_000):
        outcome: Outcome = FAULT
        while outcome is not DELIVERED:
            now_s = max(now_s, 0.0 if breaker.closed else breaker.next_probe_s)
            tried = chance.choice(list(counts))
            outcome = publish(breaker, tried, FAULT if chance.random() < failing else DELIVERED, now_s)
            counts[tried] += counted(outcome)
        assert counts.pop(tried) < 10, "max_retry_count as it is by default"
        counts[event_id] = 0


def test_poison_among_good_events_is_counted_every_time() -> None:
    """G7: nine bad events of a hundred are no outage; each failure uses up one of their attempts."""
    breaker = closed()
    for turn in range(200):
        for event_id in range(100 * turn, 100 * turn + 100):
            if event_id % 11 == 5:
                assert counted(publish(breaker, event_id, FAULT))
            else:
                publish(breaker, event_id, DELIVERED)
        assert breaker.closed


def test_probes_are_further_and_further_apart() -> None:
    """A receiver that is down must not be hammered; the wait doubles up to the most."""
    breaker = opened(initial_probe_s=1.0, max_probe_s=10.0)
    now_s, waits = 0.0, []
    for event_id in range(20, 27):
        waits.append(breaker.next_probe_s - now_s)
        assert not breaker.admits(breaker.next_probe_s - 0.001)
        now_s = breaker.next_probe_s
        assert breaker.admits(now_s)
        breaker.started(event_id)
        assert not breaker.admits(now_s + 100), "one probe at a time"
        breaker.judge(event_id, AWAY, now_s)
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


def test_a_success_closes_it_and_the_next_outage_starts_anew() -> None:
    """Probes of the next outage begin at the first distance again, and its five events are five new ones."""
    breaker = opened(initial_probe_s=1.0)
    for event_id in range(20, 25):
        publish(breaker, event_id, AWAY, 1000.0)
    publish(breaker, 30, DELIVERED, 2000.0)
    assert breaker.closed
    for event_id in range(41, 45):
        publish(breaker, event_id, FAULT, 3000.0)
    assert breaker.closed
    publish(breaker, 45, FAULT, 3000.0)
    assert (breaker.state, breaker.next_probe_s, breaker.outage_s(3010.0)) == ("open", 3001.0, 10.0)


def test_an_outage_is_as_old_as_the_first_failure_in_its_row() -> None:
    """Parked events rest half as long as the outage has lasted."""
    breaker = closed()
    assert breaker.outage_s(50.0) == 0.0
    for event_id, at_s in ((1, 100.0), (2, 101.0), (3, 102.0), (4, 103.0), (5, 104.0)):
        publish(breaker, event_id, AWAY, at_s)
    assert breaker.outage_s(110.0) == 10.0
    publish(breaker, 6, DELIVERED, 111.0)
    assert breaker.outage_s(120.0) == 0.0


def test_an_outage_at_the_start_opens_it_too() -> None:
    """It says so (its log line) once two different events have failed: a lone one is no outage."""
    breaker = Breaker(Settings(distinct_events=5))
    said = []
    for event_id in range(5):
        said.append((breaker.opened, breaker.state))
        assert not counted(publish(breaker, event_id, FAULT, breaker.next_probe_s))
    assert said == [(False, "half_open")] * 2 + [(True, "half_open")] * 3
    assert (breaker.opened, breaker.state) == (True, "open")


def test_waiting_events_stay_while_the_first_probe_may_clear_the_way() -> None:
    """A healthy start must not send a batch back to the table; an outage must not keep one."""
    breaker = Breaker(Settings())
    assert not breaker.parks(0.0)
    breaker.started(1)
    assert not breaker.parks(0.0)
    breaker.judge(1, AWAY, 0.0)
    assert breaker.parks(0.5)
    assert opened().parks(1e9)
    assert not closed().parks(0.0)


def test_one_that_is_switched_off_lets_everything_pass() -> None:
    """`breaker.enabled: false`: every outcome counts as it came."""
    breaker = Breaker(Settings(enabled=False))
    for event_id in range(100):
        assert breaker.admits(0.0)
        for outcome in (FAULT, AWAY, REFUSED):
            assert publish(breaker, event_id, outcome) is outcome
    assert breaker.closed
    assert breaker.outage_s(1.0) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_after_any_outage_a_healthy_event_has_few_counts(seed: int) -> None:
    """G6: with restarts at random moments of an outage that answers 500, nothing healthy reaches ten attempts.

    Each event is tried again and again by processes that start anew; the receiver fails throughout.
    """
    chance = random.Random(seed)
    counts = dict.fromkeys(range(50), 0)
    breaker = closed()
    now_s = 0.0
    for _ in range(3000):
        if chance.random() < 0.02:
            breaker = Breaker(Settings())
        now_s = max(now_s + chance.random(), 0.0 if breaker.closed else breaker.next_probe_s)
        event_id = chance.randrange(50)
        counts[event_id] += counted(publish(breaker, event_id, FAULT, now_s))
    assert max(counts.values()) <= 2


def counted(outcome: Outcome) -> bool:
    """Does it use up an attempt?"""
    return isinstance(outcome, Retry) and outcome.counted
