"""The six fields of a cron expression against the wall clock: pure arithmetic on *local seconds*.

A local second is a date and a time of day as a wall clock shows it, counted from 1970-01-01 00:00:00, without a zone:
some of them never come, others come twice. Which do is zone.py's business.
"""

from bisect import bisect_left
from calendar import monthrange
from dataclasses import dataclass
from datetime import date

DAY_S = 86_400
YEARS = 50
"""So far ahead is looked. Every date that exists falls on every day of the week within 40 years (29 February, over a
year 2100 that has none).
"""
LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class Pattern:
    """What each field admits, ascending, never empty. Day of month AND day of week must fit; Sunday is 0."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]

    def ever_has_a_date(self) -> bool:
        """False for 30 February or 31 April."""
        return any(self.days[0] <= LONGEST_MONTHS[month - 1] for month in self.months)

    def matches(self, local_s: int) -> bool:
        day, of_day_s = divmod(local_s, DAY_S)
        minutes, second = divmod(of_day_s, 60)
        hour, minute = divmod(minutes, 60)
        return second in self.seconds and minute in self.minutes and hour in self.hours and self._admits(day)

    def next(self, local_s: int) -> int | None:
        """The first one that matches at or after local_s; None if there is none within YEARS, or before the year 9999
        ends.
        """
        day, of_day_s = divmod(local_s, DAY_S)
        rank = self._rank(of_day_s)
        if rank < self._per_day() and self._admits(day):
            return day * DAY_S + self._of_rank(rank)
        next_day = self._next_day(day + 1)
        return None if next_day is None else next_day * DAY_S + self._of_rank(0)

    def count(self, start_s: int, end_s: int) -> int:
        """How many match from start_s on and before end_s. Takes a microsecond for each day in between."""
        if end_s <= start_s:
            return 0
        first, last = start_s // DAY_S, end_s // DAY_S
        whole = sum(self._admits(day) for day in range(first, last)) * self._per_day()
        before = self._rank(start_s % DAY_S) if self._admits(first) else 0
        after = self._rank(end_s % DAY_S) if self._admits(last) else 0
        return whole - before + after

    def _admits(self, day: int) -> bool:
        """day: since 1970-01-01."""
        on = date.fromordinal(_EPOCH + day)
        return on.day in self.days and on.month in self.months and on.isoweekday() % 7 in self.weekdays

    def _next_day(self, start: int) -> int | None:
        """The first day that matches, from start on. Month by month: a year's worth is a dozen steps."""
        if _EPOCH + start > date.max.toordinal():
            return None
        begin = date.fromordinal(_EPOCH + start)
        for number in range(begin.year * 12 + begin.month - 1, (begin.year + YEARS) * 12 + begin.month):
            year, month = number // 12, number % 12 + 1
            if year > date.max.year:
                return None
            if month not in self.months:
                continue
            length = monthrange(year, month)[1]
            for day in (one for one in self.days if one <= length):
                on = date(year, month, day)
                if on >= begin and on.isoweekday() % 7 in self.weekdays:
                    return on.toordinal() - _EPOCH
        return None

    def _per_day(self) -> int:
        return len(self.hours) * len(self.minutes) * len(self.seconds)

    def _rank(self, of_day_s: int) -> int:
        """How many times of the day match before this one."""
        minutes, second = divmod(of_day_s, 60)
        hour, minute = divmod(minutes, 60)
        rank = bisect_left(self.hours, hour) * len(self.minutes) * len(self.seconds)
        if hour in self.hours:
            rank += bisect_left(self.minutes, minute) * len(self.seconds)
            if minute in self.minutes:
                rank += bisect_left(self.seconds, second)
        return rank

    def _of_rank(self, rank: int) -> int:
        """The time of day, in seconds, that has so many before it."""
        minutes, second = divmod(rank, len(self.seconds))
        hour, minute = divmod(minutes, len(self.minutes))
        return self.hours[hour] * 3600 + self.minutes[minute] * 60 + self.seconds[second]
