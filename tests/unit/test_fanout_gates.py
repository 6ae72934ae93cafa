"""What keeps a publisher from being asked: its breaker, its rate, a pause that it asked for. No other waits for it."""

import pytest

from outboxd.event import (
    CONNECT,
    DELIVERED,
    PARKED,
    SERVER_ERROR,
    THROTTLED,
    UNAVAILABLE,
    Delivered,
    Retry,
)
from outboxd.publishers.fanout import ALL, NONE, ONE
from outboxd.publishers.route import STALL_S, Item
from tests.services.publishing import make_event
from tests.unit.fanned import Fanned

AWAY = Retry(CONNECT, "refused", counted=False)
FAULT = Retry(SERVER_ERROR, "HTTP 500")
WAIT_A_MINUTE = Retry(THROTTLED, "HTTP 429", counted=False, retry_after_s=60.0)


def test_the_first_publish_of_a_process_goes_alone() -> None:
    """G6: what comes behind waits for its answer, and goes on with it."""
    fanned = Fanned("a", warm=False)
    assert fanned.fanout.appetite(0.0) == ONE
    ids = fanned.offer(5)
    assert fanned.far["a"].sent == ids[:1]
    fanned.answer("a")
    assert fanned.far["a"].sent == ids


def test_a_first_publish_that_fails_sends_the_rest_back() -> None:
    """They are parked, uncounted: the next probe is somebody's of them, after a pause."""
    fanned = Fanned("a", warm=False)
    ids = fanned.offer(5)
    fanned.answer("a", AWAY)
    assert fanned.outcomes[ids[0]] == AWAY
    fanned.turn()
    for event_id in ids[1:]:
        outcome = fanned.outcomes[event_id]
        assert isinstance(outcome, Retry)
        assert (outcome.reason, outcome.counted) == (PARKED, False)
    assert fanned.fanout.appetite(0.5) == NONE
    assert fanned.fanout.asks_again_at_s(0.5) == 1.0
    assert fanned.fanout.appetite(1.0) == ONE


def test_an_outage_of_one_publisher_does_not_hold_up_another() -> None:
    """G7: the healthy one gets every event at once; what waits for the broken one is told who has it."""
    fanned = Fanned("a", "b")
    fanned.break_down("b", AWAY)
    ids = fanned.offer(100)
    assert fanned.far["a"].sent == ids
    assert fanned.far["b"].sent == []
    assert fanned.fanout.waiting == 0
    assert fanned.fanout.appetite(0.5) == ALL
    fanned.answer("a")
    assert {outcome.accepted for outcome in fanned.outcomes.values()} == {("a",)}
    assert all(isinstance(outcome, Retry) and not outcome.counted for outcome in fanned.outcomes.values())


def test_a_publisher_that_hangs_from_the_start_does_not_hold_up_another() -> None:
    """G7: its first probe takes the whole of publish_timeout, and so does the next; the others must not wait for it."""
    fanned = Fanned("a", "b", warm=False)
    fanned.offer(1)
    fanned.answer("a")
    fanned.offer(50, now_s=0.1)
    fanned.answer("a", now_s=0.1)
    assert len(fanned.far["a"].sent) == 51
    assert fanned.fanout.wake_at_s(0.1) == STALL_S
    fanned.turn(now_s=STALL_S)
    assert fanned.fanout.waiting == 0, "the worker claims nothing more while events wait for any publisher"


def test_a_broken_publishers_probe_goes_while_the_others_work() -> None:
    """One event at a time, and it comes back into the game by itself."""
    fanned = Fanned("a", "b")
    fanned.break_down("b", AWAY)
    fanned.offer(3, now_s=0.5)
    probed = fanned.offer(3, now_s=1.0)
    assert fanned.far["b"].sent == probed[:1]
    fanned.answer("b", now_s=1.1)
    more = fanned.offer(3, now_s=1.2)
    assert fanned.far["b"].sent == [probed[0], *more]


def test_breakers_that_open_and_close_are_told_once() -> None:
    """For the log: one line for each change."""
    fanned = Fanned("a", "b")
    assert fanned.fanout.changes() == []
    fanned.break_down("b", AWAY)
    assert fanned.fanout.changes() == [("b", True)]
    assert fanned.fanout.changes() == []
    assert not fanned.fanout.all_closed
    fanned.offer(1, now_s=5.0)
    fanned.answer("b", now_s=5.0)
    assert fanned.fanout.changes() == [("b", False)]
    assert fanned.fanout.all_closed


def test_an_outage_is_as_long_as_the_longest() -> None:
    """Of all publishers: it is what parked events go by."""
    fanned = Fanned("a", "b")
    fanned.break_down("b", AWAY, now_s=10.0)
    fanned.break_down("a", AWAY, now_s=40.0)
    assert fanned.fanout.outage_s(100.0) == 90.0


@pytest.mark.parametrize("reason", [THROTTLED, UNAVAILABLE])
def test_retry_after_holds_the_whole_publisher(reason: str) -> None:
    """Not the one event only: the receiver said that it wants nothing for a minute."""
    fanned = Fanned("a", "b")
    fanned.offer(1)
    fanned.answer("b")
    fanned.answer("a", Retry(reason, "HTTP", counted=False, retry_after_s=60.0))
    ids = fanned.offer(5, now_s=59.9)
    assert len(fanned.far["a"].sent) == 1
    assert fanned.far["b"].sent[1:] == ids
    ids = fanned.offer(5, now_s=60.0)
    assert fanned.far["a"].sent[1:] == ids


