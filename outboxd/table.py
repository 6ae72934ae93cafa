"""What those who write a lane's table and those who relay it both know of it. No I/O, no libraries."""

import re

NOW = {
    # UTC_TIMESTAMP knows no session time zone and no DST; NOW() would repeat an hour every autumn (G12).
    "mysql": "(TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(3)) DIV 1000)",
    "sqlite": "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
}
"""The database's clock in UTC epoch milliseconds, by dialect."""

LIMITS = {"event_id": 64, "event_type": 64, "room_id": 64, "app_code": 32, "content_type": 64}
"""Characters that a column takes."""
ASCII = frozenset({"event_id", "content_type"})
"""Columns whose text is ASCII."""
NEVER_EMPTY = frozenset({"event_id", "event_type"})

LAST_MS = 2**53 - 2
"""The latest time that an event may wait for: the number behind it stands for "at once" in `due_at_ms`."""

_QUOTE = {"mysql": "`", "sqlite": '"'}


def is_name(text: str) -> bool:
    """May a table or column be called so?"""
    return re.fullmatch(r"[A-Za-z0-9_]{1,64}", text) is not None


def quoted(name: str, dialect: str) -> str:
    """An identifier as the dialect writes it; `is_name` has looked at it."""
    return f"{_QUOTE[dialect]}{name}{_QUOTE[dialect]}"
