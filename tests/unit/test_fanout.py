"""What becomes of an event at one publisher or several: hand-over, answers put together, who is asked again."""

import pytest

from outboxd.event import CONNECT, DELIVERED, PARKED, REJECTED, SERVER_ERROR, Dead, Delivered, Retry
from outboxd.publishers.fanout import published_to
from outboxd.publishers.route import Item
from tests.services.publishing import make_event
from tests.unit.fanned import TIMEOUT_S, Fanned

FAULT = Retry(SERVER_ERROR, "HTTP 500")
AWAY = Retry(CONNECT, "refused", counted=False)
REFUSED = Dead(REJECTED, "HTTP 422")


def test_a_single_publishers_outcome_comes_out_as_it_is() -> None:
    """The usual lane: nothing to put together, nothing to pay for it."""
    fanned = Fanned("a")
    first, second, third = fanned.offer(3)
    fanned.answer("a", DELIVERED, first)
    fanned.answer("a", FAULT, second)
    fanned.answer("a", REFUSED, third)
    assert fanned.outcomes[first] is DELIVERED
    assert fanned.outcomes[second] is FAULT
    assert fanned.outcomes[third] == Dead(REJECTED, "HTTP 422", (), ("a",))


def test_each_publisher_is_asked_once() -> None:
    """G1: one offer, one publish at each."""
    fanned = Fanned("a", "b")
    ids = fanned.offer(10)
    for _ in range(3):
        fanned.turn()
    assert fanned.far["a"].sent == fanned.far["b"].sent == ids


def test_an_event_is_delivered_when_all_have_accepted_it() -> None:
    """Not before; with all their names."""
    fanned = Fanned("a", "b")
    (event_id,) = fanned.offer()
    fanned.answer("a")
    assert fanned.outcomes == {}
    fanned.answer("b")
    assert fanned.outcomes == {event_id: Delivered(("a", "b"))}


def test_an_event_is_dead_when_the_rest_have_refused_it() -> None:
    """It names who refused, and who has it all the same."""
    fanned = Fanned("a", "b")
    (event_id,) = fanned.offer()
    fanned.answer("b", REFUSED)
    fanned.answer("a")
    assert fanned.outcomes == {event_id: Dead(REJECTED, "b: HTTP 422", ("a",), ("b",))}
    assert published_to(fanned.outcomes[event_id]) == "a,!b"


def test_an_event_goes_on_until_no_publisher_is_left_to_try() -> None:
    """One refusal ends nothing: the third publisher is down now and will be asked again."""
    fanned = Fanned("a", "b", "c")
    (event_id,) = fanned.offer()
    fanned.answer("a")
    fanned.answer("b", REFUSED)
    fanned.answer("c", AWAY)
    outcome = fanned.outcomes[event_id]
    assert outcome == Retry(CONNECT, "c: refused", False, None, ("a",), ("b",))
    assert published_to(outcome) == "a,!b"


def test_a_retry_asks_only_those_who_are_not_done_with_it() -> None:
    """`published_to` remembers; names of publishers that are no longer there are nobody's."""
    fanned = Fanned("a", "b", "c")
    (event_id,) = fanned.offer(published_to="a,!b,gone")
    assert {name: far.sent for name, far in fanned.far.items()} == {"a": [], "b": [], "c": [event_id]}
    fanned.answer("c")
    outcome = fanned.outcomes[event_id]
    assert isinstance(outcome, Dead)
    assert (outcome.accepted, outcome.refused) == (("a", "c"), ("b",))


def test_an_event_that_everyone_has_is_delivered_without_a_publish() -> None:
    """A settle got lost, or a publisher was removed from the lane since."""
    for names in (("a",), ("a", "b")):
        fanned = Fanned(*names)
        (event_id,) = fanned.offer(published_to="a,b")
        assert fanned.unmatched == 0
        assert all(far.sent == [] for far in fanned.far.values())
        assert fanned.outcomes == {event_id: Delivered(names)}


def test_a_name_within_another_name_is_not_that_publisher() -> None:
    """`web` has not accepted what `web_two` did."""
    fanned = Fanned("web", "web_two")
    (event_id,) = fanned.offer(published_to="web_two")
    assert fanned.far["web"].sent == [event_id]


def test_a_counted_failure_of_one_publisher_counts() -> None:
    """Whichever comes first: the event has used up an attempt where one of them blames it."""
    for order in (("a", "b"), ("b", "a")):
        fanned = Fanned("a", "b")
        (event_id,) = fanned.offer()
        for name in order:
            fanned.answer(name, FAULT if name == "a" else AWAY)
        outcome = fanned.outcomes[event_id]
        assert isinstance(outcome, Retry)
        assert (outcome.counted, outcome.error) == (True, "a: HTTP 500")


def test_an_event_that_nobody_wants_is_delivered_and_counted_as_such() -> None:
    """Filters that match nothing drop events; it must be seen."""
    fanned = Fanned("a", "b", wants=dict.fromkeys("ab", lambda event_type: event_type == "RoomCreated"))
    item = Item(make_event(event_type="RoomClosed"), 7, 1e9)
    assert fanned.fanout.offer([item, Item(make_event(), 7, 1e9)]) == 1
    assert fanned.fanout.collect(0.0) == [(item, Delivered())]


