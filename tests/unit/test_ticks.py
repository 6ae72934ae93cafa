"""Ticks under load, over clocks that are set, and in processes that stood still: each once, or missed and counted."""

from collections import Counter
from datetime import UTC
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from outboxd.schedule.cron import LATE_S, Schedule, parse
from outboxd.schedule.ticks import REMEMBERED_S, Due, Watch, begin, look, until_next_s
from outboxd.schedule.zone import offset_of
from tests.unit.wallclock import at

HOUR_S = 3600
START_S = at("2026-11-30 02:00:00")
EVERY_SECOND = "* * * * * *"


class World:
    """Time as it passes, a wall clock that can be set, and one job that is looked at."""

    def __init__(self, expression: str, start_s: float = START_S + 0.25) -> None:
        self.schedule: Schedule = parse(expression, 0, offset_of(UTC))
        self.monotonic_s = 1000.0
        self.wall_s = start_s
        self.watch: Watch = begin(self.wall_s, self.monotonic_s)
        self.fired: list[int] = []
        self.missed = self.held = 0

    def passes(self, passed_s: float, step_s: float = 0.0) -> Due:
        """Time passes, the clock is set meanwhile, and the job is looked at."""
        self.monotonic_s += passed_s
        self.wall_s += passed_s + step_s
        self.watch, found = look(self.watch, self.schedule, self.wall_s, self.monotonic_s)
        self.fired += found.fire
        self.missed += found.missed
        self.held += found.held
        return found

    def runs(self, seconds: int) -> Counter[int]:
        """Looked at every second; what fired."""
        before = len(self.fired)
        for _ in range(seconds):
            self.passes(1.0)
        return Counter(self.fired[before:])


def ticks(first: int, last: int) -> Counter[int]:
    """One at every second, counted from START_S, both inclusive."""
    return Counter(range(START_S + first, START_S + last + 1))


def test_ticks_begin_with_the_second_after_the_job_was_mounted() -> None:
    """What was due before is nobody's here: whoever was there then has done it."""
    world = World(EVERY_SECOND)
    assert world.passes(0.5) == Due()
    assert world.passes(0.25) == Due(fire=(START_S + 1,))


def test_a_second_fires_once_however_often_it_is_looked_at() -> None:
    world = World(EVERY_SECOND)
    for _ in range(100):
        world.passes(0.0625)
    assert Counter(world.fired) == ticks(1, 6)


@pytest.mark.parametrize("late_s", [1, 2, 3])
def test_a_loop_that_is_slow_loses_nothing_up_to_three_seconds(late_s: int) -> None:
    """The tick of a second that nobody looked at, with its nominal time."""
    world = World("0 30 2 * * *", at("2026-11-30 02:29:59") + 0.5)
    assert world.passes(0.5 + late_s) == Due(fire=(at("2026-11-30 02:30:00"),))


def test_a_tick_that_is_four_seconds_late_is_missed_and_counted() -> None:
    world = World("0 30 2 * * *", at("2026-11-30 02:29:59") + 0.5)
    assert world.passes(4.5) == Due(missed=1)
    assert world.passes(1.0) == Due()


def test_what_fires_late_fires_in_its_order() -> None:
    world = World(EVERY_SECOND)
    assert world.passes(10.0) == Due(fire=tuple(START_S + number for number in (7, 8, 9, 10)), missed=6)


def test_a_number_sign_has_all_of_its_minute_and_not_more() -> None:
    """Once in every minute that matches, whichever second that is."""
    for late_s, expected in ((59, Due(fire=(at("2026-11-30 02:30:00"),))), (60, Due(missed=1))):
        world = World("# 30 2 * * *", at("2026-11-30 02:29:59") + 0.5)
        assert world.passes(0.5 + late_s) == expected
        assert world.passes(1.0) == Due()


def test_a_number_sign_does_not_fire_in_a_minute_that_had_begun_before() -> None:
    """Each restart in that minute would run it again."""
    world = World("# 30 2 * * *", at("2026-11-30 02:30:10"))
    assert not world.runs(100)


