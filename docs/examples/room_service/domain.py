"""Rooms: what may be done in them, and what they become by it. Pure: no I/O, no clock, no chance.

    changes = decide(room, Join("u-5"), now_ms, Rules())     # what happens; or Refused
    room = reduce(fold, envelopes, room)                     # what the room is after it

A room is the fold of its events, from the first one on; whoever has got them all has the room.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from outboxd.envelope import Envelope

SEATS = 8
"""Microphones of a room."""
MOST_MEMBERS = 500
LEVELS = 5
"""Of rockets."""
DAY_MS = 86_400_000

IGNITED, LAUNCHED = "ignited", "launched"

class Rules(msgspec.Struct, frozen=True):
    """The service's, the same for all rooms. A rocket launches rocket_delay_ms after its ignition, on the same day: one
    ends each day at midnight UTC and reset_offset_ms.
    """

    rocket_delay_ms: int = 10_000
    reset_offset_ms: int = 0


Change = tuple[str, dict[str, Any]]
"""The type of an event, and its body."""


class Refused(Exception):
    """The room does not allow it. Its text says why."""


class NotYet(Refused):
    """A rocket's time has not come."""


class Rocket(msgspec.Struct, frozen=True):
    """Ignited now, launched at launch_at_ms, unless the day's reset comes first. Times: UTC epoch milliseconds."""

    rocket_id: str
    level: int
    state: str
    launch_at_ms: int
    reset_at_ms: int


class Room(msgspec.Struct, frozen=True):
    """A room after so many events (version). seats: who is at which microphone, "" nobody."""

    room_id: str
    version: int = 0
    owner_id: str = ""
    title: str = ""
    members: tuple[str, ...] = ()
    seats: tuple[str, ...] = ("",) * SEATS
    kicked: tuple[str, ...] = ()
    gifts: int = 0
    heat: int = 0
    rocket: Rocket | None = None


