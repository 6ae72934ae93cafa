"""Delayed wake-ups of rockets: made from `RoomRocketIgnited` events, read by the room service.

    from outboxd.wakeups.redis import RedisWakeups

    with RedisWakeups("redis://127.0.0.1:6379/0") as wakeups:
        while not is_ending():
            for taken in wakeups.receive(wait_s=1.0):
                launch_if_due(taken.wakeup)     # loads the room and looks before it launches
                wakeups.done(taken)

A wake-up comes at least once, never before its time; one that is not `done` comes again. Repeats carry the same
`command_id`: whoever launches must make sure that the second one has no effect.
"""

from typing import Protocol

import msgspec

from outboxd.envelope import read
from outboxd.event import Event
from outboxd.message import InvalidEvent


class InvalidWakeup(ValueError):
    """The bytes are no wake-up. Its text says why."""


class Wakeup(msgspec.Struct, frozen=True):
    """What the room service is woken for. launch_at_ms: UTC epoch milliseconds."""

    app_code: str
    room_id: str
    rocket_id: str
    level: int
    launch_at_ms: int
    command_id: str


class Taken(msgspec.Struct, frozen=True):
    """A wake-up in the consumer's hands. attempt: 1 for the first time; 0 where the carrier does not count."""

    wakeup: Wakeup
    handle: object
    attempt: int


class Wakeups(Protocol):
    """Where wake-ups come from. One thread uses it; every wait has an end."""

    def receive(self, wait_s: float) -> list[Taken]:
        """What is due, at once or after at most wait_s; it stays hidden from other consumers for a while."""

    def done(self, taken: Taken) -> None:
        """It has had its effect: it does not come again."""

    def close(self) -> None:
        """What is not done comes again, here or elsewhere."""


LATEST_MS = 4_102_444_800_000
"""The year 2100: what is later was meant as microseconds, or not at all."""


class _Body(msgspec.Struct):
    rocket_id: str
    level: int
    launch_at_ms: int | float  # as JSON has numbers: one beyond all integers is to be told of as well


def command_id(app_code: str, room_id: str, rocket_id: str, level: int) -> str:
    """The same for every wake-up of one rocket at one level, and of no other: `:` and `%` in a part are %3A and %25."""
    parts = (part.replace("%", "%25").replace(":", "%3A") for part in (app_code, room_id, rocket_id))
    return f"rocket:{':'.join(parts)}:{level}"


def wakeup_of(event: Event) -> Wakeup:
    """The wake-up that a RoomRocketIgnited event asks for. Raises InvalidEvent."""
    try:
        body = msgspec.convert(read(event).body, _Body, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidEvent(f"the envelope's body is that of no {event.event_type}: {error}") from error
    if not body.launch_at_ms > 0 or not body.rocket_id:
        raise InvalidEvent("the envelope's body needs a rocket_id and a launch_at_ms above 0")
    if body.launch_at_ms >= LATEST_MS:
        raise InvalidEvent(
            f"the envelope's body has the launch_at_ms {body.launch_at_ms}, after the year 2099: it is in milliseconds"
        )
    if (launch_at_ms := int(body.launch_at_ms)) != body.launch_at_ms:
        raise InvalidEvent(f"the envelope's body has the launch_at_ms {body.launch_at_ms}: no whole number")
    return Wakeup(
        app_code=event.app_code,
        room_id=event.room_id,
        rocket_id=body.rocket_id,
        level=body.level,
        launch_at_ms=launch_at_ms,
        command_id=command_id(event.app_code, event.room_id, body.rocket_id, body.level),
    )


def encode(wakeup: Wakeup) -> bytes:
    """A wake-up as JSON, always the same bytes for the same wake-up."""
    return msgspec.json.encode(wakeup)


def decode(data: bytes) -> Wakeup:
    """The wake-up in a message. Raises InvalidWakeup."""
    try:
        return msgspec.json.decode(data, type=Wakeup)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidWakeup(f"no wake-up: {error}") from error
