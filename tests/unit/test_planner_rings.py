"""The doorbell, and transactions that commit late: what a ring makes the planner do, and from where it looks."""

import pytest

from outboxd.publishers.fanout import NONE
from outboxd.relay.planner import TRAIL_S, TRAIL_STEP_S, Look, Planner
from outboxd.store.api import ZERO, Floors, Peek
from tests.unit.test_planner import BOTH, FRESH, IDLE, NOTHING, busy, claim, holding, look, planner, take


def idle_at(fresh_id: int, now_s: float = 0.0) -> Planner:
    """One that has claimed up to an id and found nothing more; its next poll and sweep are a second away."""
    made = busy(now_s)
    made.took(take(made.next(now_s, IDLE)), claim(floors=Floors(fresh_id=fresh_id), left=False), now_s, 0.0)
    made.took(take(made.next(now_s, IDLE)), claim(floors=Floors(fresh_id=fresh_id), left=False), now_s, 0.0)
    assert made.next(now_s, IDLE) is None
    return made


def deliver(made: Planner, fresh_id: int, now_s: float) -> None:
    """A ring brings one event."""
    made.rung(surely=True)
    made.took(take(made.next(now_s, IDLE)), claim(floors=Floors(fresh_id=fresh_id), left=False), now_s, 0.0)


def test_a_ring_is_looked_at_at_once_and_once() -> None:
    """Not at the next poll; and many rings before the look are one."""
    made = idle_at(500)
    made.rung(surely=False)
    made.rung(surely=False)
    plan = look(made.next(0.3, IDLE))
    assert (plan.sweep, plan.rung) == (False, True)
    made.saw(plan, NOTHING, 0.3, 0.0)
    assert made.next(0.3, IDLE) is None
    assert made.wake_at_s(IDLE) == 1.3


def test_a_ring_that_finds_something_is_followed_by_one_claim() -> None:
    """A short claim is not made again: whoever holds what it passed over rings when it is free."""
    made = idle_at(500)
    made.rung(surely=False)
    made.saw(look(made.next(0.3, IDLE)), FRESH, 0.3, 0.0)
    plan = take(made.next(0.3, IDLE))
    assert plan.rung
    made.took(plan, claim(floors=Floors(fresh_id=501), left=False), 0.3, 0.0)
    assert made.next(0.3, IDLE) is None
    assert made.floors.fresh_id == 501


def test_a_ring_that_finds_a_backlog_starts_the_usual_rush() -> None:
    """Claim follows claim until one comes back empty; only the first is the ring's."""
    made = idle_at(500)
    made.rung(surely=True)
    made.took(take(made.next(0.3, IDLE)), claim(floors=Floors(fresh_id=600), left=True), 0.3, 0.0)
    plan = take(made.next(0.3, IDLE))
    assert (plan.rung, plan.floors.fresh_id) == (False, 600)
    made.took(plan, claim(floors=Floors(fresh_id=650), left=False), 0.3, 0.0)
    assert take(made.next(0.3, IDLE)).floors.fresh_id == 650


def test_a_worker_that_is_sure_claims_without_a_look() -> None:
    """One round trip less, for the worker that found work when it was last rung."""
    made = idle_at(500)
    made.rung(surely=True)
    plan = take(made.next(0.3, IDLE))
    assert (plan.rung, plan.want.fresh, plan.want.due) == (True, True, False)
    made.took(plan, claim(floors=plan.floors, left=False), 0.3, 0.0)
    assert made.next(0.3, IDLE) is None
    assert made.floors.fresh_id == 500, "a claim that found nothing moves no floor"


def test_a_ring_during_a_rush_is_looked_at_behind_it() -> None:
    """It may have been about a transaction that came late: claims of a rush start behind it."""
    made = busy()
    made.took(take(made.next(0.0, IDLE)), claim(floors=Floors(fresh_id=100)), 0.0, 0.0)
    made.rung(surely=True)
    made.took(take(made.next(0.0, IDLE)), claim(floors=Floors(fresh_id=100), left=False), 0.0, 0.0)
    assert look(made.next(0.0, IDLE)).rung


@pytest.mark.parametrize("held", [holding(appetite=NONE), holding(count=3, waiting=1), holding(count=1, suspect=True)])
def test_a_ring_waits_until_something_can_be_claimed(held: object) -> None:
    """While publishers take nothing each look would be for nothing; once they do, the ring is not forgotten."""
    made = idle_at(500)
    made.rung(surely=False)
    assert made.next(0.3, held) is None  # type: ignore[arg-type]  # a Holding
    assert look(made.next(0.4, IDLE)).rung


def test_a_paused_lane_does_not_mind_rings() -> None:
    """`outboxd pause`: polls see when it is over."""
    made = busy(peek=BOTH.__class__(now_ms=0, paused=True, fresh=False, due=False))
    made.rung(surely=True)
    made.rung(surely=False)
    assert made.next(0.5, IDLE) is None
    assert look(made.next(1.0, IDLE))


