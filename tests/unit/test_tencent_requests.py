"""From an event to its calls: ids, sizes, bytes."""

import json
import zlib
from typing import Any

import msgspec
import pytest

from outboxd.config.schema import GROUP_TYPES, TencentIm
from outboxd.envelope import Envelope
from outboxd.event import Event
from outboxd.message import InvalidEvent
from outboxd.tencent.requests import BAN_S, MESSAGE_BYTES, Call, Errand, errand_of, send_group_msg
from tests.services.publishing import make_event
from tests.services.tencent_rooms import im_settings, room_event


def errand(event: Event, member_control: bool = False, **changes: Any) -> Errand:
    settings: TencentIm = im_settings("http://h", **changes)
    return errand_of(event, settings, "administrator", member_control)


def content(call: Call | None) -> dict[str, Any]:
    assert call is not None
    decoded: dict[str, Any] = json.loads(call.body)
    return decoded


def sent(event: Event, **changes: Any) -> dict[str, Any]:
    return content(errand(event, **changes).send)


def test_a_message_carries_what_a_receiver_needs_to_know_it_again() -> None:
    """G1: it may come twice, and receivers dedupe by event_id."""
    event = room_event(id=77, event_id="e-77", room_id="r-1", app_code="app")
    call = errand(event).send
    assert call is not None
    assert call.command == "group_open_http_svc/send_group_msg"
    message = content(call)
    (element,) = message["MsgBody"]
    assert element["MsgType"] == "TIMCustomElem"
    assert element["MsgContent"]["Desc"] == "RoomGiftSent"
    assert json.loads(element["MsgContent"]["Data"]) == {
        "event_id": "e-77",
        "event_type": "RoomGiftSent",
        "room_id": "r-1",
        "app_code": "app",
        "room_version": 7,
        "occurred_at_ms": 1_700_000_000_456,
        "lane": "room_outbox",
        "outbox_id": 77,
        "body": {"gift": '火箭 "1"'},
    }
    assert json.loads(str(message["CloudCustomData"])) == {
        "lane": "room_outbox", "outbox_id": 77, "event_id": "e-77",
    }  # fmt: skip
    assert message["GroupId"] == "r-1"


@pytest.mark.parametrize(
    ("row", "lane", "expected"),
    [
        (1, "room_outbox", 1 + zlib.crc32(b"room_outbox")),
        (2**32 + 5, "room_outbox", 5 + zlib.crc32(b"room_outbox")),
        (2**32 - zlib.crc32(b"room_outbox"), "room_outbox", 0),
        (1, "room_robot_outbox", 1 + zlib.crc32(b"room_robot_outbox")),
    ],
)
def test_random_is_the_row_and_the_lane(row: int, lane: str, expected: int) -> None:
    """G1: the same at every attempt, so that Tencent drops a repeat; different for every row of a lane."""
    assert sent(room_event(id=row, lane=lane))["Random"] == expected


def test_room_created_makes_a_group_and_needs_nothing_of_its_envelope() -> None:
    for envelope in (b"{}", b"\xff", b'{"a": 1}'):
        found = errand(make_event(event_type="RoomCreated", room_id="r-9", envelope=envelope))
        assert (found.send, found.kick) == (None, None)
        assert found.create.command == "group_open_http_svc/create_group"
        assert content(found.create) == {"Type": "ChatRoom", "GroupId": "r-9", "Name": "r-9"}
        assert found.create.account == "administrator"


@pytest.mark.parametrize("group_type", GROUP_TYPES)
def test_a_group_has_the_configured_type_and_owner(group_type: str) -> None:
    found = errand(room_event("RoomCreated"), group_type=group_type, group_owner="owner-1").create
    assert content(found) == {"Type": group_type, "GroupId": "room-1", "Name": "room-1", "Owner_Account": "owner-1"}
    assert found.account == "owner-1"


def test_a_long_id_is_cut_to_a_name() -> None:
    """Names have 30 bytes at the most."""
    assert content(errand(room_event("RoomCreated", room_id="r" * 48)).create)["Name"] == "r" * 30


@pytest.mark.parametrize(
    ("template", "room_id", "expected"),
    [
        ("{room_id}", "r-1", "r-1"),
        ("im-{app_code}-{room_id}", "r-1", "im-app-r-1"),
        ("x{room_id}", "{app_code}", "x{app_code}"),
        ("{room_id.__class__}{room_id}", "r", "{room_id.__class__}r"),
        ("{room_id}", "r" * 48, "r" * 48),
        ("{room_id}", " ~", " ~"),
    ],
)
def test_a_group_id_is_made_by_the_template(template: str, room_id: str, expected: str) -> None:
    """What stands in a row is no template."""
    assert errand(room_event(room_id=room_id), group_id=template).group == expected


