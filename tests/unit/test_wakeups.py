"""What a wake-up is made of, and what it is called."""

import json

import pytest

from outboxd.message import InvalidEvent
from outboxd.wakeups import command_id, wakeup_of
from tests.services.publishing import make_event


def ignited(launch_at_ms: object) -> bytes:
    """The envelope of a rocket."""
    body = {"rocket_id": "rk", "level": 2, "launch_at_ms": launch_at_ms}
    return json.dumps({"event_id": "e", "event_type": "RoomRocketIgnited", "body": body}).encode()


def test_no_two_rockets_have_the_same_command() -> None:
    """Of two with the same the second would never be launched: it looks like a repeat."""
    names = [("a:b", "c", "d"), ("a", "b:c", "d"), ("a", "b", "c:d"), ("a%3Ab", "c", "d"), ("a", "b%3Ac", "d")]
    assert len({command_id(*parts, 1) for parts in names}) == len(names)
    assert command_id("a:b", "50%", "rk", 3) == "rocket:a%3Ab:50%25:rk:3"
    assert command_id("hyapp", "r-1", "rk", 3) == "rocket:hyapp:r-1:rk:3"


@pytest.mark.parametrize("launch_at_ms", [4_102_444_800_000, 1_732_900_060_000_000, 2**63, 1e20, 10**20])
def test_a_time_that_nobody_lives_to_see_is_refused(launch_at_ms: float) -> None:
    """Microseconds, most likely. Accepted, it would wait in the set for ever, or be refused by one carrier only."""
    with pytest.raises(InvalidEvent, match="after the year 2099"):
        wakeup_of(make_event(event_type="RoomRocketIgnited", envelope=ignited(launch_at_ms)))


def test_the_last_moment_of_the_century_is_a_time() -> None:
    wakeup = wakeup_of(make_event(event_type="RoomRocketIgnited", envelope=ignited(4_102_444_799_999)))
    assert wakeup.launch_at_ms == 4_102_444_799_999


@pytest.mark.parametrize("launch_at_ms", [0.5, 1732900060000.5, "NaN", "-1", "soon", None, True])
def test_what_is_no_time_is_refused(launch_at_ms: object) -> None:
    with pytest.raises(InvalidEvent, match="launch_at_ms"):
        wakeup_of(make_event(event_type="RoomRocketIgnited", envelope=ignited(launch_at_ms)))


@pytest.mark.parametrize("launch_at_ms", ["1732900060000", 1732900060000.0])
def test_a_time_may_be_text_or_have_a_fraction_of_nothing(launch_at_ms: object) -> None:
    """Protobuf's JSON writes long numbers as text, and JavaScript knows no others."""
    wakeup = wakeup_of(make_event(event_type="RoomRocketIgnited", envelope=ignited(launch_at_ms)))
    assert wakeup.launch_at_ms == 1732900060000
