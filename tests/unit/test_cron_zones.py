"""Daylight saving: what is skipped in spring does not run, what comes twice in autumn does so twice. And the zone."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as some

from outboxd.errors import CronError
from outboxd.schedule.cron import Schedule, parse
from outboxd.schedule.zone import STEADY_S, OffsetAt, offset_of, steady_until, system_offset_s
from tests.services.find import require
from tests.unit.wallclock import LIMITS, MONTHS, WEEKDAYS, at, due, walls

HOUR_S = 3600
ZONES = {
    # how often the offset changes in the two years, and by how much
    "America/New_York": (4, 3600),
    "Europe/Berlin": (4, 3600),
    "Australia/Lord_Howe": (4, 1800),
    "Africa/Casablanca": (4, 3600),  # back for Ramadan
    "Asia/Shanghai": (0, 0),
    "America/Sao_Paulo": (4, 3600),  # at midnight; given up in 2019
}
YEARS = {"America/Sao_Paulo": (2017, 2019)}
EXPRESSIONS = [
    "0 30 2 * * *",
    "0 30 1 * * *",
    "# 15,45 1-3 * * *",
    "0 0 0 * * *",
    "59 59 23 * * Sat,Sun",
    "*/20 0/10 * * * *",
    "0 0 3 * 3,4,10,11 Sun",
    "0 59 0-3 25-31,1-9 * ?",
]


def named(expression: str, zone: str) -> Schedule:
    return parse(expression, 0, offset_of(ZoneInfo(zone)))


def changes(zone: str) -> list[int]:
    """When another offset begins, in two years; found hour by hour, then second by second."""
    first, last = YEARS.get(zone, (2026, 2028))
    offset_at = offset_of(ZoneInfo(zone))
    hours = range(at(f"{first}-01-01"), at(f"{last}-01-01"), HOUR_S)
    found = [start_s for start_s in hours if offset_at(start_s) != offset_at(start_s + HOUR_S)]
    return [
        next(at_s for at_s in range(start_s + 1, start_s + HOUR_S + 1) if offset_at(at_s) != offset_at(at_s - 1))
        for start_s in found
    ]


@pytest.mark.parametrize("zone", ZONES)
def test_around_every_change_of_two_years_the_ticks_are_those_of_the_wall_clock(zone: str) -> None:
    """Second by second, three hours to both sides; in the zone that has no change, around two days of the year."""
    offset_at = offset_of(ZoneInfo(zone))
    found = changes(zone)
    assert len(found) == ZONES[zone][0]
    assert {abs(offset_at(at_s) - offset_at(at_s - 1)) for at_s in found} == ({ZONES[zone][1]} if found else set())
    for change_s in found or [at("2026-03-29 01:00"), at("2026-10-25 01:00")]:
        around = range(change_s - 3 * HOUR_S, change_s + 3 * HOUR_S)
        shown = walls(around, ZoneInfo(zone))
        for expression in EXPRESSIONS:
            expected = due(expression, shown)
            schedule = named(expression, zone)
            assert schedule.upcoming(around[0] - 1, len(expected)) == tuple(expected), expression
            assert schedule.count(around[0] - 1, around[-1]) == len(expected), expression
            assert (schedule.next_after(around[-1]) or 0) > around[-1]


@pytest.mark.parametrize("zone", ZONES)
def test_over_two_years_a_daily_job_is_as_the_calendar_says(zone: str) -> None:
    """Once on each day on which the time of day exists, and at both of them where it comes twice."""
    first, last = YEARS.get(zone, (2026, 2028))
    start_s, end_s = at(f"{first}-01-01"), at(f"{last}-01-01")
    shown = walls(range(start_s, end_s, 900), ZoneInfo(zone))
    for expression in ("0 30 2 * * *", "0 30 0 * * *", "0 0 0 ? * Sun"):
        expected = due(expression, shown)
        schedule = named(expression, zone)
        assert schedule.upcoming(start_s - 1, len(expected)) == tuple(expected)
        assert schedule.count(start_s - 1, end_s - 1) == len(expected)


@pytest.mark.parametrize(
    ("zone", "expression", "day", "expected"),
    [
        ("Europe/Berlin", "0 30 2 * * *", "2026-03-29", []),
        ("Europe/Berlin", "0 30 2 * * *", "2026-10-25", ["00:30", "01:30"]),
        ("Europe/Berlin", "0 30 2 25 10 *", "2026-10-25", ["00:30", "01:30"]),  # and else not for a year
        ("America/New_York", "0 30 1 ? * Sun", "2026-11-01", ["05:30", "06:30"]),
        ("Europe/Berlin", "0 30 3 * * *", "2026-03-29", ["01:30"]),
        ("America/New_York", "0 30 2 * * *", "2026-03-08", []),
        ("America/New_York", "# 30 1 * * *", "2026-11-01", ["05:30", "06:30"]),
        ("Asia/Shanghai", "0 30 9 * * *", "2026-03-29", ["01:30"]),
    ],
)
def test_skipped_hours_do_not_run_and_doubled_ones_run_twice(
    zone: str, expression: str, day: str, expected: list[str]
) -> None:
    """By hand, against the published dates."""
    start_s = at(f"{day} 00:00")
    ticks = named(expression, zone).upcoming(start_s - 1, 3)
    assert [at_s for at_s in ticks if at_s < start_s + 24 * HOUR_S] == [at(f"{day} {time}") for time in expected]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Shanghai"])
def test_a_date_in_half_a_year_is_found_over_the_change_in_between(zone: str) -> None:
    """Summer's noon comes an hour sooner than winter's clock would have it."""
    for after, expression, expected in (
        ("2026-01-15", "0 0 12 1 7 *", "2026-07-01 12:00"),
        ("2026-07-01 12:00", "0 0 12 15 1 *", "2027-01-15 12:00"),
        ("2026-07-02", "0 0 12 1 7 *", "2027-07-01 12:00"),
    ):
        assert named(expression, zone).next_after(at(after, ZoneInfo(zone))) == at(expected, ZoneInfo(zone))


def test_a_time_that_is_skipped_whenever_it_comes_has_no_next_one() -> None:
    """Half past two on the day when New York's clocks go from two to three. The search ends."""
    assert named("0 30 2 8-14 3 Sun", "America/New_York").next_after(at("2026-11-30")) is None
    assert named("0 30 2 8-14 3 Sun", "Asia/Shanghai").next_after(at("2026-11-30")) == at("2027-03-13 18:30")
    assert named("0 30 2 8-14 3 Sun", "America/New_York").upcoming(at("2026-11-30"), 5) == ()


