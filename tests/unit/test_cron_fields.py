"""What a cron expression may say, and what is refused with the reason."""

import calendar
import re

import pytest

from outboxd.errors import CronError, OutboxdError
from outboxd.schedule.cron import EXPRESSION_CHARACTERS, MACROS, parse

EVERY_DAY = tuple(range(7))


def fields(expression: str) -> tuple[tuple[int, ...], ...]:
    """Seconds, minutes, hours, days, months, weekdays."""
    pattern = parse(expression).pattern
    assert pattern is not None
    return (pattern.seconds, pattern.minutes, pattern.hours, pattern.days, pattern.months, pattern.weekdays)


@pytest.mark.parametrize(
    ("field", "minutes"),
    [
        ("*", range(60)),
        ("0", [0]),
        ("08", [8]),
        ("0,30", [0, 30]),
        ("30,0,30", [0, 30]),
        ("10-13", range(10, 14)),
        ("7-7", [7]),
        ("*/15", [0, 15, 30, 45]),
        ("*/90", [0]),
        ("0/60", [0]),
        ("40/5", [40, 45, 50, 55]),
        ("20-35/15", [20, 35]),
        ("1-10/4,50,58/1", [1, 5, 9, 50, 58, 59]),
        ("5,*/30", [0, 5, 30]),
        ("*,5", range(60)),
    ],
)
def test_lists_ranges_and_steps_are_read_as_gcron_does(field: str, minutes: list[int]) -> None:
    """`a/s` goes on to the maximum, unlike in a crontab, where it is refused or means a alone."""
    assert fields(f"0 {field} * * * *")[1] == tuple(minutes)


@pytest.mark.parametrize(
    ("field", "weekdays"),
    [
        ("Mon/2", (1, 3, 5)),  # from gcron's own tests
        ("mon-FRI", (1, 2, 3, 4, 5)),
        ("Sunday,wednesday", (0, 3)),
        ("Thu-6", (4, 5, 6)),
        ("0", (0,)),
        ("?", EVERY_DAY),
        ("*", EVERY_DAY),
    ],
)
def test_weekdays_have_names_and_begin_with_sunday(field: str, weekdays: tuple[int, ...]) -> None:
    """Short or whole, in any case, everywhere where a number may stand."""
    assert fields(f"0 0 0 * * {field}")[5] == weekdays


def test_every_name_of_a_month_and_a_weekday_is_known() -> None:
    months, weekdays = list(calendar.month_name)[1:], [*list(calendar.day_name)[6:], *list(calendar.day_name)[:6]]
    for names, index, first in ((months, 4, 1), (weekdays, 5, 0)):
        for number, name in enumerate(names, first):
            for text in (name, name.lower(), name.upper(), name[:3], name[:3].lower()):
                words = ["0", "0", "0", "*", "*", "*"]
                words[index] = text
                assert fields(" ".join(words))[index] == (number,)


def test_a_question_mark_is_a_star_for_days_alone() -> None:
    assert fields("0 0 0 ? * ?") == fields("0 0 0 * * *")


def test_blanks_around_fields_do_not_matter() -> None:
    assert fields("  0  30 2\t* * *  ") == fields("0 30 2 * * *")


@pytest.mark.parametrize("name", MACROS)
def test_a_macro_is_what_gcron_makes_of_it(name: str) -> None:
    """In any case; its seconds are `#`, so a busy minute does not lose it."""
    schedule = parse(name.upper())
    assert schedule.late_s == 59
    assert schedule.pattern == parse(MACROS[name]).pattern
    assert fields(name)[:2] == ((0,), (0,))


def test_the_macros_are_all_of_gcron() -> None:
    assert set(MACROS) == {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}


