"""Cron expressions read and matched in the plainest way, one second after the other: what the real ones are held to."""

from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LIMITS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def at(text: str, zone: tzinfo = UTC) -> int:
    """Epoch seconds of a date as people write it."""
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp())


def _number(text: str) -> int:
    short = text[:3].lower()
    if short in MONTHS:
        return MONTHS.index(short) + 1
    return WEEKDAYS.index(short) if short in WEEKDAYS else int(text)


def admits(field: str, value: int, low: int, high: int) -> bool:
    """For an expression that is right; whether the field has the value."""
    for item in field.split(","):
        span, _, step = item.partition("/")
        ends = [_number(end) for end in span.split("-")] if span not in ("*", "?") else [low, high]
        first = ends[0]
        last = ends[-1] if len(ends) == 2 else high if step else first
        if first <= value <= last and (value - first) % int(step or 1) == 0:
            return True
    return False


Shown = tuple[int, int, int, int, int, int]
"""Second, minute, hour, day of month, month, day of week from Sunday on."""


def walls(seconds: Iterable[int], zone: tzinfo) -> list[tuple[int, Shown]]:
    """What the wall clock shows, by the standard library's own calendar."""
    shown = [(at_s, datetime.fromtimestamp(at_s, zone)) for at_s in seconds]
    return [
        (at_s, (on.second, on.minute, on.hour, on.day, on.month, (on.weekday() + 1) % 7)) for at_s, on in shown
    ]  # fmt: skip


def due(expression: str, shown: Iterable[tuple[int, Shown]]) -> list[int]:
    """Those of the seconds at which the expression, which is right, has a tick."""
    fields = expression.replace("#", "0").split()
    admitted = [
        {value for value in range(low, high + 1) if admits(field, value, low, high)}
        for field, (low, high) in zip(fields, LIMITS, strict=True)
    ]
    return [
        at_s for at_s, values in shown if all(one in field for one, field in zip(values, admitted, strict=True))
    ]  # fmt: skip