@pytest.mark.parametrize("monotonic_share", [0.0, 1.0], ids=["the machine slept", "the process was stopped"])
def test_what_came_while_nothing_ran_is_missed_and_counted(monotonic_share: float) -> None:
    """The monotonic clock stands still while a machine sleeps, and goes on while only a process is stopped."""
    world = World(EVERY_SECOND)
    world.runs(5)
    stood_s = 8 * HOUR_S
    world.passes(stood_s * monotonic_share, step_s=stood_s * (1 - monotonic_share))
    assert world.missed == stood_s - (LATE_S + 1)
    assert Counter(world.fired) == ticks(1, 5) + ticks(5 + stood_s - LATE_S, 5 + stood_s)
    assert world.runs(5) == ticks(6 + stood_s, 10 + stood_s)


def test_a_clock_set_an_hour_forwards_misses_the_hour_and_goes_on() -> None:
    world = World(EVERY_SECOND)
    world.runs(10)
    world.passes(1.0, step_s=HOUR_S)
    assert world.missed == HOUR_S + 1 - (LATE_S + 1)
    assert world.runs(10) == ticks(HOUR_S + 12, HOUR_S + 21)
    assert max(Counter(world.fired).values()) == 1


def test_a_clock_set_an_hour_back_fires_nothing_a_second_time() -> None:
    """The job has run for more than an hour: it pauses until the clock is where it was, and loses no tick then."""
    world = World(EVERY_SECOND)
    world.runs(2 * HOUR_S)
    world.passes(1.0, step_s=-HOUR_S)
    assert not world.runs(HOUR_S - 1)
    assert world.held == HOUR_S
    assert world.runs(10) == ticks(2 * HOUR_S + 1, 2 * HOUR_S + 10)
    assert world.missed == 0
    assert Counter(world.fired) == ticks(1, 2 * HOUR_S + 10)


def test_a_clock_set_back_to_before_the_job_began_holds_nothing_up() -> None:
    """It began ten seconds ago, while the clock was wrong: those times have not been."""
    world = World(EVERY_SECOND)
    world.runs(10)
    world.passes(1.0, step_s=-HOUR_S)
    assert world.fired[-1] == START_S + 11 - HOUR_S
    assert world.runs(HOUR_S + 20) == ticks(12 - HOUR_S, 0) + ticks(11, 31)
    assert max(Counter(world.fired).values()) == 1
    assert world.held == 10


def test_a_clock_that_was_an_hour_ahead_for_a_minute_loses_only_what_it_jumped_over_twice() -> None:
    """Forwards by mistake, and back: what was jumped over fires when its time really comes, what had fired does not."""
    world = World(EVERY_SECOND)
    world.runs(60)
    world.passes(1.0, step_s=HOUR_S)
    world.runs(59)
    world.passes(1.0, step_s=-HOUR_S)
    assert world.fired[-1] == START_S + 121
    world.runs(2 * HOUR_S)
    fired = Counter(world.fired)
    assert max(fired.values()) == 1
    assert not ticks(61, 120) & fired, "the minute of the mistake went by while the clock showed another"
    assert fired == ticks(1, 60) + ticks(121, 121 + 2 * HOUR_S)


def test_a_clock_that_was_an_hour_behind_for_a_minute_misses_only_that_minute() -> None:
    """Back by mistake, and forwards again: what lies between, and had fired before, was not missed."""
    world = World(EVERY_SECOND)
    world.runs(2 * HOUR_S - 600)
    world.passes(1.0, step_s=-HOUR_S)
    world.runs(59)
    world.passes(1.0, step_s=HOUR_S)
    assert world.missed == 61 - (LATE_S + 1)
    assert max(Counter(world.fired).values()) == 1
    assert world.runs(10) == ticks(2 * HOUR_S - 600 + 62, 2 * HOUR_S - 600 + 71)


def test_a_clock_that_was_a_year_ahead_is_corrected_and_the_job_goes_on() -> None:
    world = World(EVERY_SECOND, START_S + 365 * 86_400 + 0.25)
    world.runs(3 * HOUR_S)
    assert world.passes(1.0, step_s=-365 * 86_400.0) == Due(fire=(START_S + 3 * HOUR_S + 1,))
    assert world.runs(10) == ticks(3 * HOUR_S + 2, 3 * HOUR_S + 11)
    assert len(world.watch.lived) == 1


def test_a_clock_set_back_by_more_than_is_remembered_holds_nothing() -> None:
    """Silence must not last; what then fires twice does so as in gcron."""
    world = World(EVERY_SECOND)
    world.runs(4 * HOUR_S)
    world.passes(1.0, step_s=-(REMEMBERED_S + 60.0))
    assert world.fired[-1] == START_S + 4 * HOUR_S + 1 - REMEMBERED_S - 60
    assert world.held == 0