class Command(msgspec.Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """What somebody wants done."""


class Create(Command, frozen=True, tag="create"):
    user_id: str
    title: str = ""


class Join(Command, frozen=True, tag="join"):
    user_id: str


class Leave(Command, frozen=True, tag="leave"):
    user_id: str


class MicUp(Command, frozen=True, tag="mic_up"):
    user_id: str
    seat: int


class MicDown(Command, frozen=True, tag="mic_down"):
    user_id: str


class SendGift(Command, frozen=True, tag="send_gift"):
    """coins: the price of one."""

    user_id: str
    to_user_id: str
    gift_id: str
    coins: int
    count: int = 1

    @property
    def total_coins(self) -> int:
        """What the sender pays."""
        return self.coins * self.count


class Kick(Command, frozen=True, tag="kick"):
    user_id: str
    target_user_id: str


class IgniteRocket(Command, frozen=True, tag="ignite_rocket"):
    user_id: str
    level: int


class LaunchRocket(Command, frozen=True, tag="launch_rocket"):
    """What a wake-up asks for."""

    rocket_id: str
    level: int
    launch_at_ms: int


AnyCommand = Create | Join | Leave | MicUp | MicDown | SendGift | Kick | IgniteRocket | LaunchRocket


def read_command(kind: str, fields: object) -> AnyCommand:
    """A command of a caller. Raises ValueError, whose text says what is wrong with it."""
    if not isinstance(fields, dict):
        raise ValueError("a command is a JSON object")
    command: AnyCommand = msgspec.convert({**fields, "type": kind}, AnyCommand)
    for name in ("user_id", "to_user_id", "target_user_id", "gift_id"):
        value = getattr(command, name, "-")
        if not 1 <= len(value) <= 32 or not value.isascii():
            raise ValueError(f"{name} has 1 to 32 characters of ASCII")
    if isinstance(command, SendGift) and not (1 <= command.coins <= 10**6 and 1 <= command.count <= 999):
        raise ValueError("coins are 1 to 1,000,000, count is 1 to 999")
    if isinstance(command, Create) and len(command.title) > 100:
        raise ValueError("title has at most 100 characters")
    return command


def decide(room: Room, command: AnyCommand, now_ms: int, rules: Rules) -> list[Change]:
    """What happens in the room, at least one change. Raises Refused."""
    if isinstance(command, Create):
        _must(room.version == 0, "the room exists already")
        return [("RoomCreated", {"owner_id": command.user_id, "title": command.title})]
    _must(room.version > 0, "there is no such room")
    if isinstance(command, Join):
        return _join(room, command)
    if isinstance(command, LaunchRocket):
        return _launch(room, command, now_ms)
    _must(command.user_id in room.members, f"{command.user_id} is not in the room")
    if isinstance(command, Leave):
        return [("RoomUserLeft", {"user_id": command.user_id})]
    if isinstance(command, MicUp):
        return _mic_up(room, command)
    if isinstance(command, MicDown):
        _must(command.user_id in room.seats, f"{command.user_id} is at no microphone")
        return [("RoomMicDown", {"user_id": command.user_id, "seat": room.seats.index(command.user_id)})]
    if isinstance(command, SendGift):
        return _send_gift(room, command)
    if isinstance(command, Kick):
        return _kick(room, command)
    return _ignite(room, command, now_ms, rules)


def _must(condition: bool, reason: str) -> None:
    if not condition:
        raise Refused(reason)


def _join(room: Room, command: Join) -> list[Change]:
    _must(command.user_id not in room.members, f"{command.user_id} is in the room already")
    _must(command.user_id not in room.kicked, f"{command.user_id} was put out of the room")
    _must(len(room.members) < MOST_MEMBERS, "the room is full")
    return [("RoomUserJoined", {"user_id": command.user_id})]


def _mic_up(room: Room, command: MicUp) -> list[Change]:
    _must(0 <= command.seat < SEATS, f"seats are 0 to {SEATS - 1}")
    _must(not room.seats[command.seat], f"seat {command.seat} is taken")
    _must(command.user_id not in room.seats, f"{command.user_id} is at a microphone already")
    return [("RoomMicUp", {"user_id": command.user_id, "seat": command.seat})]


def _send_gift(room: Room, command: SendGift) -> list[Change]:
    _must(command.to_user_id in room.members, f"{command.to_user_id} is not in the room")
    heat = room.heat + command.total_coins
    body = msgspec.to_builtins(command)
    del body["type"]
    # The second one has no picture in IM: clients draw it from the first.
    return [("RoomGiftSent", body), ("RoomHeatChanged", {"heat": heat})]


def _kick(room: Room, command: Kick) -> list[Change]:
    _must(command.user_id == room.owner_id, "only the owner may put somebody out")
    _must(command.target_user_id in room.members, f"{command.target_user_id} is not in the room")
    _must(command.target_user_id != room.owner_id, "the owner stays")
    return [("RoomUserKicked", {"user_id": command.user_id, "target_user_id": command.target_user_id})]


def _ignite(room: Room, command: IgniteRocket, now_ms: int, rules: Rules) -> list[Change]:
    _must(1 <= command.level <= LEVELS, f"levels are 1 to {LEVELS}")
    before = room.rocket
    is_over = before is None or before.state == LAUNCHED or now_ms >= before.reset_at_ms
    _must(is_over, "a rocket is ignited already")
    body = {
        "user_id": command.user_id,
        "rocket_id": f"rk-{room.version + 1}",
        "level": command.level,
        "launch_at_ms": now_ms + rules.rocket_delay_ms,
        "reset_at_ms": reset_after_ms(now_ms, rules.reset_offset_ms),
    }
    return [("RoomRocketIgnited", body)]


def _launch(room: Room, command: LaunchRocket, now_ms: int) -> list[Change]:
    """A wake-up says that it is time to look; whether there is something to launch, the room knows."""
    rocket = room.rocket
    if rocket is None or rocket.rocket_id != command.rocket_id:
        raise Refused(f"the room's rocket is not {command.rocket_id}")
    _must(rocket.level == command.level, f"the rocket is at level {rocket.level}")
    _must(rocket.state == IGNITED, f"the rocket is {rocket.state}")
    _must(rocket.launch_at_ms == command.launch_at_ms, f"the rocket launches at {rocket.launch_at_ms}")
    _must(now_ms < rocket.reset_at_ms, "the day's reset came before the launch")
    if now_ms < rocket.launch_at_ms:
        raise NotYet(f"the rocket launches in {rocket.launch_at_ms - now_ms} ms")
    body = {"rocket_id": rocket.rocket_id, "level": rocket.level, "launch_at_ms": rocket.launch_at_ms}
    return [("RoomRocketLaunched", body)]


def reset_after_ms(at_ms: int, offset_ms: int) -> int:
    """The first reset after a moment: each day at midnight UTC and offset_ms.

    >>> reset_after_ms(1_000, 0) == reset_after_ms(0, 0) == DAY_MS
    True
    >>> reset_after_ms(DAY_MS, 0) == 2 * DAY_MS
    True
    """
    return ((at_ms - offset_ms) // DAY_MS + 1) * DAY_MS + offset_ms


def fold(room: Room, event: Envelope) -> Room:
    """The room after its next event. Raises ValueError where that is not the next one, or of an unknown type."""
    if event.room_id != room.room_id or event.room_version != room.version + 1:
        raise ValueError(
            f"{room.room_id} is at version {room.version}; this is event {event.room_version} of {event.room_id}"
        )
    return msgspec.structs.replace(room, version=event.room_version, **_changed(room, event.event_type, event.body))


def _changed(room: Room, event_type: str, body: dict[str, Any]) -> dict[str, Any]:
    """The fields that are others now."""
    user_id = str(body.get("user_id", ""))
    match event_type:
        case "RoomCreated":
            return {"owner_id": body["owner_id"], "title": body["title"], "members": (body["owner_id"],)}
        case "RoomUserJoined":
            return {"members": (*room.members, user_id)}
        case "RoomUserLeft":
            return _without(room, user_id)
        case "RoomUserKicked":
            target = body["target_user_id"]
            return {**_without(room, target), "kicked": (*room.kicked, target)}
        case "RoomMicUp":
            return {"seats": _seated(room.seats, body["seat"], user_id)}
        case "RoomMicDown":
            return {"seats": _seated(room.seats, body["seat"], "")}
        case "RoomGiftSent":
            return {"gifts": room.gifts + body["count"]}
        case "RoomHeatChanged":
            return {"heat": body["heat"]}
        case "RoomRocketIgnited":
            at = {name: body[name] for name in ("rocket_id", "level", "launch_at_ms", "reset_at_ms")}
            return {"rocket": Rocket(state=IGNITED, **at)}
        case "RoomRocketLaunched":
            assert room.rocket is not None, "a rocket is launched after its ignition"
            return {"rocket": msgspec.structs.replace(room.rocket, state=LAUNCHED)}
    raise ValueError(f"{event_type} is no event of a room")


def _without(room: Room, user_id: str) -> dict[str, Any]:
    return {
        "members": tuple(member for member in room.members if member != user_id),
        "seats": tuple("" if seat == user_id else seat for seat in room.seats),
    }


def _seated(seats: Sequence[str], number: int, user_id: str) -> tuple[str, ...]:
    return tuple(user_id if seat == number else at for seat, at in enumerate(seats))
