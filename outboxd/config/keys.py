"""How a mapping of known keys is read: types, bounds, the tables of the plain sections. Defaults: schema.py."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from outboxd.config import schema
from outboxd.config.document import UNUSABLE
from outboxd.config.durations import format_duration, format_size, parse_duration_s, parse_size_bytes
from outboxd.config.report import Bad, Place, Reported, suggest

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

Reader = Callable[[Any, Place], Any]


@dataclass(frozen=True, slots=True)
class Key:
    """One key: how its value is read, and between which bounds it must lie.

    unit is added to the key's name to make the attribute's. falls_back: a value that is not above zero means the
    default, with a warning. nullable: null and empty text mean the default, without one.
    """

    read: Reader
    low: float | None = None
    high: float | None = None
    unit: str = ""
    falls_back: bool = False
    nullable: bool = False
    show: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class Section:
    """What a mapping said: `values` by attribute, and the attributes of keys whose value could not be used."""

    values: dict[str, Any] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)


def section(value: object, place: Place, keys: Mapping[str, Key], defaults: object) -> Section:
    """Read a mapping of known keys; null means an empty one. `defaults` has the attributes to fall back to."""
    result = Section()
    for name, item in entries(value, place):
        at = place.child(name)
        key = keys.get(name)
        if key is None:
            at.problem(f"unknown key, {suggest(name, keys)}")
            continue
        attribute = name + key.unit
        if item is UNUSABLE:
            result.bad.add(attribute)
            continue
        if key.nullable and item in (None, ""):
            continue
        try:
            read = _bounded(key.read(item, at), key)
        except Bad as bad:
            at.problem(str(bad))
            result.bad.add(attribute)
        except Reported as reported:
            result.values[attribute] = reported.usable
            result.bad.add(attribute)
        except NotPositive:
            at.warn(f"{at.show(item)} is not above zero, using {key.show(getattr(defaults, attribute))}")
        else:
            result.values[attribute] = read
    return result


class NotPositive(Exception):
    """The value of a key that falls back to its default."""


def _bounded(value: Any, key: Key) -> Any:
    if key.falls_back and value <= 0:
        raise NotPositive
    if key.low is not None and value < key.low:
        raise Bad(f"{key.show(value)} is too small, the least is {key.show(key.low)}")
    if key.high is not None and value > key.high:
        raise Bad(f"{key.show(value)} is too large, the most is {key.show(key.high)}")
    return value


def entries(value: object, place: Place) -> Iterable[tuple[str, Any]]:
    """The pairs of a mapping; a problem, and none, when it is something else. Null is an empty mapping."""
    if isinstance(value, dict):
        return value.items()
    if value is not None and value is not UNUSABLE:
        place.problem(f"expected a mapping (key: value), got {kind_of(value)}")
    return ()


def items(value: object, place: Place, read: Reader) -> tuple[Any, ...]:
    """The items of a list, each read. Raises Reported when one cannot be used, after all were read."""
    if not isinstance(value, list):
        raise Bad(f"expected a list, got {kind_of(value)}, write [one, two]")
    result = []
    for index, item in enumerate(value):
        if item is UNUSABLE:
            continue
        try:
            result.append(read(item, place.item(index)))
        except Bad as bad:
            place.item(index).problem(str(bad))
    if len(result) < len(value):
        raise Reported(tuple(result))
    return tuple(result)


def kind_of(value: object) -> str:
    """What a value is, in words, without showing it."""
    if value is None:
        return "nothing"
    names: dict[type, str] = {bool: "true or false", int: "a number", float: "a decimal number", str: "text"}
    return names.get(type(value), "a list" if isinstance(value, list) else "a mapping")


def read_boolean(value: object, place: Place) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false", "yes", "no", "on", "off"):
        raise Bad("expected true or false, got text, remove the quotes")
    raise Bad(f"expected true or false, got {kind_of(value)}")


def read_whole(value: object, place: Place) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]+", value):
        raise Bad("expected a whole number, got text, remove the quotes and leading zeros")
    raise Bad(f"expected a whole number, got {kind_of(value)}")


def read_number(value: object, place: Place) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise Bad(f"expected a number, got {kind_of(value)}")


def read_text(value: object, place: Place) -> str:
    """One line of text that is not empty."""
    if value is None:
        raise Bad("has no value, give one or remove the key")
    if not isinstance(value, str):
        raise Bad(f"expected text, got {kind_of(value)}, put it in quotes")
    if not value:
        raise Bad("is empty, give a value or remove the key")
    if _CONTROL.search(value):
        raise Bad("holds a line break or another control character, remove it")
    return value


def read_duration(value: object, place: Place) -> float:
    if isinstance(value, str):
        duration_s = parse_duration_s(value)
        if duration_s is None:
            raise Bad(f"{place.show(value)} is no duration, write e.g. 500ms, 3s, 5m or 1h30m")
        return duration_s
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value <= 0:
            return float(value)
        raise Bad(f"{place.show(value)} has no unit, write e.g. {place.show(value)}s or {place.show(value)}ms")
    raise Bad(f"expected a duration, got {kind_of(value)}, write e.g. 3s")


def read_size(value: object, place: Place) -> int:
    if isinstance(value, str):
        size_bytes = parse_size_bytes(value)
        if size_bytes is None:
            raise Bad(f"{place.show(value)} is no size, write e.g. 512KiB, 16MiB or a number of bytes")
        return size_bytes
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise Bad(f"expected a size, got {kind_of(value)}, write e.g. 16MiB")


def one_of(names: Iterable[str]) -> Reader:
    known = tuple(names)

    def read(value: object, place: Place) -> str:
        text = read_text(value, place)
        if text not in known:
            raise Bad(f"unknown name {place.show(text)}, {suggest(text, known)}")
        return text

    return read


def matching(pattern: re.Pattern[str], is_not: str) -> Reader:
    """Text of a form. `is_not` goes on after the value: `no URI reference, write e.g. /here`."""

    def read(value: object, place: Place) -> str:
        text = read_text(value, place)
        if pattern.fullmatch(text) is None:
            raise Bad(f"{place.show(text)} is {is_not}")
        return text

    return read


def boolean() -> Key:
    return Key(read_boolean)


def whole(low: int, high: int, *, falls_back: bool = False) -> Key:
    return Key(read_whole, low, high, falls_back=falls_back)


def duration(low: str, high: str, *, falls_back: bool = False) -> Key:
    low_s, high_s = parse_duration_s(low), parse_duration_s(high)
    return Key(read_duration, low_s, high_s, "_s", falls_back=falls_back, show=format_duration)


def size(low_bytes: int, high_bytes: int) -> Key:
    return Key(read_size, low_bytes, high_bytes, show=format_size)


SUPERVISOR = {
    "restart_backoff": duration("1ms", "1h", falls_back=True),
    "restart_backoff_max": duration("1ms", "1h", falls_back=True),
    "stable_after": duration("0s", "24h"),
    "startup_timeout": duration("1s", "1h"),
}
LOG = {"level": Key(one_of(schema.LOG_LEVELS)), "format": Key(one_of(schema.LOG_FORMATS))}
BREAKER = {
    "enabled": boolean(),
    # One event alone can never open a breaker, so the least is two.
    "distinct_events": whole(2, 10_000),
    "dead_brake": whole(2, 10_000),
    "initial_probe": duration("10ms", "1h"),
    "max_probe": duration("10ms", "24h"),
}
