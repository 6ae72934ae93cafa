"""Events known to be bad: their next failure tells nothing of the receiver."""

from outboxd.event import DELIVERED
from outboxd.relay.breaker import KNOWN
from tests.unit.test_breaker import AWAY, FAULT, closed, opened, publish


def test_poison_that_comes_due_together_opens_it_once_at_the_most() -> None:
    """G7: twenty bad events, retried one behind the other, fail in a row and tell nothing new of the receiver. The good
    ones would wait for the next probe each time. Five others that fail are an outage."""
    breaker = closed()
    for event_id in range(20):
        publish(breaker, event_id, FAULT)
    assert not breaker.closed
    for turn in range(50):
        publish(breaker, 1000 + turn, DELIVERED)
        for event_id in range(20):
            publish(breaker, event_id, FAULT)
        assert breaker.closed
    for event_id in range(2000, 2005):
        publish(breaker, event_id, FAULT)
    assert not breaker.closed


def test_connections_refused_to_known_events_open_it_all_the_same() -> None:
    """G6: that is never an event's own fault."""
    breaker = closed()
    for event_id in range(1, 6):
        publish(breaker, event_id, FAULT)
    publish(breaker, 9, DELIVERED)
    for event_id in range(1, 6):
        publish(breaker, event_id, AWAY)
    assert not breaker.closed


def test_its_memory_of_bad_events_is_bounded() -> None:
    """G9: an outage of a month probes with very many events."""
    breaker = opened()
    for event_id in range(3 * KNOWN):
        publish(breaker, event_id, FAULT, 1e6)
    assert len(breaker._known) == KNOWN
