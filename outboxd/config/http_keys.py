"""The keys of a publisher of type http: what may stand in each, and the rules between them."""

import re
from collections.abc import Mapping
from typing import Any

from outboxd.config.document import UNUSABLE
from outboxd.config.files import existing_file, read_secret, read_webhook_key
from outboxd.config.keys import Key, items, kind_of, matching, one_of, read_text, read_whole, whole
from outboxd.config.report import Bad, Place
from outboxd.config.schema import HTTP_FORMATS
from outboxd.config.urls import check_http, has_userinfo, secrets_of

_MOST_HEADERS = 100
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HEADER_VALUE = re.compile(r"[!-~](?:[ -~]{0,4094}[!-~])?")
_SOURCE = re.compile(r"(?:\{lane\}|[!#$%&'()*+,./0-9:;=?@A-Z_a-z~\[\]-]){1,255}")
_SECRET_NAME = re.compile(r"auth|key|token|secret|pass|cookie|credential|session|signature", re.IGNORECASE)
_RELAYS = re.compile(
    r"(ce|webhook)-.*|content-(type|length|encoding)|host|transfer-encoding|connection|keep-alive|te|trailer|upgrade|"
    r"expect|proxy-.*",
    re.IGNORECASE,
)
_TRACE = ("traceparent", "tracestate", "baggage")
_OUTAGE = (429, 502, 503, 504)


def finish(settings: dict[str, Any], place: Place) -> None:
    """Check the rules between keys, and give values read from files the names of the attributes they become."""
    if "secret_file" in settings:
        settings["secret"] = settings.pop("secret_file")
    if "client_key_file" in settings and "client_cert_file" not in settings:
        place.problem("has a client_key_file but no client_cert_file, give both")
    own = {name.lower() for name in settings.get("headers", {})}
    setting_authorization = []
    if "authorization" in own:
        setting_authorization.append("headers")
    if has_userinfo(settings.get("url", "")):
        setting_authorization.append("the url")
    if "authorization_file" in settings:
        settings["authorization"] = settings.pop("authorization_file")
        setting_authorization.append("authorization_file")
    if len(setting_authorization) > 1:
        place.problem(f"sets Authorization in {' and in '.join(setting_authorization)}, keep one")
    if setting_authorization:
        own.add("authorization")
    for index, name in enumerate(settings.get("forward_headers", ())):
        if name in own:
            place.child("forward_headers").item(index).problem("this publisher sets that header itself, remove one")


def _read_url(value: object, place: Place) -> str:
    text = read_text(value, place)
    place.report.secrets.extend(secrets_of(text))
    check_http(text)
    return text


def _read_headers(value: object, place: Place) -> dict[str, str]:
    """Static headers. Their values may be secrets, and a name that is none may be a slipped value: not shown."""
    if value is not None and not isinstance(value, dict):
        raise Bad(f"expected a mapping (Name: value), got {kind_of(value)}")
    if value and len(value) > _MOST_HEADERS:
        raise Bad(f"has {len(value)} headers, the most is {_MOST_HEADERS}")
    headers: dict[str, str] = {}
    for index, (name, item) in enumerate((value or {}).items()):
        if _TOKEN.fullmatch(name) is None:
            place.problem(f"the name of header {index + 1} holds characters that no header may have, mend it")
            continue
        at = place.child(name)
        if _RELAYS.fullmatch(name) or name.lower() in _TRACE:
            at.problem("outboxd sets or controls that header itself, remove it")
        elif name.lower() in {known.lower() for known in headers}:
            at.problem("given twice, in other letter cases, keep one")
        elif item is not UNUSABLE:
            try:
                headers[name] = _header_value(item, at)
            except Bad as bad:
                at.problem(str(bad))
                continue
            if _SECRET_NAME.search(name) or len(headers[name]) >= 16:
                place.report.secrets.extend(_header_secrets(headers[name]))
    return headers


def _header_value(value: object, place: Place) -> str:
    text = read_text(value, place)
    if _HEADER_VALUE.fullmatch(text) is None:
        raise Bad("is not visible ASCII of at most 4096 characters without spaces at its ends, percent-encode the rest")
    return text


def _header_secrets(text: str) -> list[str]:
    """A header's value, and its credentials alone: `Bearer abc` gives `abc` too."""
    return [text, *text.split(" ", 1)[1:]]


def _read_authorization(value: object, place: Place) -> str:
    text = read_secret(value, place)
    place.report.secrets.extend(_header_secrets(text))
    if _HEADER_VALUE.fullmatch(text) is None:
        raise Bad("the file holds more than one line of visible ASCII, write the value of the header alone into it")
    return text


def _read_forward_headers(value: object, place: Place) -> tuple[str, ...]:
    def read(item: object, at: Place) -> str:
        name = read_text(item, at)
        if _TOKEN.fullmatch(name) is None:
            raise Bad("holds characters that no header's name may have, mend it")
        if _RELAYS.fullmatch(name):
            raise Bad("outboxd sets or controls that header itself, remove it")
        return name.lower()

    return tuple(dict.fromkeys(items(value, place, read)))


def _read_statuses(value: object, place: Place) -> frozenset[int]:
    def read(item: object, at: Place) -> int:
        status = read_whole(item, at)
        if not 400 <= status <= 599:
            raise Bad(f"{at.show(status)} is no status of a failure, give one of 400 to 599")
        if status in _OUTAGE:
            raise Bad(f"{status} tells of an outage, which must not make dead letters, remove it")
        return status

    return frozenset(items(value, place, read))


KEYS: Mapping[str, Key] = {
    "url": Key(_read_url),
    "format": Key(one_of(HTTP_FORMATS)),
    "source": Key(matching(_SOURCE, "no URI reference, write e.g. /outboxd/{lane}"), nullable=True),
    "connections": whole(1, 1000),
    "headers": Key(_read_headers),
    "authorization_file": Key(_read_authorization, nullable=True),
    "forward_headers": Key(_read_forward_headers),
    "secret_file": Key(read_webhook_key, nullable=True),
    "ca_file": existing_file(),
    "client_cert_file": existing_file(),
    "client_key_file": existing_file(),
    "permanent_statuses": Key(_read_statuses),
}