REFUSED = {
    # how many
    "": "the expression is empty; write six fields",
    " \t ": "the expression is empty; write six fields",
    "0 2 * * *": "5 fields, and six are needed, seconds first; put the seconds in front: 0 0 2 * * *",
    "0 0 0 1 1 * 2026": "7 fields, and six are needed, seconds first; there is none for a year or a zone",
    "TZ=UTC 0 0 0 1 1 *": "there is none for a year or a zone",
    "daily": "1 field, and six are needed, seconds first: second, minute, hour",
    # steps
    "*/0 * * * * *": "second '*/0': a step of 0 never gets any further; write 1 or more",
    "0 5-9/00 * * * *": "minute '5-9/00': a step of 0 never",
    "0 0 */-2 * * *": "hour '*/-2': the step '-2' is no number; write one of 1 or more",
    "0 */ * * * *": "minute '*/': the step '' is no number",
    "0 1/2/3 * * * *": "minute '1/2/3': the step '2/3' is no number",
    "0 */1234567890 * * * *": "the step '1234567890' is no number",
    # ranges
    "0 0 17-9 * * *": "hour '17-9': the range 17-9 runs backwards and is empty; write 17-23,0-9 to go round",
    "0 0 0 * Nov-Feb *": "month 'Nov-Feb': the range Nov-Feb runs backwards and is empty; write Nov-12,1-Feb",
    "0 0 0 * * Fri-Mon": "day of week 'Fri-Mon': the range Fri-Mon runs backwards",
    "-5 * * * * *": "second '-5': '-5' is negative or a range without its start; write 0 to 59",
    "5- * * * * *": "second '5-': '5-' is a range without its end; write 5-59 for all from 5 on",
    "*-5 * * * * *": "second '*-5': * is no end of a range; write 0 or 59",
    "1-5-9 * * * * *": "second '1-5-9': '5-9' is no number",
    # values
    "60 * * * * *": "second '60': 60 is out of range; write 0 to 59",
    "0 60 * * * *": "minute '60': 60 is out of range; write 0 to 59",
    "0 0 24 * * *": "hour '24': 24 is out of range; write 0 to 23",
    "0 0 0 0 * *": "day of month '0': 0 is out of range; write 1 to 31",
    "0 0 0 1,32 * *": "day of month '1,32': 32 is out of range; write 1 to 31",
    "0 0 0 1 0 *": "month '0': 0 is out of range; write 1 to 12",
    "0 0 0 1 1-13 *": "month '1-13': 13 is out of range",
    "0 0 0 * * 7": "day of week '7': there is no day 7; write 0 for Sunday",
    "0 0 0 * * 5-7": "day of week '5-7': there is no day 7; write 0 for Sunday",
    "0 0 0 * * 8": "day of week '8': 8 is out of range; write 0 to 6",
    "0 1,,2 * * * *": "minute '1,,2': a part between commas is empty; take the comma away",
    "0 1, * * * *": "a part between commas is empty",
    "0 +5 * * * *": "minute '+5': '+5' is no number",
    "0 1.5 * * * *": "minute '1.5': '1.5' is no number",
    # names and signs
    "0 0 0 * Janx *": "month 'Janx': 'Janx' is no name of one and no number; write 1 to 12, or jan to dec",
    "0 0 0 * * Mo": "day of week 'Mo': 'Mo' is no name of one and no number; write 0 to 6, or sun to sat",
    "0 0 0 * Mon *": "month 'Mon': 'Mon' is no name",
    "0 0 0 * * Jan": "day of week 'Jan': 'Jan' is no name",
    "0 0 Mon * * *": "hour 'Mon': 'Mon' is no number; write 0 to 23",
    "0 0 0 L * *": "day of month 'L': 'L' is no number",
    "0 0 0 15W * *": "day of month '15W': '15W' is no number",
    "0 0 0 * * 5#2": "day of week '5#2': '5#2' is no name",
    "? * * * * *": "second '?': ? stands alone, as the whole day of month or day of week; write *",
    "0 0 0 * ? *": "month '?': ? stands alone",
    "0 0 0 ?,5 * *": "day of month '?,5': ? stands alone",
    "0 0 0 ?/2 * *": "day of month '?/2': ? stands alone",
    "0 # * * * *": "minute '#': # stands alone, as the whole field of the seconds; write *",
    "#,30 * * * * *": "second '#,30': # stands alone",
    "#/2 * * * * *": "second '#/2': # stands alone",
    # dates
    "0 0 0 30 2 *": "day of month '30': no such date ever comes in month 2; write a day that the month has",
    "0 0 0 30,31 Feb *": "no such date ever comes in month Feb",
    "0 0 0 31 4 *": "no such date ever comes in month 4",
    "0 0 0 31 2,Apr,6,9,11 Mon": "no such date ever comes in month 2,Apr,6,9,11",
    # characters
    "0 0 2 * * *\n": "the character '\\n' does not belong here; write plain ASCII on one line",
    "0 0\x002 * * *": "the character '\\x00' does not belong here",
    "0 0 2 * * *\x7f": "the character '\\x7f' does not belong here",
    "0 0 ٢ * * *": "the character '\\u0662' does not belong here",
    "0\u00a00 2 * * *": "the character '\\xa0' does not belong here",
    "0," * 200 + "0 * * * * *": f"411 characters; write at most {EXPRESSION_CHARACTERS}",
    # words
    "@reboot": "'@reboot' is not known; write one of @yearly,",
    "@daily 5": "@daily stands alone; take '5' away",
    "@every": "@every takes one duration without blanks; write it like @every 1h30m",
    "@every 1h 30m": "@every takes one duration without blanks",
    "@every1h": "'@every1h' is not known",
    "@every 90": "@every 90: this is no duration; write it with units, the greatest first, like 90s, 1h30m, 1d12h",
    "@every 30m1h": "this is no duration",
    "@every 1dx": "this is no duration",
    "@every 1.5d": "'1.5' is no whole number of days; write it like 1d12h",
    "@every -1d": "'-1' is no whole number of days",
    "@every d": "'' is no whole number of days",
    "@every 0s": "this is less than a second; write 1s or more",
    "@every 999ms": "this is less than a second",
    "@every -90s": "this is less than a second",
    "@every 1500ms": "ticks come at whole seconds; write 1s or so",
    "@every 1h0.5s": "ticks come at whole seconds; write 1h or so",
    "@every 3651d": "this is longer than ten years; write 3650d or less",
}


@pytest.mark.parametrize("expression", REFUSED)
def test_what_cannot_be_meant_is_refused_with_the_reason(expression: str) -> None:
    """Much of it gcron takes, and then never runs, or runs at other times; over a step of 0 it loops for ever."""
    with pytest.raises(CronError, match=re.escape(REFUSED[expression])) as refused:
        parse(expression)
    assert isinstance(refused.value, OutboxdError)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("expression", ["0 0 0 29 2 *", "0 0 0 30,29 feb *", "0 0 0 31 4,5 *", "0 0 0 31 * *"])
def test_dates_that_come_now_and_then_are_taken(expression: str) -> None:
    parse(expression)


def test_what_is_as_long_as_it_may_be_is_taken() -> None:
    expression = "0 * * * * *".ljust(EXPRESSION_CHARACTERS)
    assert fields(expression) == fields("0 * * * * *")
