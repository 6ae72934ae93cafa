"""From an event to the calls that Tencent IM wants for it.

| event | calls |
|---|---|
| of a type in `silent_events` | none |
| RoomCreated | create_group |
| RoomUserKicked, with member control | delete_group_member (or ban, or mute), then send_group_msg |
| any other | send_group_msg |
"""

import re
import zlib
from typing import Any

import msgspec

from outboxd import envelope
from outboxd.config.schema import TencentIm
from outboxd.event import Event
from outboxd.message import InvalidEvent

CREATED, KICKED = "RoomCreated", "RoomUserKicked"

MESSAGE_BYTES = 12 * 1024
"""The most that Tencent takes as one message; counted here: MsgBody and CloudCustomData, as they are sent."""
GROUP_ID_BYTES = 48
NAME_BYTES = 30
USER_ID_BYTES = 32
BAN_S = 86_400
"""For how long a user is banned or muted where the event does not say it (`ban_seconds`)."""
LONGEST_BAN_S = 2**32 - 1

_GROUPS = "group_open_http_svc/"
_ACCOUNTS = "im_open_login_svc/"
_GROUP_ID = re.compile(rf"(?!@TGS#)[ -~]{{1,{GROUP_ID_BYTES}}}")
_PLACEHOLDER = re.compile(r"\{(room_id|app_code)\}")


class Call(msgspec.Struct, frozen=True):
    """One request. account: the one that must exist for it. is_resigned: with a UserSig made for this call."""

    command: str
    body: bytes
    account: str = ""
    is_resigned: bool = False

    @property
    def name(self) -> str:
        """The command without its service."""
        return self.command.rpartition("/")[2]


class Kick(msgspec.Struct, frozen=True):
    """What puts a user out of a group, in the order in which it is tried: the type of the group decides what works."""

    delete: Call
    ban: Call
    mute: Call


class Errand(msgspec.Struct, frozen=True):
    """What an event wants of its group. create: also where a message finds no group."""

    group: str
    create: Call
    kick: Kick | None
    send: Call | None


def errand_of(event: Event, settings: TencentIm, identifier: str, member_control: bool) -> Errand:
    """The calls for an event. identifier: the account that makes them. Raises InvalidEvent where there can be none."""
    group = group_id(settings.group_id, event)
    create = create_group(group, settings, identifier)
    if event.event_type == CREATED:  # which needs nothing of the envelope
        return Errand(group, create, None, None)
    content = envelope.read(event)
    kick = None
    if member_control and event.event_type == KICKED:
        user_id, duration_s = kicked_user(content.body)
        kick = Kick(
            delete_group_member(group, user_id),
            ban_group_member(group, user_id, duration_s),
            forbid_send_msg(group, user_id, duration_s),
        )
    return Errand(group, create, kick, send_group_msg(event, content, group, identifier))


def group_id(template: str, event: Event) -> str:
    """The id of the room's group. Raises InvalidEvent for what Tencent does not take as one."""
    if not event.room_id:
        raise InvalidEvent("has no room_id, so there is no group that it could go to")
    parts = {"room_id": event.room_id, "app_code": event.app_code}
    made = _PLACEHOLDER.sub(lambda found: parts[found[1]], template)
    if _GROUP_ID.fullmatch(made) is None:
        raise InvalidEvent(
            f"group id {made!a} cannot be used: Tencent takes 1 to {GROUP_ID_BYTES} printable ASCII characters that"
            " do not begin with @TGS#"
        )
    return made


def kicked_user(body: dict[str, Any]) -> tuple[str, int]:
    """Who is put out, and for how many seconds where that is asked for. Raises InvalidEvent."""
    # Where both are given, user_id may be the one who kicks.
    user_id = body.get("target_user_id") or body.get("user_id")
    if isinstance(user_id, int) and not isinstance(user_id, bool):
        user_id = str(user_id)
    if not user_id:
        raise InvalidEvent(f"{KICKED} names nobody: its body has neither user_id nor target_user_id")
    if not isinstance(user_id, str) or len(user_id.encode("utf-8", "surrogatepass")) > USER_ID_BYTES:
        raise InvalidEvent(f"{KICKED}: {user_id!a} is no id of a user: text of at most {USER_ID_BYTES} bytes")
    duration_s = body.get("ban_seconds") or BAN_S
    if not isinstance(duration_s, int) or isinstance(duration_s, bool) or not 0 < duration_s <= LONGEST_BAN_S:
        raise InvalidEvent(f"{KICKED}: ban_seconds must be a whole number of seconds from 1 to {LONGEST_BAN_S}")
    return user_id, duration_s


