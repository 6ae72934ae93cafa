"""Calls and answers on the wire: where a call goes to, and what stands in an answer's body."""

from collections.abc import Iterable
from urllib.parse import quote

import msgspec

from outboxd.config.schema import TencentApp
from outboxd.redact import clip, redact
from outboxd.tencent.course import Answer, GroupInfo

HEADERS = ["Content-Type: application/json", "Expect:"]
INFO_CHARACTERS = 200
NO_CODE = -1
"""An answer that says FAIL and gives no code."""


_NAMES = {"code": "ErrorCode", "status": "ActionStatus", "info": "ErrorInfo", "groups": "GroupInfo"}


class _Body(msgspec.Struct, frozen=True, rename=_NAMES):
    code: int
    status: str | None = None
    info: str | None = None
    groups: tuple[GroupInfo, ...] = ()


_body = msgspec.json.Decoder(_Body)


class Unreadable(Exception):
    """The body is no answer of Tencent IM."""


def url_of(host: str, command: str, app: TencentApp, signature: str, random: int) -> str:
    """Where a call is POSTed to. The URL holds the signature: it is a secret. random: any number below 2^32."""
    query = f"sdkappid={app.sdk_app_id}&identifier={quote(app.identifier, safe='')}&usersig={signature}"
    return f"{host}/v4/{command}?{query}&random={random}&contenttype=json"


def read_answer(body: bytes, secrets: Iterable[str]) -> Answer:
    """What the body says; members that are unknown are passed over. Raises Unreadable."""
    try:
        read = _body.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"no answer of Tencent IM ({error}): {shown(body, secrets)}") from error
    code = read.code or (NO_CODE if read.status == "FAIL" else 0)
    info = clip(redact(read.info, secrets), INFO_CHARACTERS) if read.info and code else ""
    return Answer(code, info, read.groups)


def shown(body: bytes, secrets: Iterable[str]) -> str:
    """The beginning of a body, for people."""
    return clip(redact(body[: 8 * INFO_CHARACTERS].decode("utf-8", "replace"), secrets), INFO_CHARACTERS)
