"""The publisher for Tencent IM against a server that speaks its protocol: what arrives."""

import sys
import time

import pytest
from msgspec import structs

from outboxd.config.schema import TencentApp
from outboxd.envelope import to_protobuf
from outboxd.event import DELIVERED, INVALID, MISCONFIGURED, Dead, Retry
from outboxd.publishers import check, open_publisher
from outboxd.tencent.requests import MESSAGE_BYTES
from tests.services.publishing import make_event, publish, publish_all
from tests.services.tencent import TencentServer
from tests.services.tencent_rooms import APP, OTHER_APP, OpensIm, apps_of, im_settings, room_event
from tests.services.tencent_state import BAN, CREATE, DELETE, INFO, MUTE, SEND, Group

pytest_plugins = ["tests.services.tencent_publishing"]


def test_a_room_is_created_and_hears_its_events(server: TencentServer, opens_im: OpensIm) -> None:
    """Every UserSig is checked by Tencent's own library."""
    publisher = opens_im()
    event = room_event(body={"gift": "火箭"})
    assert publish(publisher, room_event("RoomCreated")) is DELIVERED
    assert publish(publisher, event) is DELIVERED
    assert server.commands() == [CREATE, SEND]
    (data,) = server.apps[APP].data("room-1")
    assert (data["event_id"], data["outbox_id"], data["body"]) == (event.event_id, event.id, {"gift": "火箭"})


def test_creating_a_room_again_is_a_success(server: TencentServer, opens_im: OpensIm) -> None:
    """G1: the answer to the first attempt may have been lost."""
    for publisher in (opens_im(), opens_im()):
        assert publish(publisher, room_event("RoomCreated")) is DELIVERED
    assert list(server.apps[APP].groups) == ["room-1"]


def test_a_room_that_somebody_else_made_as_it_was_wanted_is_a_success(server: TencentServer, opens_im: OpensIm) -> None:
    """And one that is another's is a dead letter: its events would reach strangers."""
    server.apps[APP].accounts |= {"owner-1", "stranger"}
    server.apps[APP].groups = {"r-1": Group("ChatRoom", "", "r-1"), "r-2": Group("ChatRoom", "stranger", "r-2")}
    server.answer(CREATE, 10021)
    publisher = opens_im()
    assert publish(publisher, room_event("RoomCreated", room_id="r-1")) is DELIVERED
    outcome = publish(publisher, room_event("RoomCreated", room_id="r-2"))
    assert isinstance(outcome, Dead)
    assert "owner stranger" in outcome.error
    assert server.commands() == [CREATE, INFO, CREATE, INFO]


def test_a_message_that_comes_before_its_group_makes_it(server: TencentServer, opens_im: OpensIm) -> None:
    """Lanes are not ordered unless they say so."""
    assert publish(opens_im(group_owner="owner-1"), room_event()) is DELIVERED
    assert server.commands() == [SEND, CREATE, "account_import", CREATE, SEND]
    assert server.apps[APP].groups["room-1"].owner == "owner-1"
    assert len(server.apps[APP].data("room-1")) == 1


def test_a_repeated_message_is_known_to_tencent_by_its_row(server: TencentServer, opens_im: OpensIm) -> None:
    """G1: what came twice within five minutes is heard once; other rows are never taken for repeats."""
    publisher = opens_im()
    event = room_event()
    for sent in (event, event, room_event()):
        assert publish(publisher, sent) is DELIVERED
    group = server.apps[APP].groups["room-1"]
    assert (len(group.messages), group.repeated) == (2, 1)


def test_each_tenant_has_its_own_app(server: TencentServer, opens_im: OpensIm) -> None:
    publisher = opens_im(group_id="{app_code}-{room_id}")
    events = [room_event(app_code=app_code) for app_code in ("app", "other") * 5]
    assert [outcome for _, outcome in publish_all(publisher, events)] == [DELIVERED] * 10
    for sdk_app_id, app_code in ((APP, "app"), (OTHER_APP, "other")):
        app = server.apps[sdk_app_id]
        assert list(app.groups) == [f"{app_code}-room-1"]
        told = {data["event_id"] for data in app.data(f"{app_code}-room-1")}
        assert told == {event.event_id for event in events if event.app_code == app_code}


