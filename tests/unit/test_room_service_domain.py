"""The example's rooms: what may be done in them, and that they are the fold of their events."""

import doctest
from functools import reduce

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outboxd.envelope import Envelope
from room_service import domain
from room_service.domain import (
    DAY_MS,
    LEVELS,
    SEATS,
    AnyCommand,
    Create,
    IgniteRocket,
    Join,
    Kick,
    LaunchRocket,
    Leave,
    MicDown,
    MicUp,
    NotYet,
    Refused,
    Room,
    Rules,
    SendGift,
    decide,
    fold,
    read_command,
)

ROOM = "room-1"
NOON_MS = DAY_MS // 2
RULES = Rules(rocket_delay_ms=10_000)


def do(room: Room, command: AnyCommand, now_ms: int = NOON_MS) -> tuple[Room, list[Envelope]]:
    """The room after a command, and its events."""
    changes = decide(room, command, now_ms, RULES)
    events = [
        Envelope(event_id=f"e-{version}", event_type=kind, room_id=room.room_id, room_version=version, body=body)
        for version, (kind, body) in enumerate(changes, room.version + 1)
    ]
    assert events
    return reduce(fold, events, room), events


def after(*commands: AnyCommand) -> Room:
    """A new room after these."""
    return reduce(lambda room, command: do(room, command)[0], commands, Room(ROOM))


users = st.sampled_from(["u-1", "u-2", "u-3", "u-4"])
commands = st.one_of(
    st.builds(Create, user_id=users, title=st.text(max_size=5)),
    st.builds(Join, user_id=users),
    st.builds(Leave, user_id=users),
    st.builds(MicUp, user_id=users, seat=st.integers(-1, SEATS)),
    st.builds(MicDown, user_id=users),
    st.builds(SendGift, user_id=users, to_user_id=users, gift_id=st.just("g"), coins=st.integers(1, 9)),
    st.builds(Kick, user_id=users, target_user_id=users),
    st.builds(IgniteRocket, user_id=users, level=st.integers(0, LEVELS + 1)),
    st.builds(LaunchRocket, rocket_id=st.just("rk-2"), level=st.just(1), launch_at_ms=st.just(NOON_MS + 10_000)),
)


@given(st.lists(st.tuples(commands, st.integers(NOON_MS, NOON_MS + 20_000)), max_size=40))
def test_a_room_is_the_fold_of_its_events(steps: list[tuple[AnyCommand, int]]) -> None:
    """Also of those that went through JSON, in the log and over the wire; and it never contradicts itself."""
    room, told = Room(ROOM), list[Envelope]()
    for command, now_ms in steps:
        try:
            room, events = do(room, command, now_ms)
        except Refused:
            continue
        told += events
        seated = [user for user in room.seats if user]
        assert set(seated) <= set(room.members)
        assert len(seated) == len(set(seated))
        assert len(room.members) == len(set(room.members))
        assert not set(room.members) & set(room.kicked)
    written = msgspec.json.decode(msgspec.json.encode(told), type=list[Envelope])
    assert reduce(fold, written, Room(ROOM)) == room
    assert msgspec.json.decode(msgspec.json.encode(room), type=Room) == room


@given(st.lists(commands, max_size=30), st.data())
def test_an_event_that_is_missing_repeated_or_out_of_turn_is_found_out(
    steps: list[AnyCommand], data: st.DataObject
) -> None:
    """The versions of a room have no gaps."""
    room, told = Room(ROOM), list[Envelope]()
    for command in [Create("u-1"), Join("u-2"), *steps]:
        try:
            room, events = do(room, command)
        except Refused:
            continue
        told += events
    place = data.draw(st.integers(0, len(told) - 2))
    swapped = [*told[:place], told[place + 1], told[place], *told[place + 2 :]]
    for wrong in (told[:place] + told[place + 1 :], told[: place + 1] + told[place:], swapped):
        with pytest.raises(ValueError, match=r"is at version \d+; this is event"):
            reduce(fold, wrong, Room(ROOM))


ignited = after(Create("u-1"), IgniteRocket("u-1", 2))
LAUNCH = LaunchRocket("rk-2", 2, NOON_MS + 10_000)


def test_a_rocket_is_launched_at_its_time_once() -> None:
    with pytest.raises(NotYet):
        do(ignited, LAUNCH, NOON_MS + 9_999)
    room, _ = do(ignited, LAUNCH, NOON_MS + 10_000)
    assert room.rocket is not None
    assert room.rocket.state == "launched"
    with pytest.raises(Refused, match="is launched"):
        do(room, LAUNCH, NOON_MS + 10_001)


@pytest.mark.parametrize(
    ("launch", "now_ms", "why"),
    [
        (LaunchRocket("rk-3", 2, NOON_MS + 10_000), NOON_MS + 10_000, "is not rk-3"),
        (LaunchRocket("rk-2", 3, NOON_MS + 10_000), NOON_MS + 10_000, "at level 2"),
        (LaunchRocket("rk-2", 2, NOON_MS + 9_000), NOON_MS + 10_000, "launches at"),
        (LAUNCH, DAY_MS, "reset"),
    ],
)
def test_a_wakeup_that_does_not_fit_the_room_launches_nothing(launch: LaunchRocket, now_ms: int, why: str) -> None:
    """Rocket, level, time, and the reset at midnight UTC; the last millisecond before it will do."""
    with pytest.raises(Refused, match=why):
        do(ignited, launch, now_ms)
    assert do(ignited, LAUNCH, DAY_MS - 1)[0].rocket is not None


def test_one_rocket_at_a_time_and_a_new_one_after_the_reset() -> None:
    with pytest.raises(Refused, match="ignited already"):
        do(ignited, IgniteRocket("u-1", 1), DAY_MS - 1)
    assert do(ignited, IgniteRocket("u-1", 1), DAY_MS)[1][0].body["rocket_id"] == "rk-3"


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("dance", {"user_id": "u-1"}),
        ("join", {}),
        ("join", {"user_id": "u-1", "seat": 3}),
        ("join", {"user_id": "u" * 33}),
        ("join", {"user_id": "ü"}),
        ("mic_up", {"user_id": "u-1", "seat": "3"}),
        ("send_gift", {"user_id": "u-1", "to_user_id": "u-2", "gift_id": "g", "coins": 0}),
        ("send_gift", {"user_id": "u-1", "to_user_id": "u-2", "gift_id": "g", "coins": 1, "count": 1000}),
        ("create", {"user_id": "u-1", "title": "t" * 101}),
        ("join", ["u-1"]),
    ],
)
def test_what_is_no_command_is_refused_before_anything_is_done(kind: str, fields: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_command(kind, fields)


def test_the_examples_in_its_docstrings_are_true() -> None:
    assert doctest.testmod(domain).failed == 0
