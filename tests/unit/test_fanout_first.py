"""Publishers that are asked before the others: a rocket's wake-up is scheduled before anybody hears of the rocket."""

from outboxd.event import PARKED, REJECTED, UNAVAILABLE, Dead, Delivered, Retry
from tests.unit.fanned import Fanned

AWAY = Retry(UNAVAILABLE, "503", counted=False)


def launching() -> Fanned:
    """Wake-ups for rockets first, then two others for everything."""
    return Fanned("launch", "web", "bus", first=("launch",), wants={"launch": lambda kind: kind == "RoomRocketIgnited"})


def test_the_others_are_asked_once_the_first_has_accepted() -> None:
    fanned = launching()
    (rocket,) = fanned.offer(event_type="RoomRocketIgnited")
    assert (fanned.far["web"].sent, fanned.far["bus"].sent) == ([], [])
    fanned.answer("launch")
    assert (fanned.far["web"].sent, fanned.far["bus"].sent) == ([rocket], [rocket])
    fanned.answer("web")
    fanned.answer("bus")
    assert fanned.outcomes == {rocket: Delivered(("launch", "web", "bus"))}


def test_events_that_are_not_for_the_first_do_not_wait_for_it() -> None:
    """Its outage never holds up the others."""
    fanned = launching()
    fanned.break_down("launch", AWAY)
    (created,) = fanned.offer(event_type="RoomCreated")
    assert fanned.far["web"].sent == [created]


def test_while_the_first_fails_the_others_hear_nothing() -> None:
    """Whoever hears of the rocket may count on its wake-up. The next attempt asks the first again."""
    fanned = launching()
    (rocket,) = fanned.offer(event_type="RoomRocketIgnited")
    fanned.answer("launch", AWAY)
    assert fanned.outcomes == {rocket: Retry(UNAVAILABLE, "launch: 503", counted=False)}
    assert fanned.far["web"].sent == []


def test_one_that_the_first_has_accepted_before_goes_to_the_others_at_once() -> None:
    fanned = launching()
    (rocket,) = fanned.offer(event_type="RoomRocketIgnited", published_to="launch")
    assert (fanned.far["launch"].sent, fanned.far["web"].sent) == ([], [rocket])


def test_what_the_first_refuses_is_told_to_the_others_and_ends_as_a_dead_letter() -> None:
    fanned = launching()
    (rocket,) = fanned.offer(event_type="RoomRocketIgnited")
    fanned.answer("launch", Dead(REJECTED, "too late"))
    fanned.answer("web")
    fanned.answer("bus")
    assert fanned.outcomes == {rocket: Dead(REJECTED, "launch: too late", ("web", "bus"), ("launch",))}


def test_after_the_drain_began_nobody_else_is_asked() -> None:
    """G5: what the first has accepted by then is remembered, and the others are asked by whoever claims it next."""
    fanned = launching()
    (rocket,) = fanned.offer(event_type="RoomRocketIgnited")
    assert fanned.fanout.take_back() == []
    fanned.answer("launch")
    assert fanned.far["web"].sent == []
    assert fanned.outcomes == {rocket: Retry(PARKED, "not yet handed to web, bus", False, None, ("launch",))}


def test_one_that_still_waits_for_the_first_is_given_back_untouched() -> None:
    fanned = Fanned("launch", "web", capacity=1, first=("launch",))
    first, second = fanned.offer(2)
    assert [item.event.id for item in fanned.fanout.take_back(lambda item: False)] == [second]
    fanned.answer("launch")
    assert fanned.far["web"].sent == [first]
