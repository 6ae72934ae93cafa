"""When the next tick is, without daylight saving (test_cron_zones.py has that)."""

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as some

from outboxd.schedule.cron import Schedule, parse
from outboxd.schedule.zone import offset_of
from tests.unit.wallclock import at, due, walls

DAY_S = 86_400
SHANGHAI = offset_of(ZoneInfo("Asia/Shanghai"))


def utc(expression: str, created_s: int = 0) -> Schedule:
    return parse(expression, created_s, offset_of(UTC))


@pytest.mark.parametrize(
    ("after", "expression", "expected"),
    [
        # gcron's own table (os/gcron/gcron_z_unit_schedule_test.go), as far as it is right about its own rules
        ("2012-07-09 14:45", "0 0/15 * * * *", "2012-07-09 15:00"),
        ("2012-07-09 14:59", "0 0/15 * * * *", "2012-07-09 15:00"),
        ("2012-07-09 14:59:59", "0 0/15 * * * *", "2012-07-09 15:00"),
        ("2012-07-09 15:45", "0 20-35/15 * * * *", "2012-07-09 16:20"),
        ("2012-07-09 23:46", "0 */15 * * * *", "2012-07-10 00:00"),
        ("2012-07-09 23:45", "0 20-35/15 * * * *", "2012-07-10 00:20"),
        ("2012-07-09 23:35:51", "15/35 20-35/15 * * * *", "2012-07-10 00:20:15"),
        ("2012-07-09 23:35:51", "15/35 20-35/15 1/2 * * *", "2012-07-10 01:20:15"),
        ("2012-07-09 23:35:51", "15/35 20-35/15 10-12 * * *", "2012-07-10 10:20:15"),
        ("2012-07-09 23:35:51", "15/35 20-35/15 1/2 */2 * *", "2012-07-11 01:20:15"),
        ("2012-07-09 23:35:51", "15/35 20-35/15 * 9-20 * *", "2012-07-10 00:20:15"),
        ("2012-07-09 23:35:51", "15/35 20-35/15 * 9-20 Jul *", "2012-07-10 00:20:15"),
        ("2012-07-09 23:35", "0 0 0 9 Apr-Oct ?", "2012-08-09 00:00"),
        ("2012-07-09 23:35", "0 0 0 */5 Apr,Aug,Oct Mon", "2012-08-06 00:00"),
        ("2012-07-09 23:35", "0 0 0 */5 Oct Mon", "2012-10-01 00:00"),
        ("2012-07-09 23:35", "0 0 0 * Feb Mon", "2013-02-04 00:00"),
        ("2012-07-09 23:35", "0 0 0 * Feb Mon/2", "2013-02-01 00:00"),
        ("2012-12-31 23:59:45", "0 * * * * *", "2013-01-01 00:00"),
        ("2012-07-09 23:35", "0 0 0 29 Feb ?", "2016-02-29 00:00"),
        ("2012-07-09 23:35", "@yearly", "2013-01-01 00:00"),
        ("2012-07-09 23:35", "@annually", "2013-01-01 00:00"),
        ("2012-07-09 23:35", "@monthly", "2012-08-01 00:00"),
        ("2012-07-09 23:35", "@weekly", "2012-07-15 00:00"),
        ("2012-07-09 23:35", "@daily", "2012-07-10 00:00"),
        ("2012-07-09 23:35", "@midnight", "2012-07-10 00:00"),
        ("2012-07-09 23:35", "@hourly", "2012-07-10 00:00"),
        ("2012-07-09 23:35", "# * * * * *", "2012-07-09 23:36"),
        ("2012-07-09 23:35", "# */2 * * * *", "2012-07-09 23:36"),
        # day of month AND day of week: Friday the 13th
        ("2026-01-01", "0 0 9 13 * Fri", "2026-02-13 09:00"),
        ("2026-03-13 09:00", "0 0 9 13 * Fri", "2026-11-13 09:00"),
        # the first Monday of a month
        ("2026-11-30", "0 0 0 1-7 * 1", "2026-12-07 00:00"),
        # strictly after
        ("2026-11-30 02:30", "0 30 2 * * *", "2026-12-01 02:30"),
        ("2026-11-30 02:29:59", "0 30 2 * * *", "2026-11-30 02:30"),
        # leap days: 2100 has none; on a Monday every 28 years, or 40
        ("2096-02-29", "0 0 0 29 2 *", "2104-02-29 00:00"),
        ("2028-02-29", "0 0 0 29 2 2", "2056-02-29 00:00"),
        ("2072-02-29", "0 0 0 29 2 1", "2112-02-29 00:00"),
        ("2027-12-31", "59 59 23 31 12 *", "2027-12-31 23:59:59"),
        ("1969-12-31 23:59:58", "* * * * * *", "1969-12-31 23:59:59"),
    ],
)
def test_the_next_time_is_the_first_that_fits(after: str, expression: str, expected: str) -> None:
    schedule = utc(expression)
    assert schedule.next_after(at(after)) == at(expected)
    assert schedule.matches(at(expected))


