"""Which events are too old to be published."""

from outboxd.event import Event
from outboxd.relay.stale import Stale, is_stale


def event(created_at_ms: int) -> Event:
    """Created then."""
    return Event(1, "e", "t", "r", "a", b"", "", None, 0, created_at_ms, "", None, "room_outbox")


def test_age_counts_by_the_database_s_clock() -> None:
    """To the millisecond; what was created nobody knows when has no age."""
    before_ms = Stale(30.0).before_ms(100_000)
    assert before_ms == 70_000
    assert [ms for ms in (0, 1, 69_999, 70_000, 200_000) if is_stale(event(ms), before_ms)] == [1, 69_999]


def test_nothing_is_stale_on_a_lane_that_does_not_ask_or_before_the_time_is_known() -> None:
    """A worker has not looked yet, or the clock stands at the epoch."""
    assert Stale(0.0).before_ms(100_000) == Stale(-5.0).before_ms(100_000) == 0
    assert Stale(30.0).before_ms(0) == Stale(30.0).before_ms(20_000) == 0
    assert not is_stale(event(1), 0)
