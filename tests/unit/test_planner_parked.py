"""What waits for a broken publisher is claimed at times, and never at the cost of the others (G7)."""

from outboxd.relay.planner import Look
from outboxd.store.api import ZERO, Peek
from tests.unit.test_planner import BOTH, busy, claim, holding, take


def test_while_a_publisher_is_broken_one_claim_in_four_takes_parked_rows() -> None:
    """One publisher's outage must not fill every claim with events that only wait for it."""
    made = busy(peek=BOTH)
    broken = holding(all_closed=False)
    asked = []
    for _ in range(40):
        plan = take(made.next(0.0, broken))
        assert plan.want.fresh
        asked.append(plan.want.due)
        made.took(plan, claim(due_left=True, floors=made.floors), 0.0, 0.0)
    assert sum(asked) == 10


def test_parked_rows_cost_a_bounded_share_of_the_time() -> None:
    """A million of them come due again and again; a healthy publisher keeps its pace all the same."""
    made = busy(peek=BOTH)
    now_s, parked_s = 0.0, 0.0
    for _ in range(4000):
        plan = take(made.next(now_s, holding(all_closed=False)))
        took_s = 0.0002 if plan.want.due else 0.0001
        parked_s += took_s if plan.want.due else 0.0
        now_s += took_s
        made.took(plan, claim(due_left=True, floors=made.floors), now_s, took_s)
    assert 0.01 * now_s < parked_s < 0.03 * now_s


def test_parked_rows_are_not_forgotten_when_the_database_is_slow() -> None:
    """Among them is the next probe, and what a healthy publisher has failed before."""
    made = busy(peek=BOTH)
    plan = take(made.next(0.0, holding(all_closed=False)))
    assert plan.want.due
    made.took(plan, claim(due_left=True), 0.5, 10.0)
    asked = []
    for _ in range(4):
        made.saw(Look(ZERO, False), BOTH, 5.4, 0.0)
        plan = take(made.next(5.6, holding(all_closed=False)))
        asked.append(plan.want.due)
        made.took(plan, claim(due_left=True), 5.6, 0.0)
    assert sum(asked) == 1


def test_parked_rows_alone_are_taken_by_every_claim() -> None:
    """There is nothing that they could hold up."""
    made = busy(peek=Peek(now_ms=0, paused=False, fresh=False, due=True))
    want = take(made.next(0.0, holding(all_closed=False))).want
    assert (want.fresh, want.due) == (False, True)