def test_the_end_of_the_calendar_is_no_error() -> None:
    """A machine's clock may show anything."""
    schedule = utc("0 0 0 29 2 *")
    assert schedule.next_after(at("9999-12-31 23:59:59")) is None
    assert schedule.next_after(2**40) is None
    assert utc("@every 1h").next_after(2**40) == 2**40 + 3600 - 2**40 % 3600


def test_upcoming_times_are_the_next_few() -> None:
    schedule = utc("0 0 12 28-31 * *")
    expected = ["2027-02-28 12:00", "2027-03-28 12:00", "2027-03-29 12:00"]
    assert schedule.upcoming(at("2027-02-01"), 3) == tuple(at(text) for text in expected)


def test_a_time_is_shown_as_the_wall_clock_has_it() -> None:
    assert parse("0 30 2 * * *", 0, SHANGHAI).local_text(at("2026-11-29 18:30")) == "Mon 2026-11-30 02:30:00 +08:00"
    newfoundland = parse("0 30 2 * * *", 0, offset_of(ZoneInfo("America/St_Johns")))
    assert newfoundland.local_text(at("2026-11-30 06:00")) == "Mon 2026-11-30 02:30:00 -03:30"


@pytest.mark.parametrize(
    ("text", "every_s"),
    [("1s", 1), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("60000ms", 60), ("2d", 172_800), ("1D12h", 129_600)],
)
def test_every_is_aligned_to_the_jobs_creation(text: str, every_s: int) -> None:
    """So all nodes call a tick the same, whenever each of them has begun; the zone is nothing to it."""
    created_s = at("2026-03-28 12:00:07")
    schedule = parse(f"@every {text}", created_s, offset_of(ZoneInfo("Europe/Berlin")))
    assert schedule.late_s == 3
    assert schedule.upcoming(created_s, 3) == tuple(created_s + every_s * number for number in (1, 2, 3))
    assert schedule.next_after(created_s + 10 * every_s - 1) == created_s + 10 * every_s
    assert schedule.matches(created_s + every_s)
    assert every_s == 1 or not schedule.matches(created_s + every_s + 1)


def test_every_does_not_wait_for_a_creation_that_is_in_the_future() -> None:
    """The clock of whoever created the job was a year ahead."""
    created_s = at("2027-11-30 00:00:05")
    assert utc("@every 1m", created_s).next_after(at("2026-11-30")) == at("2026-11-30 00:00:05")


def test_seconds_of_a_number_sign_are_the_minutes_first() -> None:
    """All nodes must name the tick alike; it may be late by all of its minute."""
    schedule = utc("# 30 2 * * *")
    assert schedule.upcoming(at("2026-11-30"), 2) == (at("2026-11-30 02:30"), at("2026-12-01 02:30"))
    assert (schedule.late_s, utc("0 30 2 * * *").late_s) == (59, 3)


COUNTED = ["* * * * * *", "*/7 1-9,30/4 */5 * * *", "0 30 2 * * Mon", "# * 0,23 1,2,28-31 * *"]
INSTANTS = some.integers(at("2020-01-01"), at("2030-01-01"))


@given(some.sampled_from(COUNTED), INSTANTS, some.integers(-5, 9000))
def test_a_count_is_as_many_as_there_are(expression: str, start_s: int, length_s: int) -> None:
    """Of the seconds after the first number, up to the second one."""
    expected = due(expression, walls(range(start_s + 1, start_s + length_s + 1), UTC))
    assert utc(expression).count(start_s, start_s + length_s) == len(expected)


@given(some.sampled_from([*COUNTED, "@every 7s"]), INSTANTS, some.integers(0, 90 * DAY_S), some.integers(0, 90 * DAY_S))
def test_counts_of_neighbours_add_up(expression: str, start_s: int, first_s: int, second_s: int) -> None:
    schedule = utc(expression, created_s=3)
    middle_s, end_s = start_s + first_s, start_s + first_s + second_s
    parts = schedule.count(start_s, middle_s) + schedule.count(middle_s, end_s)
    assert schedule.count(start_s, end_s) == parts
    if schedule.every_s:
        assert parts == len([at_s for at_s in range(start_s + 1, end_s + 1) if at_s % 7 == 3])


def test_a_count_over_ages_ends() -> None:
    """A machine without a battery starts in 1970, and is set right."""
    every_second = utc("* * * * * *")
    assert every_second.count(0, at("2026-11-30")) <= 51 * 366 * DAY_S
    assert every_second.count(at("2026-01-01"), at("2027-01-01")) == 365 * DAY_S
    assert utc("0 0 0 29 2 *").count(at("2020-01-01"), at("2030-01-01")) == 3
