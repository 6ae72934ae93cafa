"""What a worker holds: counted, renewed at half-life, let go once."""

import random

import pytest

from outboxd.event import Event
from outboxd.publishers.route import Item
from outboxd.relay.flight import Flight
from tests.services.publishing import make_event

LEASE_S = 10.0


def events(count: int, size_bytes: int = 100) -> list[Event]:
    """So many of that size."""
    return [make_event(envelope=b"x" * size_bytes) for _ in range(count)]


def test_events_and_bytes_are_counted_until_they_are_finished() -> None:
    """G9: the byte budget is what is left of it; a leak would stop the worker, a double release would overfill it."""
    flight = Flight(LEASE_S)
    items = flight.add(1, events(3, 100), 0.0) + flight.add(2, events(2, 1000), 0.0)
    assert (len(flight), flight.payload_bytes) == (5, 2300)
    flight.finish(items[:1])
    flight.finish(items[:1])
    assert (len(flight), flight.payload_bytes) == (4, 2200)
    for item in items:
        flight.finish([item])
    assert (len(flight), flight.payload_bytes, list(flight.claims())) == (0, 0, [])


def test_a_claim_that_found_nothing_leaves_nothing_behind() -> None:
    """G9: nothing of it is ever finished. An idle worker makes one for each rush: it would grow, and slow down."""
    flight = Flight(LEASE_S)
    flight.add(1, (), 0.0)
    assert list(flight.claims()) == []
    assert flight.next_renewal_s() == float("inf")
    assert flight.due_for_renewal(100.0) == []


def test_a_lease_counts_from_before_the_claim_was_sent() -> None:
    """G4: it must never seem longer here than it is in the database."""
    (item,) = Flight(LEASE_S).add(1, events(1), 100.0)
    assert item.lease_s == 110.0


def test_a_claim_is_to_be_renewed_at_half_of_its_life() -> None:
    """And again at half of what that gave it."""
    flight = Flight(LEASE_S)
    flight.add(1, events(1), 0.0)
    flight.add(2, events(1), 3.0)
    assert flight.next_renewal_s() == 5.0
    assert flight.due_for_renewal(4.99) == []
    assert [claimed.token for claimed in flight.due_for_renewal(5.0)] == [1]
    flight.due_for_renewal(5.0)[0].extend(5.0, LEASE_S)
    assert flight.next_renewal_s() == 8.0
    assert [claimed.token for claimed in flight.due_for_renewal(10.0)] == [2, 1] or [
        claimed.token for claimed in flight.due_for_renewal(10.0)
    ] == [1, 2]


def test_a_renewal_reaches_every_event_of_its_claim_and_no_other() -> None:
    """What waits for a publisher looks at its own lease before it goes (G4)."""
    flight = Flight(LEASE_S)
    mine, other = flight.add(1, events(2), 0.0), flight.add(2, events(1), 0.0)
    next(claimed for claimed in flight.claims() if claimed.token == 1).extend(5.0, LEASE_S)
    assert [item.lease_s for item in (*mine, *other)] == [15.0, 15.0, 10.0]


def test_nothing_held_needs_no_renewal() -> None:
    """The loop may sleep for ever, as far as leases go."""
    flight = Flight(LEASE_S)
    (item,) = flight.add(1, events(1), 0.0)
    flight.finish([item])
    assert flight.next_renewal_s() == float("inf")
    assert flight.due_for_renewal(1e9) == []


def test_the_suspect_is_known_until_it_is_finished() -> None:
    """G8: nothing else is claimed or published meanwhile."""
    flight = Flight(LEASE_S)
    (item,) = flight.add(1, events(1), 0.0, suspect=True)
    assert flight.suspect == item.event.id
    flight.finish([item])
    assert flight.suspect is None


def test_an_event_claimed_again_is_held_under_its_new_claim() -> None:
    """Its lease ran out and it came back here: the outcome of the old claim lets go of the old one only."""
    flight = Flight(LEASE_S)
    event = make_event()
    (old,) = flight.add(1, [event], 0.0)
    (new,) = flight.add(2, [event], 20.0)
    assert flight.holds(old)
    flight.finish([old])
    assert not flight.holds(old)
    assert flight.holds(new)
    assert len(flight) == 1


def test_a_strange_item_is_not_held_and_finishing_it_changes_nothing() -> None:
    """Released twice, or never claimed."""
    flight = Flight(LEASE_S)
    flight.add(1, events(1), 0.0)
    for item in (Item(make_event(), 1, 0.0), Item(make_event(), 9, 0.0)):
        assert not flight.holds(item)
        flight.finish([item])
    assert len(flight) == 1


@pytest.mark.parametrize("seed", range(5))
def test_the_counts_are_those_of_what_is_held(seed: int) -> None:
    """Whatever the order of claims and ends."""
    chance = random.Random(seed)
    flight, held = Flight(LEASE_S), list[Item]()
    for token in range(300):
        held += flight.add(token, events(chance.randrange(4), chance.randrange(500)), float(token))
        chance.shuffle(held)
        while held and chance.random() < 0.6:
            flight.finish([held.pop()])
        assert len(flight) == len(held)
        assert flight.payload_bytes == sum(len(item.event.envelope) for item in held)
        assert sum(len(claimed.items) for claimed in flight.claims()) == len(held)