@pytest.mark.parametrize("app_code", ["stranger", "", "App", "\ud800"])
def test_a_tenant_without_an_app_is_held(server: TencentServer, opens_im: OpensIm, app_code: str) -> None:
    """G6: someone forgot to configure it; nothing is wrong with its events."""
    outcome = publish(opens_im(), room_event(app_code=app_code))
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (MISCONFIGURED, False)
    assert outcome.error.startswith("no app for app_code ")
    assert server.asked == []


def test_events_without_a_tenant_may_have_an_app(server: TencentServer, opens_im: OpensIm) -> None:
    publisher = opens_im(apps=apps_of(**{"": OTHER_APP}))
    assert publish(publisher, room_event(app_code="")) is DELIVERED
    assert {asked.app for asked in server.asked} == {OTHER_APP}


def test_types_without_a_picture_in_im_make_no_call(server: TencentServer, opens_im: OpensIm) -> None:
    """Not even where nothing else is right about them."""
    publisher = opens_im(silent_events=("RoomHeat*", "RoomRankChanged"))
    silent = [make_event(event_type=name, app_code="stranger") for name in ("RoomHeatChanged", "RoomRankChanged")]
    assert [publish(publisher, event) for event in silent] == [DELIVERED, DELIVERED]
    assert server.asked == []
    assert publish(publisher, room_event("RoomRankChangedNot")) is DELIVERED
    assert SEND in server.commands()


@pytest.mark.parametrize(
    "columns",
    [
        {"body": {"text": "x" * MESSAGE_BYTES}},
        {"room_id": "r" * 49},
        {"room_id": "@TGS#x"},
        {"room_id": ""},
        {"envelope": b"no json"},
    ],
    ids=["12 KB", "long id", "reserved id", "no room", "no envelope"],
)
def test_what_tencent_can_never_take_is_dead_without_a_call(
    server: TencentServer, opens_im: OpensIm, columns: dict[str, object]
) -> None:
    """G7."""
    outcome = publish(opens_im(), room_event("RoomGiftSent", **columns))
    assert isinstance(outcome, Dead)
    assert outcome.reason == INVALID
    assert server.asked == []


@pytest.mark.parametrize(
    "columns",
    [
        {"event_id": "\ud800"},
        {"event_type": "\ud800"},
        {"event_type": ""},
        {"event_id": "a\r\nX: y", "room_id": "b\r\n\r\n"},
        {"headers": "{not json"},
        {"envelope": b'{"event_id": "e", "event_type": "t", "body": {"a": %b1%b}}' % (b"[" * 990, b"]" * 990)},
        {"envelope": b'{"event_id": "e", "event_type": "t", "body": null}'},
        {"envelope": b'{"event_id": "e", "event_type": "t", "body": {"a": 1e999}}'},
        {"id": 2**64 - 1},
        {"created_at_ms": -1},
    ],
)
@pytest.mark.parametrize("event_type", ["RoomGiftSent", "RoomUserKicked"])
def test_nothing_about_an_event_harms_the_next_one(
    opens_im: OpensIm, event_type: str, columns: dict[str, object]
) -> None:
    """G7: it ends with its own outcome."""
    publisher = opens_im(member_control=True)
    usual: dict[str, object] = {"event_type": event_type, "envelope": room_event(body={"user_id": "u-1"}).envelope}
    publish(publisher, make_event(**{**usual, **columns}))
    assert publish(publisher, room_event()) is DELIVERED


def test_a_protobuf_envelope_makes_the_same_message(server: TencentServer, opens_im: OpensIm) -> None:
    """Whole numbers too, which protobuf itself does not tell from others."""
    publisher = opens_im()
    event = room_event(body={"gift": "火箭", "count": 3, "list": [1, 2.5, None]})
    encoded = structs.replace(
        event, envelope=to_protobuf(event), content_type="application/x-protobuf", id=event.id + 1
    )
    assert [publish(publisher, one) for one in (event, encoded)] == [DELIVERED, DELIVERED]
    first, second = server.apps[APP].data("room-1")
    assert {**second, "outbox_id": event.id} == first