def test_a_date_that_a_country_skipped_is_skipped() -> None:
    """Samoa had no 30 December 2011: the largest change there is, of a day."""
    ticks = named("0 0 9 29-31 12 *", "Pacific/Apia").upcoming(at("2011-12-01"), 3)
    assert [datetime.fromtimestamp(at_s, ZoneInfo("Pacific/Apia")).day for at_s in ticks] == [29, 31, 29]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Shanghai", "Pacific/Apia", "Africa/Casablanca"])
def test_no_change_of_an_offset_is_too_large_or_too_close_to_another(zone: str) -> None:
    """What zone.py takes for granted."""
    offset_at = offset_of(ZoneInfo(zone))
    start_s, last_s = at("1970-01-01"), 0
    while start_s < at("2040-01-01"):
        end_s = steady_until(offset_at, start_s)
        if (change_s := abs(offset_at(end_s) - offset_at(start_s))) > 0:
            assert change_s < STEADY_S
            assert end_s - last_s > STEADY_S
            assert offset_at(end_s - 1) == offset_at(start_s)
            last_s = end_s
        start_s = end_s


@some.composite
def field_texts(draw: some.DrawFn, index: int) -> str:
    """A field that is right."""
    low, high = LIMITS[index]
    names = MONTHS if index == 4 else WEEKDAYS if index == 5 else []

    def written(value: int) -> str:
        return draw(some.sampled_from([str(value), names[value - low].title()])) if names else str(value)

    items = []
    for _ in range(draw(some.integers(1, 3))):
        first = draw(some.integers(low, high))
        last = draw(some.integers(first, high))
        step = draw(some.sampled_from(["", f"/{draw(some.integers(1, 70))}"]))
        span = draw(some.sampled_from(["*", written(first), f"{written(first)}-{written(last)}"]))
        items.append(span + step)
    return ",".join(items) if draw(some.integers(0, 2)) else "*"


