"""How a worker claims on a lane that throws stale events away."""

import msgspec

from outboxd.event import Event
from outboxd.publishers.fanout import ALL, NONE, ONE
from outboxd.relay.planner import DROP_PAUSE, DROPPED_AT_ONCE, Take
from outboxd.store.api import Claim, Floors
from tests.unit.test_planner import LANE, busy, holding, take

BEFORE_MS = 1000


def events(*created_ms: int) -> tuple[Event, ...]:
    """Created then."""
    usual = Event(0, "e", "t", "r", "a", b"", "", None, 0, 0, "", None, "room_outbox")
    return tuple(
        msgspec.structs.replace(usual, id=number, created_at_ms=ms) for number, ms in enumerate(created_ms, 1)
    )


def found(*created_ms: int) -> Claim:
    """A claim that took these, of more."""
    return Claim(token=1, events=events(*created_ms), fresh_left=True, floors=Floors(len(created_ms)))


def test_no_lane_asks_for_stale_rows_that_does_not_throw_them_away() -> None:
    """Its claims are what they were."""
    plan = take(busy().next(0.0, holding()))
    assert (plan.want.stale_before_ms, plan.want.live_limit, plan.want.limit) == (0, 0, LANE.batch_size)


def test_where_only_a_probe_may_go_a_batch_of_stale_ones_may() -> None:
    """They need no publisher."""
    plan = take(busy().next(0.0, holding(appetite=ONE, all_closed=False, stale_before_ms=BEFORE_MS)))
    assert (plan.want.limit, plan.want.live_limit) == (LANE.batch_size, 1)
    assert take(busy().next(0.0, holding(stale_before_ms=BEFORE_MS))).want.live_limit == LANE.batch_size
    assert busy().next(0.0, holding(appetite=NONE, all_closed=False, stale_before_ms=BEFORE_MS)) is None


def test_after_nothing_but_stale_events_more_are_taken_at_once_and_the_worker_rests() -> None:
    """The database is there for other lanes, too; looks go on."""
    made, held = busy(), holding(appetite=ALL, stale_before_ms=BEFORE_MS)
    made.took(take(made.next(0.0, held)), found(5, 6), 0.1, 0.01)
    rests_s = 0.1 + DROP_PAUSE * LANE.concurrency * 0.01
    assert made.next(0.15, held) is None
    assert made.wake_at_s(held) <= rests_s
    plan = take(made.next(rests_s, held))
    assert (plan.want.limit, plan.want.live_limit) == (max(DROPPED_AT_ONCE, LANE.batch_size), LANE.batch_size)
    assert made.wake_at_s(held) > rests_s, "it does not spin where something else keeps it from claiming"


def test_one_that_can_be_published_ends_the_rest() -> None:
    """Nor is one of unknown age stale."""
    for created_ms in (BEFORE_MS, 0):
        made, held = busy(), holding(stale_before_ms=BEFORE_MS)
        made.took(take(made.next(0.0, held)), found(5, created_ms), 0.1, 0.1)
        plan = made.next(0.1, held)
        assert isinstance(plan, Take)
        assert plan.want.limit == LANE.batch_size
