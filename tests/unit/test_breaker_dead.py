"""The dead brake: a receiver that refuses everything must not bury the backlog."""

from outboxd.event import DELIVERED, INVALID, PARKED, Dead, Retry
from tests.unit.test_breaker import REFUSED, closed, counted, opened, publish


def test_the_dead_brake_buries_twenty_and_holds_the_rest() -> None:
    """A broken deployment of the receiver refuses everything: the backlog must not end in dead letters."""
    breaker = closed(dead_brake=20)
    for event_id in range(100):
        breaker.started(event_id)
    judged = [breaker.judge(event_id, REFUSED, 1.0) for event_id in range(100)]
    assert judged[:20] == [REFUSED] * 20
    for outcome in judged[20:]:
        assert isinstance(outcome, Retry)
        assert (outcome.reason, outcome.counted) == (PARKED, False)
    assert breaker.opened


def test_a_braked_receiver_is_believed_again_after_one_success() -> None:
    """Probes that it still refuses are held too, further and further apart."""
    breaker = closed(dead_brake=20, initial_probe_s=1.0)
    for event_id in range(20):
        publish(breaker, event_id, REFUSED)
    assert not counted(publish(breaker, 30, REFUSED, 1.0))
    assert breaker.next_probe_s == 3.0
    publish(breaker, 31, DELIVERED, 3.0)
    assert publish(breaker, 32, REFUSED, 4.0) is REFUSED
    assert breaker.closed


def test_nineteen_dead_letters_between_successes_brake_nothing() -> None:
    """G7: bad events are refused one by one; that is what dead letters are for."""
    breaker = closed(dead_brake=20)
    for turn in range(10):
        for event_id in range(19):
            assert publish(breaker, 100 * turn + event_id, REFUSED) is REFUSED
        publish(breaker, 9000 + turn, DELIVERED)
    assert breaker.closed


def test_an_answer_that_refuses_shows_that_the_receiver_is_back() -> None:
    """It judges events again, so the others may be asked about; the refused one is a dead letter."""
    breaker = opened()
    assert publish(breaker, 20, REFUSED, 5.0) is REFUSED
    assert breaker.closed


def test_an_invalid_event_says_nothing_about_the_receiver() -> None:
    """G7: it was judged on this side: it neither opens, nor brakes, nor closes, and it frees the probe."""
    invalid = Dead(INVALID, "headers are a JSON array")
    breaker = closed(dead_brake=20)
    for event_id in range(100):
        assert publish(breaker, event_id, invalid) is invalid
    assert breaker.closed
    assert breaker.outage_s(10.0) == 0.0
    breaker = opened()
    assert publish(breaker, 20, invalid, 2.0) is invalid
    assert breaker.opened
    assert breaker.admits(2.0), "the next probe may go at once"