def test_what_waits_for_a_pause_to_end_is_parked_for_as_long() -> None:
    """Not kept in memory under a lease, and not tried before its time."""
    fanned = Fanned("a")
    fanned.offer(1)
    fanned.answer("a", WAIT_A_MINUTE)
    (event_id,) = fanned.offer(1, now_s=20.0)
    fanned.turn(20.0)
    outcome = fanned.outcomes[event_id]
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted, outcome.retry_after_s) == (PARKED, False, 40.0)
    assert "40 s" in outcome.error
    assert fanned.fanout.appetite(20.0) == NONE
    assert fanned.fanout.asks_again_at_s(20.0) == 60.0


def test_a_pause_is_no_longer_than_the_most() -> None:
    """A receiver that asks for a year gets max_backoff."""
    fanned = Fanned("a")
    fanned.offer(1)
    fanned.answer("a", Retry(THROTTLED, "HTTP 429", counted=False, retry_after_s=365 * 86400.0))
    assert fanned.fanout.appetite(299.9) == NONE
    assert fanned.fanout.appetite(300.0) == ALL


def test_retry_after_of_another_failure_holds_nothing() -> None:
    """Only 429 and 503 may ask."""
    fanned = Fanned("a")
    fanned.offer(1)
    fanned.answer("a", Retry(SERVER_ERROR, "HTTP 500", retry_after_s=60.0))
    assert fanned.fanout.appetite(0.0) == ALL


def test_a_rate_is_kept_to_the_event() -> None:
    """`max_rate: 10` is one every 100 ms; measured over any second."""
    fanned = Fanned("a", max_rate=10.0)
    fanned.offer(200)
    at_s: list[float] = []
    for tick in range(1, 2001):
        before = len(fanned.far["a"].sent)
        fanned.turn(tick / 100)
        at_s += [tick / 100] * (len(fanned.far["a"].sent) - before)
        fanned.far["a"].answer()
    assert 195 <= len(at_s) <= 200
    for start, end in zip(at_s, at_s[10:], strict=False):
        assert end - start >= 0.9, "never more than ten in a second, save the odd one at its edges"


def test_a_rate_saves_up_nothing_while_there_is_nothing_to_do() -> None:
    """Some quiet minutes are followed by the same rate, not by a burst of minutes' worth."""
    fanned = Fanned("a", max_rate=10.0)
    fanned.offer(1)
    fanned.offer(50, now_s=500.0)
    assert 2 <= len(fanned.far["a"].sent) <= 3


def test_a_rate_tells_when_it_may_go_on() -> None:
    """The loop sleeps until then; it neither spins nor oversleeps."""
    fanned = Fanned("a", max_rate=10.0)
    fanned.offer(3)
    assert len(fanned.far["a"].sent) == 1
    assert fanned.fanout.wake_at_s(0.05) == pytest.approx(0.1)
    assert fanned.fanout.appetite(0.05) == ALL


def test_a_rate_of_one_publisher_does_not_slow_down_another() -> None:
    """Each has its own."""
    fanned = Fanned("a", "b")
    fanned.routes["b"]._interval_s = 1.0
    ids = fanned.offer(10)
    assert fanned.far["a"].sent == ids
    assert fanned.far["b"].sent == ids[:1]


def test_an_event_in_flight_when_a_pause_begins_ends_as_it_ends() -> None:
    """It was sent; its answer counts."""
    fanned = Fanned("a")
    first, second = fanned.offer(2)
    fanned.answer("a", WAIT_A_MINUTE, first)
    fanned.answer("a", DELIVERED, second)
    assert fanned.outcomes[second] == Delivered()


def test_the_loop_is_woken_when_a_lone_probe_is_due() -> None:
    """By the clock alone: nothing else may happen until then."""
    fanned = Fanned("a", "b")
    fanned.break_down("b", FAULT)
    assert fanned.fanout.wake_at_s(0.0) == float("inf")
    fanned.routes["b"].waiting.append(Item(make_event(), 7, 1000.0))
    assert fanned.fanout.wake_at_s(0.0) == 1.0


def test_a_publisher_lacks_a_probe_while_no_event_at_hand_could_be_one() -> None:
    """G6: the worker then looks for one; not while none may go, or one is on its way."""
    fanned = Fanned("a", "b", wants={"b": lambda event_type: event_type == "B"})
    assert not fanned.fanout.lacks_probe(0.0)
    fanned.break_down("b", AWAY)
    assert not fanned.fanout.lacks_probe(0.5)
    fanned.offer(3)
    assert fanned.fanout.lacks_probe(1.0)
    (probe,) = fanned.offer(1, event_type="B", now_s=1.0)
    assert fanned.far["b"].sent == [probe]
    assert not fanned.fanout.lacks_probe(1.5)
    fanned.answer("b", now_s=2.0)
    assert not fanned.fanout.lacks_probe(9.0)