@some.composite
def expressions(draw: some.DrawFn) -> str:
    words = [draw(field_texts(index)) for index in range(6)]
    words[0] = draw(some.sampled_from([words[0], "#", "0"]))
    words[3] = draw(some.sampled_from([words[3], "?", "*", "29"]))
    words[4] = draw(some.sampled_from([words[4], "*", "*"]))
    return " ".join(words)


def before_a_change(offset_at: OffsetAt, start_s: int) -> int:
    """Half an hour before the next one, if there is any within half a year."""
    for at_s in range(start_s, start_s + 183 * 86_400, STEADY_S):
        end_s = steady_until(offset_at, at_s)
        if offset_at(end_s) != offset_at(at_s):
            return end_s - HOUR_S // 2
    return start_s


@given(
    expressions(),
    some.sampled_from([*ZONES, "Pacific/Apia", "America/St_Johns", "Asia/Kathmandu"]),
    some.integers(at("2005-01-01"), at("2035-01-01")),
    some.booleans(),
)
@settings(deadline=None)
def test_whatever_is_written_the_next_times_ascend_and_match_and_nothing_matches_between(
    expression: str, zone: str, start_s: int, is_near_a_change: bool
) -> None:
    """Around any instant, and around the changes of the offset."""
    offset_at = offset_of(ZoneInfo(zone))
    try:
        schedule = parse(expression, 0, offset_at)
    except CronError as error:
        if "no such date" not in str(error):
            raise
        reject()
    at_s = before_a_change(offset_at, start_s) if is_near_a_change else start_s
    for _ in range(3):
        next_s = schedule.next_after(at_s)
        end_s = at_s + HOUR_S if next_s is None else next_s
        between = {*range(at_s + 1, min(end_s, at_s + HOUR_S)), *range(max(at_s + 1, end_s - 2 * HOUR_S), end_s)}
        assert due(expression, walls(between, ZoneInfo(zone))) == []
        if next_s is None:
            break
        assert next_s > at_s
        assert due(expression, walls([next_s], ZoneInfo(zone))) == [next_s]
        assert schedule.count(at_s, next_s) == 1
        assert schedule.matches(next_s)
        at_s = next_s


@pytest.fixture
def zone_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("written", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Europe/Berlin", "Europe/Berlin"),
        ("/usr/share/zoneinfo/Australia/Lord_Howe", "Australia/Lord_Howe"),
        ("CST-8", "Asia/Shanghai"),
        ("EST5EDT,M3.2.0,M11.1.0", "America/New_York"),
        ("UTC", "UTC"),
    ],
)
def test_the_machines_zone_is_what_its_environment_says(
    zone_of_the_machine: pytest.MonkeyPatch, written: str, zone: str
) -> None:
    """In all the ways in which people write it."""
    files = Path("/usr/share/zoneinfo", zone)
    require("tzdata", files if files.exists() else None, "there is no tzdata")
    zone_of_the_machine.setenv("TZ", written)
    time.tzset()
    for day in range(0, 365, 5):
        at_s = at("2026-01-01 12:00") + day * 86_400
        assert system_offset_s(at_s) == offset_of(ZoneInfo(zone))(at_s)
    start_s = at("2026-11-30")
    assert parse("0 30 2 * * *").upcoming(start_s, 5) == named("0 30 2 * * *", zone).upcoming(start_s, 5)


def test_without_an_environment_it_is_the_machines_own(zone_of_the_machine: pytest.MonkeyPatch) -> None:
    zone_of_the_machine.delenv("TZ", raising=False)
    time.tzset()
    at_s = at("2026-07-01 12:00")
    local = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s)
    assert timedelta(seconds=system_offset_s(at_s)) == local.astimezone().utcoffset()
