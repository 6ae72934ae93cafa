"""One field of a cron expression as people write it: `*`, `0,30`, `9-17`, `*/5`, `10/20`, `Mon-Fri`. Pure.

What is read is what gcron reads (GoFrame, os/gcron/gcron_schedule.go, 2026-08). What gcron takes and then never runs,
or loops over for ever, is refused here with the reason.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from outboxd.errors import CronError

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
           "december")  # fmt: skip
_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


def _named(names: tuple[str, ...], first: int) -> dict[str, int]:
    """By the whole name and by its first three letters."""
    return {key: number for number, name in enumerate(names, first) for key in (name, name[:3])}


@dataclass(frozen=True, slots=True)
class Field:
    """What a field may hold. is_open: `?` is another way to write `*`."""

    title: str
    low: int
    high: int
    is_open: bool = False
    names: Mapping[str, int] = field(default_factory=dict)

    def all(self) -> tuple[int, ...]:
        return tuple(range(self.low, self.high + 1))

    def span(self) -> str:
        """For a text: `0 to 59`."""
        return f"{self.low} to {self.high}"


SECOND = Field("second", 0, 59)
FIELDS = (
    SECOND,
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of month", 1, 31, is_open=True),
    Field("month", 1, 12, names=_named(_MONTHS, 1)),
    Field("day of week", 0, 6, is_open=True, names=_named(_WEEKDAYS, 0)),
)
"""In the order in which they are written."""


def read_field(of: Field, text: str) -> tuple[int, ...]:
    """What it admits, ascending. Raises CronError."""
    if text == "?" and of.is_open:
        return of.all()
    return tuple(sorted({value for item in text.split(",") for value in _read_item(of, text, item)}))


def refusal(of: Field, text: str, problem: str) -> CronError:
    return CronError(f"{of.title} {text!r}: {problem}")


def _read_item(of: Field, text: str, item: str) -> range:
    """One of a list: all, a value or a range, with a step or without."""
    if not item:
        raise refusal(of, text, "a part between commas is empty; take the comma away")
    span, slash, step_text = item.partition("/")
    step = _read_step(of, text, step_text) if slash else 1
    if span == "*":
        return range(of.low, of.high + 1, step)
    if span in ("?", "#"):
        raise refusal(of, text, _ALONE[span])
    begin, dash, end = span.partition("-")
    if dash and not begin:
        raise refusal(of, text, f"{item!r} is negative or a range without its start; write {of.span()}")
    if dash and not end:
        raise refusal(of, text, f"{item!r} is a range without its end; write {begin}-{of.high} for all from {begin} on")
    first = _read_value(of, text, begin)
    last = _read_value(of, text, end) if dash else of.high if slash else first
    if last < first:
        around = f"{begin}-{of.high},{of.low}-{end}"
        raise refusal(of, text, f"the range {span} runs backwards and is empty; write {around} to go round")
    return range(first, last + 1, step)


_ALONE = {
    "?": "? stands alone, as the whole day of month or day of week; write *",
    "#": "# stands alone, as the whole field of the seconds; write *",
}


def _read_step(of: Field, text: str, step_text: str) -> int:
    if not _NUMBER.fullmatch(step_text):
        raise refusal(of, text, f"the step {step_text!r} is no number; write one of 1 or more behind the /")
    step = int(step_text)
    if step == 0:
        raise refusal(of, text, "a step of 0 never gets any further; write 1 or more")
    return step


def _read_value(of: Field, text: str, value_text: str) -> int:
    """A number, or a name where there are some."""
    if not _NUMBER.fullmatch(value_text):
        number = of.names.get(value_text.lower())
        if number is not None:
            return number
        raise refusal(of, text, _unreadable(of, value_text))
    number = int(value_text)
    if of.low <= number <= of.high:
        return number
    if of.names and of.low == 0 and number == 7:
        raise refusal(of, text, "there is no day 7; write 0 for Sunday")
    raise refusal(of, text, f"{value_text} is out of range; write {of.span()}")


def _unreadable(of: Field, value_text: str) -> str:
    if value_text == "*":
        return f"* is no end of a range; write {of.low} or {of.high}"
    if of.names:
        known = [name for name in of.names if len(name) == 3]
        return f"{value_text!r} is no name of one and no number; write {of.span()}, or {known[0]} to {known[-1]}"
    return f"{value_text!r} is no number; write {of.span()}, *, or a range such as {of.low}-{of.high}"
