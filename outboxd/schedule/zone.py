"""The wall clock of a time zone, as seconds: which offset holds when, and until when it does."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo

OffsetAt = Callable[[int], int]
"""How many seconds the wall clock is ahead of UTC at an instant (epoch seconds)."""

STEADY_S = 2 * 86_400
"""So far ahead a change of the offset is looked for. No zone since 1970 has two changes within less than six days, and
none has been larger than a day: two dates at the date line that a country has changed sides of.
"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def system_offset_s(at_s: int) -> int:
    """Of the machine's own zone: `TZ`, in every way that the C library reads it, else /etc/localtime, else UTC. The C
    library reads both once in the life of a process, and takes a name that it does not know for UTC.
    """
    return time.localtime(at_s).tm_gmtoff


def offset_of(zone: tzinfo) -> OffsetAt:
    """Of a zone of the standard library, such as a ZoneInfo."""

    def offset_s(at_s: int) -> int:
        offset = (_EPOCH + timedelta(seconds=at_s)).astimezone(zone).utcoffset()
        return 0 if offset is None else int(offset.total_seconds())

    return offset_s


def steady_until(offset_at: OffsetAt, at_s: int) -> int:
    """The first instant after at_s with another offset, or at_s + STEADY_S if there is none before."""
    offset_s = offset_at(at_s)
    same_s, other_s = at_s, at_s + STEADY_S
    if offset_at(other_s) == offset_s:
        return other_s
    while other_s - same_s > 1:
        middle_s = (same_s + other_s) // 2
        if offset_at(middle_s) == offset_s:
            same_s = middle_s
        else:
            other_s = middle_s
    return other_s
