"""Times, durations and counts as people read and write them. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from outboxd.config.durations import parse_duration_s

MOST_AT_ONCE = 1_000_000_000
"""Of a limit. More than any table holds, less than any database's integers do."""

LONGEST_MS = 999_999 * 86_400_000
"""Of a duration that is given. Longer than anything is kept, and its milliseconds fit into any database's integers."""

_DAYS = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)d(.*)")


def lasting(milliseconds: float) -> str:
    """A duration in the two greatest units that say something: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 5 min`, `3 d 4 h`."""
    seconds = max(0.0, milliseconds / 1000)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    rest = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count and len(parts) < 2:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts)


def moment(epoch_ms: int) -> str:
    """A stored time, in UTC: `2026-11-29 16:57:10Z`; `unknown` for 0."""
    if epoch_ms <= 0:
        return "unknown"
    try:
        return datetime.fromtimestamp(epoch_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # no date of our calendar
        return f"{epoch_ms} ms"


def counted(count: int, noun: str) -> str:
    """`1 event`, `1,200 events`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


@dataclass(frozen=True, slots=True)
class When:
    """A time that is given: at an instant, or so long ago by the database's clock."""

    at_ms: int = 0
    ago_ms: int | None = None

    def epoch_ms(self, now_ms: int) -> int:
        """The instant, given the database's time."""
        return self.at_ms if self.ago_ms is None else now_ms - self.ago_ms


def read_when(text: str) -> When:
    """`2h`, `1d12h` (so long ago) or `2026-11-29`, `2026-11-29T16:57`, with `+08:00` (else UTC). Raises ValueError."""
    ago_ms = duration_ms(text)
    if ago_ms is not None and ago_ms > LONGEST_MS:
        raise ValueError(f"{text!r} is too long ago: {LONGEST_MS // 86_400_000}d at most")
    if ago_ms is not None:
        return When(ago_ms=ago_ms)
    try:
        when = datetime.fromisoformat(text)
        return When(int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        hint = "write how long ago (2h, 1d12h) or when (2026-11-29T16:57Z)"
        raise ValueError(f"{text!r} is no time: {hint}") from None


def duration_ms(text: str) -> int | None:
    """Milliseconds of a duration that is not negative, days too, however long; None if it is none."""
    days = _DAYS.fullmatch(text)
    rest_s = parse_duration_s(days[2] if days else text) if not days or days[2] else 0.0
    if rest_s is None or rest_s < 0:
        return None
    return round(rest_s * 1000) + (round(float(days[1]) * 86_400_000) if days else 0)
