"""A server that speaks Tencent IM's REST API as its documents have it, and can be told to misbehave.

    with TencentServer({1400000001: "key"}) as server:
        server.answer("send_group_msg", 10002, times=1)

It keeps groups, members, accounts and messages for each app, and believes a UserSig only if Tencent's own library
makes the same of it. What a caller does against the protocol is answered with a code, and noted in `mistakes`.
"""

import base64
import json
import re
import ssl
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from TLSSigAPIv2 import TLSSigAPIv2

from tests.services.receiver import Receiver
from tests.services.receiver_answers import Behaviour, Request
from tests.services.tencent_state import (
    ADMIN,
    BAN,
    CHECK,
    CREATE,
    DELETE,
    IMPORT,
    INFO,
    MUTE,
    SEND,
    App,
    Mistake,
    Refused,
)

SERVICES = {
    **dict.fromkeys((CREATE, SEND, INFO, DELETE, BAN, MUTE), "group_open_http_svc"),
    **dict.fromkeys((IMPORT, CHECK), "im_open_login_svc"),
}
QUERY = {"sdkappid", "identifier", "usersig", "random", "contenttype"}


@dataclass(frozen=True)
class Asked:
    """One call that came in. host: the Host header."""

    command: str
    app: int
    body: dict[str, Any]
    query: dict[str, str]
    host: str
    received_s: float


@dataclass
class _Rule:
    command: str | None
    times: int | None
    behaviour: Behaviour


class TencentServer:
    """Listens on 127.0.0.1. keys: the secret key of each app by its sdkappid. tls: speaks TLS."""

    def __init__(self, keys: Mapping[int, str], tls: ssl.SSLContext | None = None) -> None:
        self.receiver = Receiver(tls=tls)
        self.receiver.choose(self._behaviour_for)
        self.apps = {sdk_app_id: App(key) for sdk_app_id, key in keys.items()}
        self.asked: list[Asked] = []
        self.mistakes: list[str] = []
        self._rules: list[_Rule] = []

    @property
    def url(self) -> str:
        """The base URL."""
        return self.receiver.url.removesuffix("/events")

    def commands(self) -> list[str]:
        """Of the calls so far, in order."""
        return [asked.command for asked in self.asked]

    def answer(self, command: str | None, code: int, times: int | None = None, info: str = "told to") -> None:
        """Answer a command (None: each) with a code from now on, or so many times, and do nothing else."""
        content = {"ActionStatus": "FAIL" if code else "OK", "ErrorCode": code, "ErrorInfo": info}
        self.behave(command, times, status=200, body=_body(content))

    def behave(self, command: str | None, times: int | None = None, **behaviour: object) -> None:
        """Treat a command as the receiver can: hang, drip, close …; the last rule given comes first."""
        self._rules.insert(0, _Rule(command, times, Behaviour(**behaviour)))  # type: ignore[arg-type]

    def forget_rules(self) -> None:
        """Behave well again."""
        self._rules.clear()

    def __enter__(self) -> "TencentServer":
        self.receiver.__enter__()
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.receiver.__exit__(*error)

    def _behaviour_for(self, request: Request) -> Behaviour:
        try:
            asked = self._understand(request)
            self.asked.append(asked)
            self._authenticate(asked)
            for rule in self._rules:
                if rule.command in (None, asked.command) and rule.times != 0:
                    rule.times = None if rule.times is None else rule.times - 1
                    return rule.behaviour
            content = {
                "ErrorCode": 0,
                "ErrorInfo": "",
                "ActionStatus": "OK",
                **self.apps[asked.app].do(asked.command, asked.body),
            }
        except Refused as refused:
            if isinstance(refused, Mistake):
                self.mistakes.append(refused.info)
            content = {"ErrorCode": refused.code, "ErrorInfo": refused.info, "ActionStatus": "FAIL"}
        return Behaviour(status=200, body=_body(content))

    def _understand(self, request: Request) -> Asked:
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        found = re.fullmatch(r"/v4/(\w+)/(\w+)", parts.path)
        if found is None or SERVICES.get(found[2]) != found[1]:
            raise Mistake(60009, f"no such path: {parts.path}")
        if request.method != "POST":
            raise Mistake(60002, f"method {request.method}")
        if set(query) != QUERY or query["contenttype"] != "json":
            raise Mistake(60004, f"query {sorted(query)}")
        if not query["random"].isdigit() or int(query["random"]) >= 2**32:
            raise Mistake(60004, f"random {query['random']}")
        try:
            body = json.loads(request.body)
        except ValueError:
            raise Mistake(60003, "the body is no JSON") from None
        if not isinstance(body, dict):
            raise Mistake(60003, "the body is no object")
        host = request.headers.get("host", "")
        return Asked(found[2], int(query["sdkappid"]), body, query, host, request.received_s)

    def _authenticate(self, asked: Asked) -> None:
        app = self.apps.get(asked.app)
        if app is None:
            raise Refused(70020, "no such SDKAppID")
        identifier = asked.query["identifier"]
        sig = read_usersig(asked.query["usersig"])
        if sig.get("TLS.ver") != "2.0" or sig.get("TLS.identifier") != identifier:
            raise Refused(70013, "identifier does not fit the UserSig")
        if sig.get("TLS.sdkappid") != asked.app:
            raise Refused(70014, "SDKAppID does not fit the UserSig")
        if sig["TLS.sig"] != expected_signature(app.key, asked.app, sig):
            raise Refused(70003, "UserSig is wrong")
        if not sig["TLS.time"] - 60 <= time.time() < sig["TLS.time"] + sig["TLS.expire"]:
            raise Refused(70001, "UserSig has expired")
        if sig["TLS.time"] < app.invalid_before:
            raise Refused(70052, "UserSig is invalidated")
        if identifier != ADMIN:
            raise Refused(60010, "identifier is no administrator")


def read_usersig(text: str) -> dict[str, Any]:
    """The fields of a UserSig. Raises Refused where it cannot be read."""
    plain = text.replace("*", "+").replace("-", "/").replace("_", "=")
    try:
        read: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(plain, validate=True)))
    except (ValueError, zlib.error):
        raise Refused(70002, "UserSig cannot be read") from None
    return read


def expected_signature(key: str, sdk_app_id: int, sig: Mapping[str, Any]) -> str:
    """TLS.sig as Tencent's own library makes it for the same fields."""
    library = TLSSigAPIv2(sdk_app_id, key)
    sign = library._TLSSigAPIv2__hmacsha256  # the library's only function that takes the time from its caller
    signature: bytes = sign(sig["TLS.identifier"], sig["TLS.time"], sig["TLS.expire"])
    return signature.decode()


def _body(content: Mapping[str, object]) -> bytes:
    return json.dumps(content).encode()
