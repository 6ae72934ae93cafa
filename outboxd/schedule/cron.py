"""Cron expressions: what is read, what is refused, and when the next time is. Pure: the clock and the zone come in.

    schedule = parse("0 30 2 * * Mon-Fri", created_s)
    schedule.next_after(now_s)          # epoch seconds

The rules are gcron's (GoFrame, os/gcron, 2026-08), for the operator in docs/jobs.md:

- Six fields, seconds first. Day of month AND day of week must fit, unlike in a crontab.
- `#` as the seconds: once in every minute that matches. The *nominal time* of such a tick is the minute's second 0, so
  that all nodes call it the same; it may be late by all of its minute.
- `@every 90s`: every so many seconds from the job's creation on, forwards and backwards, whatever the zone.
- The wall clock of a zone: local times that are skipped in spring do not run, those that come twice in autumn run
  twice, at two nominal times.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from outboxd.config.durations import format_duration, parse_duration_s
from outboxd.errors import CronError
from outboxd.schedule.cron_fields import FIELDS, SECOND, read_field, refusal
from outboxd.schedule.pattern import DAY_S, YEARS, Pattern
from outboxd.schedule.zone import STEADY_S, OffsetAt, steady_until, system_offset_s

EXPRESSION_CHARACTERS = 255
LATE_S = 3
"""A tick fires if it is at most so late, as in gcron. The ticks of `#` have until the end of their minute."""
_LATE_IN_MINUTE_S = 59
MACROS = {
    "@yearly": "# 0 0 1 1 *",
    "@annually": "# 0 0 1 1 *",
    "@monthly": "# 0 0 1 * *",
    "@weekly": "# 0 0 * * 0",
    "@daily": "# 0 0 * * *",
    "@midnight": "# 0 0 * * *",
    "@hourly": "# 0 * * * *",
}
_EVERY = "@every"
_EVERY_MAX_S = 3650 * DAY_S
_HORIZON_S = (YEARS + 1) * 366 * DAY_S
_END_S = int(datetime(9900, 1, 1, tzinfo=UTC).timestamp())
"""What is later is not looked at: Python's dates end with the year 9999."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a job is due. Instants are whole epoch seconds: the nominal times of its ticks.

    expression: as it was given. late_s: by how much a tick may be late and still fires. created_s, every_s: of
    `@every`; every_s is 0 where the pattern counts.
    """

    expression: str
    late_s: int
    pattern: Pattern | None
    created_s: int
    every_s: int
    offset_at: OffsetAt

    def matches(self, at_s: int) -> bool:
        """Whether there is a tick at this second."""
        if self.pattern is None:
            return (at_s - self.created_s) % self.every_s == 0
        return self.pattern.matches(at_s + self.offset_at(at_s))

    def next_after(self, after_s: int) -> int | None:
        """The next tick's time; None if there is none within 50 years. That happens to a date which exists, with a time
        of day that daylight saving skips whenever it comes.
        """
        if self.pattern is None:
            return after_s + self.every_s - (after_s - self.created_s) % self.every_s
        start_s = after_s + 1
        while start_s < min(after_s + _HORIZON_S, _END_S):
            offset_s, until_s = self.offset_at(start_s), steady_until(self.offset_at, start_s)
            local_s = self.pattern.next(start_s + offset_s)
            if local_s is None:
                return None
            if local_s - offset_s < until_s:
                return local_s - offset_s
            is_steady = self.offset_at(until_s) == offset_s
            # No change of the offset is larger than STEADY_S, so up to there nothing matches under any other one.
            start_s = max(until_s, local_s - offset_s - STEADY_S) if is_steady else until_s
        return None

    def upcoming(self, after_s: int, count: int) -> tuple[int, ...]:
        """The next few times."""
        return tuple(islice(self._all_after(after_s), count))

    def count(self, after_s: int, upto_s: int) -> int:
        """How many ticks there are after after_s, up to upto_s inclusive; of more than 50 years the last ones only.
        Takes some microseconds for each day in between.
        """
        start_s = max(after_s, upto_s - _HORIZON_S) + 1
        if self.pattern is None:
            return max(0, (upto_s - self.created_s) // self.every_s - (start_s - 1 - self.created_s) // self.every_s)
        total = 0
        while start_s <= upto_s:
            end_s = min(steady_until(self.offset_at, start_s), upto_s + 1)
            offset_s = self.offset_at(start_s)
            total += self.pattern.count(start_s + offset_s, end_s + offset_s)
            start_s = end_s
        return total

    def local_text(self, at_s: int) -> str:
        """An instant as the job's wall clock shows it: `Mon 2026-11-30 02:30:00 +01:00`."""
        offset = timedelta(seconds=self.offset_at(at_s))
        local = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s) + offset
        sign, rest = ("-", -offset) if offset < timedelta() else ("+", offset)
        minutes = int(rest.total_seconds()) // 60
        day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[local.weekday()]
        return f"{day} {local:%Y-%m-%d %H:%M:%S} {sign}{minutes // 60:02}:{minutes % 60:02}"

    def _all_after(self, after_s: int) -> Iterator[int]:
        at_s = self.next_after(after_s)
        while at_s is not None:
            yield at_s
            at_s = self.next_after(at_s)


