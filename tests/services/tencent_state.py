"""What Tencent IM keeps for one app, and what each call does to it. Part of tencent.py."""

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

ADMIN = "administrator"
MESSAGE_BYTES = 12 * 1024
DEDUPE_S = 300.0
CREATE, SEND, INFO = "create_group", "send_group_msg", "get_group_info"
DELETE, BAN, MUTE = "delete_group_member", "ban_group_member", "forbid_send_msg"
IMPORT, CHECK = "account_import", "account_check"


class Refused(Exception):
    """Answered with a code."""

    def __init__(self, code: int, info: str = "refused") -> None:
        super().__init__(code, info)
        self.code, self.info = code, info


class Mistake(Refused):
    """Against the protocol: a caller that keeps to it is never refused so."""


@dataclass
class Group:
    """One group. messages: the bodies that were kept; `repeated` counts those dropped as repeated."""

    type: str
    owner: str
    name: str
    members: set[str] = field(default_factory=set)
    banned: dict[str, int] = field(default_factory=dict)
    muted: dict[str, int] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    repeated: int = 0
    seen: dict[tuple[str, int], float] = field(default_factory=dict)


@dataclass
class App:
    """One tenant. invalid_before: UserSigs made earlier are refused. can_ban: ban_group_member is on."""

    key: str
    accounts: set[str] = field(default_factory=lambda: {ADMIN})
    groups: dict[str, Group] = field(default_factory=dict)
    invalid_before: float = 0.0
    can_ban: bool = True

    def data(self, group: str) -> list[dict[str, Any]]:
        """What the custom messages of a group carry."""
        bodies = self.groups[group].messages if group in self.groups else []
        return [json.loads(body["MsgBody"][0]["MsgContent"]["Data"]) for body in bodies]

    def do(self, command: str, body: dict[str, Any]) -> dict[str, Any]:
        """Carry a call out; what its answer has beside the envelope. Raises Refused."""
        actions: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
            CREATE: self._create,
            SEND: self._send,
            INFO: self._info,
            DELETE: self._delete,
            BAN: self._ban,
            MUTE: self._mute,
            IMPORT: self._import,
            CHECK: self._check,
        }
        try:
            return actions[command](body) or {}
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise Mistake(10004, f"{command}: {error!r}") from error

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        group, kind, owner = body["GroupId"], body["Type"], body.get("Owner_Account", "")
        if re.fullmatch(r"(?!@TGS#)[ -~]{1,48}", group) is None or len(body["Name"].encode()) > 30:
            raise Mistake(10015, f"group id {group!r}, name {body['Name']!r}")
        if owner and owner not in self.accounts:
            raise Refused(10019, "no such owner")
        if group in self.groups:
            raise Refused(10025 if self.groups[group].owner == owner else 10021, "group id in use")
        self.groups[group] = Group(kind, owner, body["Name"])
        return {"GroupId": group}

    def _send(self, body: dict[str, Any]) -> dict[str, Any]:
        group = self._group(body["GroupId"])
        (element,) = body["MsgBody"]
        if element["MsgType"] != "TIMCustomElem" or not isinstance(element["MsgContent"]["Data"], str):
            raise Mistake(10004, "no TIMCustomElem with Data")
        if len(json.dumps(body["MsgBody"], ensure_ascii=False).encode()) > MESSAGE_BYTES + 1024:
            raise Mistake(80002, "message too long")
        if not 0 <= body["Random"] < 2**32:
            raise Mistake(10004, "Random is no 32-bit number")
        key, now_s = (body.get("From_Account", ADMIN), body["Random"]), time.monotonic()
        is_repeated = now_s - group.seen.get(key, -DEDUPE_S) < DEDUPE_S
        group.seen.setdefault(key, now_s)
        if is_repeated:
            group.repeated += 1
        else:
            group.messages.append(body)
        return {"MsgTime": int(time.time()), "MsgSeq": len(group.messages)}

    def _info(self, body: dict[str, Any]) -> dict[str, Any]:
        found = []
        for name in body["GroupIdList"]:
            group = self.groups.get(name)
            if group is None:
                found.append({"GroupId": name, "ErrorCode": 10015, "ErrorInfo": "no such group"})
            else:
                told = {"Type": group.type, "Owner_Account": group.owner, "ErrorCode": 0, "Name": group.name}
                found.append({"GroupId": name, **told})
        return {"GroupInfo": found}

    def _delete(self, body: dict[str, Any]) -> None:
        group = self._group(body["GroupId"])
        if group.type == "AVChatRoom":
            raise Refused(10004, "not for AVChatRoom")
        group.members -= set(self._accounts(body["MemberToDel_Account"]))

    def _ban(self, body: dict[str, Any]) -> None:
        group = self._group(body["GroupId"])
        if not self.can_ban:
            raise Refused(10026, "not enabled")
        group.banned |= dict.fromkeys(self._accounts(body["Members_Account"]), body["Duration"])

    def _mute(self, body: dict[str, Any]) -> None:
        group = self._group(body["GroupId"])
        group.muted |= dict.fromkeys(self._accounts(body["Members_Account"]), body["MuteTime"])

    def _import(self, body: dict[str, Any]) -> None:
        self.accounts.add(body["UserID"])

    def _check(self, body: dict[str, Any]) -> dict[str, Any]:
        users = [item["UserID"] for item in body["CheckItem"]]
        states = {user: "Imported" if user in self.accounts else "NotImported" for user in users}
        return {"ResultItem": [{"UserID": user, "ResultCode": 0, "AccountStatus": states[user]} for user in users]}

    def _group(self, name: str) -> Group:
        if name not in self.groups:
            raise Refused(10010, "no such group")
        return self.groups[name]

    def _accounts(self, users: Iterable[str]) -> list[str]:
        for user in users:
            if user not in self.accounts:
                raise Refused(10019, "no such account")
        return list(users)