def test_protobuf_without_its_library_is_held(
    server: TencentServer, opens_im: OpensIm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G6: nothing is wrong with the event."""
    monkeypatch.setitem(sys.modules, "outboxd.proto.messages", None)
    outcome = publish(opens_im(), room_event(content_type="application/x-protobuf"))
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted, "pip install" in outcome.error) == (MISCONFIGURED, False, True)
    assert server.asked == []


def test_a_kicked_user_is_out_of_the_group(server: TencentServer, opens_im: OpensIm) -> None:
    """Twice is as good as once."""
    app = server.apps[APP]
    app.accounts.add("u-1")
    app.groups["room-1"] = Group("ChatRoom", "", "room-1", members={"u-1", "u-2"})
    publisher = opens_im(member_control=True)
    event = room_event("RoomUserKicked", {"user_id": "u-1"})
    assert [publish(publisher, event) for _ in range(2)] == [DELIVERED, DELIVERED]
    assert app.groups["room-1"].members == {"u-2"}
    assert server.commands() == [DELETE, SEND] * 2
    assert [data["event_type"] for data in app.data("room-1")] == ["RoomUserKicked"]


@pytest.mark.parametrize("can_ban", [True, False])
def test_in_a_live_room_a_kicked_user_is_banned_or_else_muted(
    server: TencentServer, opens_im: OpensIm, can_ban: bool
) -> None:
    """An AVChatRoom knows no members that could be taken out."""
    app = server.apps[APP]
    app.accounts.add("u-1")
    app.can_ban = can_ban
    group = app.groups["room-1"] = Group("AVChatRoom", "", "room-1")
    publisher = opens_im(member_control=True, group_type="AVChatRoom")
    assert publish(publisher, room_event("RoomUserKicked", {"user_id": "u-1", "ban_seconds": 600})) is DELIVERED
    assert server.commands() == [DELETE, BAN, *([] if can_ban else [MUTE]), SEND]
    assert (group.banned if can_ban else group.muted) == {"u-1": 600}


def test_without_member_control_a_kick_is_only_told(server: TencentServer, opens_im: OpensIm) -> None:
    server.apps[APP].groups["room-1"] = Group("ChatRoom", "", "room-1", members={"u-1"})
    assert publish(opens_im(), room_event("RoomUserKicked", {"user_id": "u-1"})) is DELIVERED
    assert server.commands() == [SEND]


def test_a_kick_of_nobody_is_a_dead_letter_with_its_reason(server: TencentServer, opens_im: OpensIm) -> None:
    outcome = publish(opens_im(member_control=True), room_event("RoomUserKicked", {"who": "u-1"}))
    assert isinstance(outcome, Dead)
    assert "neither user_id nor target_user_id" in outcome.error
    assert server.asked == []


def test_a_thousand_events_go_over_a_few_connections(server: TencentServer, opens_im: OpensIm) -> None:
    """Kept alive, and for so little CPU, this server's share in it, that Tencent's 200 calls a second are the limit."""
    events = [room_event(room_id=f"room-{number % 20}") for number in range(1000)]
    start_s = time.process_time()
    outcomes = publish_all(opens_im(connections=16), events)
    used_s = time.process_time() - start_s
    assert [outcome for _, outcome in outcomes] == [DELIVERED] * 1000
    told = [data["outbox_id"] for number in range(20) for data in server.apps[APP].data(f"room-{number}")]
    assert sorted(told) == [event.id for event in events]
    assert server.receiver.accepted <= 16
    assert used_s < 1000 / 200 / 2


def test_check_says_whether_the_signatures_are_taken(server: TencentServer) -> None:
    assert check(im_settings(server.url), 5.0) == (f"{server.url} takes the signatures of 2 of 2 apps (account_check)")
    assert {asked.command for asked in server.asked} == {"account_check"}


def test_check_names_the_app_that_is_wrong(server: TencentServer) -> None:
    wrong = TencentApp(sdk_app_id=OTHER_APP, identifier="administrator", secret_key="not-the-right-key")
    with pytest.raises(
        Exception, match=r"publishers\.im\.apps\.'other': account_check: 70003 \(.*secret_key\)"
    ) as refused:
        check(im_settings(server.url, apps={**apps_of(app=APP), "other": wrong}), 5.0)
    assert "not-the-right-key" not in str(refused.value)


def test_the_configured_publisher_is_this_one(server: TencentServer) -> None:
    publisher = open_publisher(im_settings(server.url), "room_outbox", 5.0)
    assert publish(publisher, room_event("RoomCreated")) is DELIVERED
    publisher.close(time.monotonic() + 1)