def test_rings_without_end_do_not_keep_sweeps_away() -> None:
    """G1, G8: each look puts the next poll off; leases that ran out are still found every poll_interval."""
    made, sweeps = idle_at(500), 0
    for step in range(1, 1001):
        made.rung(surely=False)
        plan = look(made.next(step / 100, IDLE))
        sweeps += plan.sweep
        made.saw(plan, NOTHING, step / 100, 0.0)
    assert 9 <= sweeps <= 10


def test_a_look_starts_where_the_floor_was_a_little_while_ago() -> None:
    """A transaction with a lower id that commits within TRAIL_S is found by its ring, and no sweep has to."""
    made = idle_at(500)
    deliver(made, 510, 0.5)
    deliver(made, 520, 0.6)
    made.rung(surely=False)
    assert look(made.next(0.5 + TRAIL_S - 0.01, IDLE)).floors.fresh_id == 500
    assert look(made.next(0.5 + TRAIL_S, IDLE)).floors.fresh_id == 510
    assert look(made.next(0.6 + TRAIL_S, IDLE)).floors.fresh_id == 520


def test_the_claim_of_a_ring_starts_there_too() -> None:
    """Else the look would see the late row, and the claim would not."""
    made = idle_at(500)
    deliver(made, 510, 0.5)
    made.rung(surely=False)
    made.saw(look(made.next(0.55, IDLE)), FRESH, 0.55, 0.0)
    late = take(made.next(0.55, IDLE))
    assert late.floors.fresh_id == 500
    made.took(late, claim(floors=Floors(fresh_id=507), left=False), 0.55, 0.0)
    made.rung(surely=True)
    assert take(made.next(0.56, IDLE)).floors.fresh_id == 500


def test_a_backlog_is_not_read_again() -> None:
    """At 20,000 events a second a quarter of a second is 5,000 index entries: each claim would walk over them."""
    made = busy()
    for turn in range(1, 200):
        plan = take(made.next(0.004 * turn, IDLE))
        assert plan.floors.fresh_id == 100 * (turn - 1)
        made.took(plan, claim(floors=Floors(fresh_id=100 * turn)), 0.004 * turn, 0.0)
    made.saw(look(made.next(1.1, IDLE)), NOTHING, 1.1, 1.0)
    assert take(made.next(1.1, IDLE)).floors.fresh_id == 19900


def test_a_look_within_a_backlog_starts_at_the_floor() -> None:
    """It is one of many, and the last claim was full."""
    made = busy(took_s=1.0)
    made.saw(look(made.next(1.0, IDLE)), FRESH, 1.0, 1.0)
    made.took(take(made.next(1.0, IDLE)), claim(floors=Floors(fresh_id=500)), 1.0, 0.0)
    made.took(take(made.next(1.95, IDLE)), claim(floors=Floors(fresh_id=900)), 1.95, 0.0)
    assert made.next(2.0, IDLE) == Look(Floors(fresh_id=900), False)


def test_the_floors_past_stays_short() -> None:
    """G9: whatever the pace; what is left out makes the look start a little earlier, never later."""
    made = idle_at(1)
    for turn in range(2, 3000):
        now_s = turn / 1000
        if now_s >= made.poll_at_s:
            made.saw(look(made.next(now_s, IDLE)), NOTHING, now_s, 0.0)
        deliver(made, turn, now_s)
        assert len(made._trail) <= 2 + TRAIL_S / TRAIL_STEP_S


def test_a_worker_that_finds_nothing_keeps_up_with_the_others() -> None:
    """Else each of its looks, many a second when it is rung, would read all that the others have relayed since it last
    found something: under a long-open snapshot, hundreds of thousands of entries."""
    made = idle_at(500)
    made.rung(surely=False)
    made.saw(look(made.next(0.3, IDLE)), Peek(now_ms=0, paused=False, fresh=False, due=False, last_id=900), 0.3, 0.0)
    made.rung(surely=False)
    assert look(made.next(0.3 + TRAIL_S - 0.01, IDLE)).floors.fresh_id == 500, "late commits"
    assert look(made.next(0.3 + TRAIL_S, IDLE)).floors.fresh_id == 900
    made.saw(look(made.next(0.6, IDLE)), Peek(now_ms=0, paused=False, fresh=True, due=False, last_id=990), 0.6, 0.0)
    assert made.floors.fresh_id == 900, "something up to 990 is to be claimed"


def test_a_sweep_that_lowers_the_floor_lowers_where_looks_start() -> None:
    """They start at the floor or before it."""
    made = idle_at(500)
    made.saw(look(made.next(1.0, IDLE)), FRESH, 1.0, 0.0)
    made.took(take(made.next(1.0, IDLE)), claim(floors=Floors(fresh_id=20), left=False), 1.0, 0.0)
    made.took(take(made.next(1.0, IDLE)), claim(floors=Floors(fresh_id=20), left=False), 1.0, 0.0)
    made.rung(surely=False)
    assert look(made.next(1.1, IDLE)).floors.fresh_id == 20


def test_a_new_planner_rests_on_no_past() -> None:
    """What was there before the process began has no floor."""
    made = planner()
    made.rung(surely=True)
    assert made.next(0.0, IDLE) == Look(ZERO, True, False)