@pytest.mark.parametrize("room_id", ["r" * 49, "房间", "a\n", "a\x7f", "@TGS#1", "\ud800", ""])
def test_a_room_without_a_usable_group_id_is_invalid(room_id: str) -> None:
    for event_type in ("RoomCreated", "RoomGiftSent"):
        with pytest.raises(InvalidEvent, match="group"):
            errand(room_event(event_type, room_id=room_id))


def size_of(event: Event) -> int:
    """As it is counted: what is sent, without the group and Random."""
    message = sent(event)
    return sum(len(msgspec.json.encode(message[name])) for name in ("MsgBody", "CloudCustomData"))


def test_a_message_may_have_twelve_kilobytes_and_not_one_more() -> None:
    """Tencent refuses it; it is known before the call."""
    spare = MESSAGE_BYTES - size_of(room_event(body={"text": ""}, id=1, event_id="e"))
    largest = room_event(body={"text": "x" * spare}, id=1, event_id="e")
    assert size_of(largest) == MESSAGE_BYTES
    with pytest.raises(InvalidEvent, match=r"12289 bytes, the most is 12288"):
        errand(room_event(body={"text": "x" * (spare + 1)}, id=1, event_id="e"))


def test_the_size_is_counted_in_bytes() -> None:
    with pytest.raises(InvalidEvent, match="too large"):
        errand(room_event(body={"text": "房" * 5000}))


@pytest.mark.parametrize(
    "columns",
    [{"envelope": b"no json"}, {"envelope": b"[]"}, {"content_type": "text/plain"}, {"event_id": "\ud800"}],
    ids=["no json", "a list", "text", "surrogate"],
)
def test_what_is_no_event_is_invalid(columns: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent):
        errand(room_event(**columns))


def test_a_body_that_is_nested_too_deeply_is_invalid() -> None:
    """G7: how deep a body can be read depends on who calls, so writing it again may fail where reading did not."""
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    content = Envelope(event_id="e", event_type="t", body={"deep": deep})
    with pytest.raises(InvalidEvent, match="nested too deeply"):
        send_group_msg(room_event(), content, "room-1", "administrator")


@pytest.mark.parametrize(
    ("body", "user", "duration_s"),
    [
        ({"user_id": "u-1"}, "u-1", BAN_S),
        ({"target_user_id": "u-2", "ban_seconds": 60}, "u-2", 60),
        ({"user_id": "who-kicks", "target_user_id": "u-3"}, "u-3", BAN_S),
        ({"user_id": 12345, "ban_seconds": 2**32 - 1}, "12345", 2**32 - 1),
        ({"user_id": "u-4", "ban_seconds": 0}, "u-4", BAN_S),
        ({"user_id": "u-5", "ban_seconds": None}, "u-5", BAN_S),
    ],
)
def test_a_kicked_user_is_found_in_the_body(body: dict[str, Any], user: str, duration_s: int) -> None:
    kick = errand(room_event("RoomUserKicked", body), member_control=True).kick
    assert kick is not None
    assert content(kick.delete) == {"GroupId": "room-1", "MemberToDel_Account": [user]}
    assert content(kick.ban) == {"GroupId": "room-1", "Members_Account": [user], "Duration": duration_s}
    assert content(kick.mute) == {"GroupId": "room-1", "Members_Account": [user], "MuteTime": duration_s}
    assert {call.account for call in (kick.delete, kick.ban, kick.mute)} == {user}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "names nobody"),
        ({"user_id": ""}, "names nobody"),
        ({"user_id": ["u"]}, "is no id of a user"),
        ({"user_id": True}, "is no id of a user"),
        ({"user_id": "u" * 33}, "is no id of a user"),
        ({"user_id": "u", "ban_seconds": "60"}, "ban_seconds"),
        ({"user_id": "u", "ban_seconds": -1}, "ban_seconds"),
        ({"user_id": "u", "ban_seconds": 2**32}, "ban_seconds"),
        ({"user_id": "u", "ban_seconds": 1.5}, "ban_seconds"),
    ],
)
def test_a_kick_that_cannot_be_carried_out_says_why(body: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidEvent, match=reason):
        errand(room_event("RoomUserKicked", body), member_control=True)


def test_without_member_control_a_kick_is_a_message() -> None:
    found = errand(room_event("RoomUserKicked", {}))
    assert found.kick is None
    assert found.send is not None