def parse(expression: str, created_s: int = 0, offset_at: OffsetAt = system_offset_s) -> Schedule:
    """created_s: when the job was created, in epoch seconds; only `@every` asks. offset_at: the zone, the machine's own
    unless said otherwise. Raises CronError.
    """
    words = _words(expression)
    name = words[0].lower()
    if name == _EVERY:
        return Schedule(expression, LATE_S, None, created_s, _read_every(words[1:]), offset_at)
    if name.startswith("@"):
        words = _expanded(words)
    if len(words) != len(FIELDS):
        raise CronError(_miscounted(words))
    is_once_a_minute = words[0] == "#"
    if is_once_a_minute:
        words[0] = str(SECOND.low)
    pattern = Pattern(*(read_field(field, word) for field, word in zip(FIELDS, words, strict=True)))
    if not pattern.ever_has_a_date():
        day, month = FIELDS[3], words[4]
        raise refusal(day, words[3], f"no such date ever comes in month {month}; write a day that the month has")
    return Schedule(expression, _LATE_IN_MINUTE_S if is_once_a_minute else LATE_S, pattern, created_s, 0, offset_at)


def _words(expression: str) -> list[str]:
    """What stands between blanks."""
    if len(expression) > EXPRESSION_CHARACTERS:
        raise CronError(f"{len(expression)} characters; write at most {EXPRESSION_CHARACTERS}")
    odd = next((one for one in expression if not (" " <= one <= "~" or one == "\t")), None)
    if odd is not None:
        raise CronError(f"the character {odd!a} does not belong here; write plain ASCII on one line")
    words = expression.split()
    if not words:
        raise CronError("the expression is empty; write six fields, seconds first, such as 0 30 2 * * *")
    return words


def _expanded(words: list[str]) -> list[str]:
    macro = MACROS.get(words[0].lower())
    if macro is None:
        raise CronError(f"{words[0]!r} is not known; write one of {', '.join(MACROS)}, {_EVERY}")
    if len(words) > 1:
        raise CronError(f"{words[0]} stands alone; take {' '.join(words[1:])!r} away")
    return macro.split()


def _miscounted(words: list[str]) -> str:
    text = f"{len(words)} field{'' if len(words) == 1 else 's'}, and six are needed, seconds first"
    if len(words) == 5:
        return f"{text}; put the seconds in front: 0 {' '.join(words)}"
    if len(words) == 7:
        return f"{text}; there is none for a year or a zone"
    return f"{text}: second, minute, hour, day of month, month, day of week"


def _read_every(words: list[str]) -> int:
    """Seconds."""
    if len(words) != 1:
        raise CronError(f"{_EVERY} takes one duration without blanks; write it like {_EVERY} 1h30m")
    (text,) = words
    days_text, has_days, rest = text.replace("D", "d").partition("d")
    if has_days and not (days_text.isdigit() and len(days_text) <= 6):
        raise CronError(f"{_EVERY} {text}: {days_text!r} is no whole number of days; write it like 1d12h")
    rest_s = 0.0 if has_days and not rest else parse_duration_s(rest if has_days else text)
    if rest_s is None:
        hint = "write it with units, the greatest first, like 90s, 1h30m, 1d12h"
        raise CronError(f"{_EVERY} {text}: this is no duration; {hint}")
    every_s = rest_s + (int(days_text) * DAY_S if has_days else 0)
    if every_s < 1:
        raise CronError(f"{_EVERY} {text}: this is less than a second; write 1s or more")
    if every_s != int(every_s):
        raise CronError(f"{_EVERY} {text}: ticks come at whole seconds; write {format_duration(int(every_s))} or so")
    if every_s > _EVERY_MAX_S:
        raise CronError(f"{_EVERY} {text}: this is longer than ten years; write {_EVERY_MAX_S // DAY_S}d or less")
    return int(every_s)