def test_an_event_goes_only_to_those_that_want_it() -> None:
    """And is delivered when they have it."""
    fanned = Fanned("a", "b", wants={"b": lambda event_type: event_type.startswith("Gift")})
    (event_id,) = fanned.offer(event_type="RoomCreated")
    fanned.answer("a")
    assert fanned.far["b"].sent == []
    assert fanned.outcomes == {event_id: Delivered(("a",))}


def test_a_full_publisher_holds_back_its_own_events_only() -> None:
    """They go on, in order, as places come free."""
    fanned = Fanned("a", "b", capacity=2)
    ids = fanned.offer(5)
    fanned.answer("a")
    assert (fanned.far["a"].sent, fanned.far["b"].sent) == (ids[:4], ids[:2])
    assert fanned.fanout.waiting == 3


def test_a_publish_gets_publish_timeout_from_now() -> None:
    """G4: its deadline is counted from the hand-over, not from the claim."""
    fanned = Fanned("a")
    (event_id,) = fanned.offer(now_s=50.0)
    assert fanned.far["a"].held[event_id][1] == 50.0 + TIMEOUT_S


def test_a_publish_that_would_outlive_its_lease_does_not_start() -> None:
    """G4: another worker could take the row while the publish is under way. A renewed lease lets it go."""
    fanned = Fanned("a", "b")
    item = Item(make_event(), 7, TIMEOUT_S - 0.001)
    fanned.fanout.offer([item])
    fanned.turn(0.0)
    assert fanned.far["a"].sent == fanned.far["b"].sent == []
    item.lease_s = TIMEOUT_S
    fanned.turn(0.0)
    assert fanned.far["a"].sent == fanned.far["b"].sent == [item.event.id]


def test_what_waits_can_be_taken_back_unpublished() -> None:
    """A drain: what nobody was asked about is released; what is in flight ends by itself."""
    fanned = Fanned("a", capacity=2)
    ids = fanned.offer(5)
    assert [item.event.id for item in fanned.fanout.take_back()] == ids[2:]
    fanned.answer("a")
    assert fanned.far["a"].sent == ids[:2]
    assert list(fanned.outcomes) == ids[:2]


def test_what_some_have_answered_is_not_given_back_but_retried() -> None:
    """A drain in the middle of a fan-out: an acceptance must be written down, or that publisher gets it twice."""
    fanned = Fanned("a", "b", "c", capacity=1)
    first, second, third = fanned.offer(3)
    fanned.answer("a", DELIVERED, first)
    fanned.answer("a", DELIVERED, second)
    assert fanned.far["a"].sent == [first, second, third]
    fanned.answer("b", DELIVERED, first)
    assert fanned.fanout.take_back() == []
    for name in "abc":
        fanned.answer(name)
    assert fanned.outcomes[first] == Delivered(("a", "b", "c"))
    assert published_to(fanned.outcomes[second]) == "a,b"
    assert published_to(fanned.outcomes[third]) == "a"
    for event_id in (second, third):
        outcome = fanned.outcomes[event_id]
        assert isinstance(outcome, Retry)
        assert (outcome.reason, outcome.counted) == (PARKED, False)


def test_what_one_has_accepted_and_the_other_has_not_seen_is_retried() -> None:
    """Nothing is in flight any more: the outcome is there at once, with the name of who has it."""
    fanned = Fanned("a", "b")
    fanned.far["b"].capacity = 0
    (event_id,) = fanned.offer()
    fanned.answer("a")
    assert fanned.fanout.take_back() == []
    fanned.turn()
    assert fanned.outcomes == {event_id: Retry(PARKED, "not yet handed to b", False, None, ("a",))}


def test_only_what_is_not_kept_is_taken_back() -> None:
    """Leases that were lost: the others stay where they are."""
    fanned = Fanned("a", "b", capacity=0)
    ids = fanned.offer(4)
    taken = fanned.fanout.take_back(lambda item: item.event.id != ids[1])
    assert [item.event.id for item in taken] == [ids[1]]
    assert fanned.fanout.waiting == 3


def test_an_outcome_of_an_event_that_was_given_up_changes_nothing() -> None:
    """A publisher may answer late; nobody waits for it any more."""
    fanned = Fanned("a", "b")
    (event_id,) = fanned.offer()
    fanned.routes["a"].in_flight.clear()
    fanned.answer("a")
    assert fanned.outcomes == {}
    assert event_id in fanned.routes["b"].in_flight


@pytest.mark.parametrize("count", [1, 8])
def test_names_are_written_without_repetition(count: int) -> None:
    """Eight of them with their marks fit the column of 255 characters."""
    names = tuple(f"{'n' * 23}{number}" for number in range(count))
    text = published_to(Dead(REJECTED, "no", refused=(*names, *names)))
    assert text is not None
    assert text.split(",") == [f"!{name}" for name in names]
    assert len(text) <= 255


def test_nothing_to_write_is_no_text() -> None:
    """None leaves the column, and with it the row's width, as it is."""
    assert published_to(DELIVERED) is None
    assert published_to(FAULT) is None


def test_closing_closes_every_publisher() -> None:
    """By the same deadline."""
    fanned = Fanned("a", "b")
    fanned.fanout.close(9.0)
    assert [far.closed_by_s for far in fanned.far.values()] == [9.0, 9.0]


def test_one_worn_out_publisher_is_enough_to_replace_the_worker() -> None:
    """Half of its threads hang in somebody's code."""
    fanned = Fanned("a", "b")
    assert not fanned.fanout.worn_out
    fanned.far["b"].worn_out = True
    assert fanned.fanout.worn_out
