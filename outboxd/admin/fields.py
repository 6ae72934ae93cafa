"""What a request asks for, from its query or its body: read strictly, so that a slip is told, not ignored. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from outboxd.admin.access import Refused
from outboxd.config.report import suggest
from outboxd.explain import words
from outboxd.explain.dead import Wanted
from outboxd.redact import clip

FILTERS = ("lane", "event_type", "room", "app", "since", "until", "error", "limit")
"""Which dead letters; as the commands' options."""

Given = Mapping[str, Any]

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SHOWN_CHARACTERS = 80
_DOCUMENTED = "see `The admin API` in docs/operations.md"


def bad(error: str, todo: str = _DOCUMENTED) -> Refused:
    """What is asked for cannot be understood."""
    return Refused(400, error, todo)


def check_path(target: str) -> None:
    """Is a request's target percent-encoded UTF-8? Raises Refused."""
    path = target.partition("?")[0]
    if _BAD_ESCAPE.search(path):
        raise bad("the path holds a % that begins no escape", "write % as %25")


def of_query(query: str, known: Iterable[str]) -> Given:
    """The fields of a query, each at most once. Raises Refused."""
    if _BAD_ESCAPE.search(query):
        raise bad("the query holds a % that begins no escape", "write % as %25")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except ValueError:  # that is what a UnicodeDecodeError is
        raise bad("the query is no UTF-8", "percent-encode it as UTF-8") from None
    for name, _ in pairs:
        if [name for name, _ in pairs].count(name) > 1:
            raise bad(f"{_shown(name)} is given twice")
    return _known(dict(pairs), known)


def of_body(body: bytes, content_type: str, known: Iterable[str]) -> Given:
    """The fields of a JSON object. Raises Refused."""
    names = tuple(known)
    kind, _, rest = content_type.partition(";")
    if kind.strip().lower() != "application/json":
        raise Refused(415, "a change is a JSON object", "send it with `Content-Type: application/json`")
    if rest and rest.replace(" ", "").replace('"', "").lower() not in ("", "charset=utf-8"):
        raise Refused(415, "JSON is UTF-8", "send it with `Content-Type: application/json`")
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad(f"the body is no JSON that can be read: {clip(str(error), _SHOWN_CHARACTERS)}") from None
    if not isinstance(given, dict):
        todo = f'write {{"{names[0]}": ...}} or the like' if names else "write {}, or send no body"
        raise bad("the body is JSON, but no object", todo)
    return _known(given, names)


def _known(given: Given, known: Iterable[str]) -> Given:
    names = tuple(known)
    for name in given:
        if name not in names:
            raise bad(f"unknown name {_shown(name)}, {suggest(name, names, _DOCUMENTED)}")
    return given


def text(given: Given, name: str) -> str | None:
    """A text, None where it is not given."""
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise bad(f"{name} is no text", "put it in quotes")
    return value


def flag(given: Given, name: str) -> bool:
    """true or false, false where it is not given."""
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise bad(f"{name} is neither true nor false", "write true or false, without quotes")
    return value


def whole(given: Given, name: str, most: int, least: int = 1) -> int | None:
    """A whole number, in a query or in JSON; None where it is not given."""
    value = given.get(name)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value):
        value = int(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and least <= value <= most):
        return value
    todo = f"write {least} or {most}" if most == least + 1 else _DOCUMENTED
    raise bad(f"{name} is no whole number from {least:,} to {most:,}", todo)


def when(given: Given, name: str) -> words.When | None:
    """A time: `2h` (ago), `2026-11-29T16:57Z`."""
    value = text(given, name)
    try:
        return None if value is None else words.read_when(value)
    except ValueError as error:
        raise bad(f"{name}: {clip(str(error), 2 * _SHOWN_CHARACTERS)}") from None


def instant(given: Given, name: str) -> words.When | None:
    """A time as `when` has it, or UTC epoch milliseconds."""
    value = given.get(name)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{11,15}", value):
        return words.When(int(value))
    return when(given, name)


def wanted(given: Given, event_id: str | None = None, most: int = words.MOST_AT_ONCE) -> Wanted:
    """Which dead letters."""
    return Wanted(
        lane=text(given, "lane"),
        event_id=event_id,
        event_type=text(given, "event_type"),
        room=text(given, "room"),
        app=text(given, "app"),
        since=when(given, "since"),
        until=when(given, "until"),
        error=text(given, "error"),
        limit=whole(given, "limit", most),
    )


def _shown(name: str) -> str:
    return clip(name, _SHOWN_CHARACTERS)