def random_of(event: Event) -> int:
    """By this Tencent knows a repeated message for five minutes. It cannot repeat within a lane, as a hash could."""
    return (event.id + zlib.crc32(event.lane.encode("utf-8", "surrogatepass"))) % 2**32


def send_group_msg(event: Event, content: envelope.Envelope, group: str, identifier: str) -> Call:
    """The message of an event. Raises InvalidEvent where it is too large."""
    data = {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "room_id": event.room_id,
        "app_code": event.app_code,
        "room_version": content.room_version,
        "occurred_at_ms": content.occurred_at_ms,
        "lane": event.lane,
        "outbox_id": event.id,
        "body": content.body,
    }
    origin = {"lane": event.lane, "outbox_id": event.id, "event_id": event.event_id}
    element = {"MsgType": "TIMCustomElem", "MsgContent": {"Data": _text(data), "Desc": event.event_type}}
    message = {"MsgBody": [element], "CloudCustomData": _text(origin)}
    size_bytes = sum(len(_json(part)) for part in message.values())
    if size_bytes > MESSAGE_BYTES:
        raise InvalidEvent(f"too large for Tencent IM: the message has {size_bytes} bytes, the most is {MESSAGE_BYTES}")
    body = {"GroupId": group, "Random": random_of(event), **message}
    return Call(_GROUPS + "send_group_msg", _json(body), identifier)


def create_group(group: str, settings: TencentIm, identifier: str) -> Call:
    """The group of a room. Its name is its id: a room's own name may be refused by moderation."""
    body = {"Type": settings.group_type, "GroupId": group, "Name": group[:NAME_BYTES]}
    if settings.group_owner:
        body["Owner_Account"] = settings.group_owner
    return Call(_GROUPS + "create_group", _json(body), settings.group_owner or identifier)


def get_group_info(group: str) -> Call:
    """Owner and type of a group."""
    wanted = {"GroupBaseInfoFilter": ["Type", "Owner_Account"]}
    return Call(_GROUPS + "get_group_info", _json({"GroupIdList": [group], "ResponseFilter": wanted}))


def delete_group_member(group: str, user_id: str) -> Call:
    """Succeeds for who is no member, too."""
    return Call(_GROUPS + "delete_group_member", _json({"GroupId": group, "MemberToDel_Account": [user_id]}), user_id)


def ban_group_member(group: str, user_id: str, duration_s: int) -> Call:
    """Who is banned neither gets messages nor can come back."""
    body = {"GroupId": group, "Members_Account": [user_id], "Duration": duration_s}
    return Call(_GROUPS + "ban_group_member", _json(body), user_id)


def forbid_send_msg(group: str, user_id: str, duration_s: int) -> Call:
    """Mute: the user stays and hears, and cannot speak."""
    body = {"GroupId": group, "Members_Account": [user_id], "MuteTime": duration_s}
    return Call(_GROUPS + "forbid_send_msg", _json(body), user_id)


def account_import(user_id: str) -> Call:
    """Make an account known. Once more changes nothing."""
    return Call(_ACCOUNTS + "account_import", _json({"UserID": user_id}))


def account_check(user_id: str) -> Call:
    """Ask whether an account is known; changes nothing."""
    return Call(_ACCOUNTS + "account_check", _json({"CheckItem": [{"UserID": user_id}]}))


def _json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise InvalidEvent(f"a column holds text that is no valid unicode: {error.reason}") from error
    except RecursionError as error:
        raise InvalidEvent("the envelope's body is nested too deeply") from error


def _text(value: object) -> str:
    return _json(value).decode()