def test_a_clock_set_back_while_the_process_was_stopped_counts_by_the_new_clock() -> None:
    """Ten minutes stopped, an hour back: what it missed are the ten minutes before the new time."""
    world = World(EVERY_SECOND)
    world.runs(10)
    found = world.passes(600.0, step_s=-HOUR_S)
    assert (len(found.fire), found.missed, found.held) == (LATE_S + 1, 600 - (LATE_S + 1), 0)


@pytest.mark.parametrize("step_s", [-0.1, -0.5, -1.5, -3.0])
def test_a_small_correction_neither_loses_nor_doubles(step_s: float) -> None:
    """As a time server's program makes it."""
    world = World(EVERY_SECOND)
    world.runs(10)
    world.passes(1.0, step_s=step_s)
    world.runs(10)
    assert Counter(world.fired) == ticks(1, int(21.25 + step_s))


def test_a_daily_job_is_neither_lost_nor_doubled_by_an_hour_back() -> None:
    """Half past two has been; the clock comes there once more."""
    world = World("0 30 2 * * *")
    world.runs(2000)
    assert world.fired == [at("2026-11-30 02:30:00")]
    world.passes(1.0, step_s=-HOUR_S)
    world.runs(2 * HOUR_S)
    assert world.fired == [at("2026-11-30 02:30:00")]
    assert (world.held, world.missed) == (1, 0)


def test_a_machine_that_starts_in_1970_is_not_held_up_by_counting() -> None:
    """It has no battery; its clock is set right a minute later."""
    world = World(EVERY_SECOND, 60.0)
    found = world.passes(60.0, step_s=START_S)
    assert len(found.fire) == LATE_S + 1
    assert found.missed > 50 * 365 * 86_400


def test_the_next_look_is_due_at_the_next_second() -> None:
    assert until_next_s(10.25) == 0.75
    assert until_next_s(10.0) == 1.0
    assert 0.0 < until_next_s(1796000000.999999) <= 1.0


GAPS = some.lists(some.floats(0.01, 3.0), min_size=1, max_size=80)


@given(some.sampled_from([EVERY_SECOND, "*/7 * * * * *", "# * * * * *", "@every 11s", "0 */2 * * * *"]), GAPS)
def test_under_any_load_below_three_seconds_every_tick_fires_once(expression: str, gaps_s: list[float]) -> None:
    world = World(expression)
    for gap_s in gaps_s:
        world.passes(gap_s)
    assert world.fired == [at_s for at_s in range(START_S + 1, int(world.wall_s) + 1) if world.schedule.matches(at_s)]
    assert (world.missed, world.held) == (0, 0)


@given(some.sampled_from([EVERY_SECOND, "*/7 * * * * *", "# * * * * *"]), some.lists(some.floats(0.01, 4000.0)))
def test_under_any_load_every_tick_fires_once_or_is_missed(expression: str, gaps_s: list[float]) -> None:
    world = World(expression)
    for gap_s in gaps_s:
        assert all(world.wall_s - at_s < world.schedule.late_s + 1 for at_s in world.passes(gap_s).fire)
    assert len(world.fired) + world.missed == world.schedule.count(START_S, int(world.wall_s))
    assert all(before < after for before, after in pairwise(world.fired))


OFFSETS_S = some.one_of(some.sampled_from([0.0, 3600.0]), some.floats(0.0, 3600.0))
"""By how much the clock is wrong."""


@given(some.lists(some.tuples(some.integers(1, 40), some.floats(0.1, 3.0), OFFSETS_S), max_size=12))
@settings(deadline=None)
def test_over_any_steps_of_an_hour_no_tick_fires_twice_and_none_is_lost_that_the_clock_goes_through(
    parts: list[tuple[int, float, float]],
) -> None:
    """Gone through: the clock showed it, or passed it within three seconds, while it was not being set."""
    world = World(EVERY_SECOND)
    gone_through: set[int] = set()
    is_wrong_by_s = 0.0
    for looks, gap_s, offset_s in parts:
        for _ in range(looks):
            before_s = int(world.wall_s)
            world.passes(gap_s)
            gone_through |= set(range(before_s + 1, int(world.wall_s) + 1))
        world.passes(gap_s, offset_s - is_wrong_by_s)
        is_wrong_by_s = offset_s
    fired = Counter(world.fired)
    assert all(count == 1 for count in fired.values())
    assert gone_through <= fired.keys()
    assert len(world.watch.lived) <= len(parts) + 1
