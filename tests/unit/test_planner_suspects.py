"""How a worker deals with suspects: alone, not all of the time, and not at once after a new session (G8)."""

import itertools

from outboxd.config.schema import Lane
from outboxd.publishers.fanout import NONE
from outboxd.relay.planner import Look, Planner, Take
from outboxd.store.api import ZERO, Floors
from tests.unit.test_planner import FRESH, IDLE, LANE, NOTHING, busy, claim, holding, look, planner, take


def aware(now_s: float = 0.0) -> Planner:
    """One whose claim has just passed over a suspect."""
    made = busy(now_s)
    made.took(take(made.next(now_s, IDLE)), claim(floors=Floors(fresh_id=9), suspects_wait=True), now_s, 0.0)
    return made


def test_usual_claims_pass_over_suspects() -> None:
    """G8: a claim that takes a batch must never take what may kill its worker along."""
    assert not take(busy().next(0.0, IDLE)).want.suspects


def test_a_suspect_is_asked_for_only_when_nothing_is_held() -> None:
    """G8: it is published with nothing else in flight, so the worker first lets what it holds come to an end."""
    made = aware()
    assert made.next(0.0, holding(count=1, payload_bytes=1)) is None
    plan = take(made.next(0.0, IDLE))
    assert (plan.want.suspects, plan.want.idle, plan.floors) == (True, True, ZERO)


def test_nothing_is_claimed_beside_a_suspect() -> None:
    """G8: until it is settled."""
    made = aware()
    made.took(take(made.next(0.0, IDLE)), claim(floors=ZERO, suspect=True, left=False), 0.0, 0.0)
    assert made.next(0.0, holding(count=1, payload_bytes=1, suspect=True)) is None
    assert take(made.next(0.0, IDLE))


def test_a_suspect_that_is_held_keeps_everything_else_away() -> None:
    """G8: also in the others' half of the time, and when nothing more is known of suspects."""
    made = busy()
    assert made.next(0.0, holding(count=1, payload_bytes=1)) is not None
    assert made.next(0.0, holding(count=1, payload_bytes=1, suspect=True)) is None


def test_suspects_have_half_of_the_time_at_the_most() -> None:
    """G7: a table full of suspects (a node died with its batches) must not keep fresh events waiting behind them."""
    made = aware()
    turns: list[tuple[float, bool]] = []
    for number in range(1, 800):
        now_s = number / 100
        plan = made.next(now_s, IDLE)
        if isinstance(plan, Take):
            suspect = plan.want.suspects
            turns.append((now_s, suspect))
            floors = plan.floors if suspect else Floors(fresh_id=number)
            made.took(plan, claim(floors=floors, suspect=suspect, suspects_wait=True), now_s, 0.0)
        elif plan is not None:
            made.saw(plan, FRESH, now_s, 0.0)
    shares = [suspect for _, suspect in turns]
    assert 0.4 <= sum(shares) / len(shares) <= 0.55
    changes = sum(before != after for before, after in itertools.pairwise(shares))
    assert 5 <= changes <= 9, "windows of poll_interval each, not one long one"


def test_suspects_have_all_of_the_time_where_there_is_nothing_else() -> None:
    """G8: what a dead node has left behind is not kept waiting for events that do not come."""
    made = aware()
    now_s, suspects = 0.0, 0
    while now_s < 4 * LANE.poll_interval_s:
        plan = made.next(now_s, IDLE)
        if isinstance(plan, Look):
            made.saw(plan, NOTHING, now_s, 0.0)
        elif isinstance(plan, Take) and plan.want.suspects:
            suspects += 1
            made.took(plan, claim(floors=ZERO, suspect=True, suspects_wait=True), now_s, 0.0)
        elif isinstance(plan, Take):
            made.took(plan, claim(floors=plan.floors, left=False), now_s, 0.0)
        now_s += 0.01
    assert suspects > 0.7 * now_s / 0.01, "in the half of the others each is followed by one claim for them"


def test_many_suspects_do_not_put_off_the_next_sweep() -> None:
    """G8: each is a claim from the start, and only its own duration counts: what the next dead worker leaves is found
    soon, however many the last one left. Added up, 300 of 3 ms kept the next lost lease waiting for 45 s."""
    made = aware()
    for _ in range(300):
        made.took(take(made.next(0.0, IDLE)), claim(floors=ZERO, suspect=True, suspects_wait=True), 0.0, 0.003)
    made.took(take(made.next(0.0, IDLE)), claim(floors=ZERO, left=False), 0.0, 0.003)
    assert look(made.next(1.1, IDLE)).sweep


def test_after_the_last_suspect_everything_is_as_before() -> None:
    """A claim that asked for one and found none took usual rows."""
    made = aware()
    made.took(take(made.next(0.0, IDLE)), claim(floors=Floors(fresh_id=5)), 0.0, 0.0)
    assert not take(made.next(0.0, IDLE)).want.suspects


def test_suspects_are_left_alone_for_publish_timeout_after_a_new_session() -> None:
    """G8: other workers lost the database too; they must have the time to settle by token first."""
    made = busy()
    made.connected(100.0)
    made.saw(look(made.next(100.0, IDLE)), FRESH, 100.0, 0.0)
    made.took(take(made.next(100.0, IDLE)), claim(suspects_wait=True, left=False), 100.0, 0.0)
    early = 100.0 + LANE.publish_timeout_s - 0.01
    made.saw(look(made.next(early, IDLE)), FRESH, early, 0.0)
    assert not take(made.next(early, IDLE)).want.suspects
    assert take(made.next(100.0 + LANE.publish_timeout_s, IDLE)).want.suspects


def test_suspects_are_left_alone_until_the_others_have_tried_again() -> None:
    """G8: whoever is back first must not take what another one, still in a pause, has published but not settled."""
    made = busy()
    made.connected(100.0, others_pause_s=7.5)
    made.saw(look(made.next(100.0, IDLE)), FRESH, 100.0, 0.0)
    made.took(take(made.next(100.0, IDLE)), claim(suspects_wait=True, left=False), 100.0, 0.0)
    early, late = 107.4 + LANE.publish_timeout_s, 107.5 + LANE.publish_timeout_s
    made.saw(look(made.next(early, IDLE)), FRESH, early, 0.0)
    assert not take(made.next(early, IDLE)).want.suspects
    assert take(made.next(late, IDLE)).want.suspects


def test_a_first_session_waits_as_long() -> None:
    """A fleet that starts together after an outage of the database finds the same situation."""
    made = planner(Lane(name="room_outbox", poll_interval_s=60.0, publish_timeout_s=3.0))
    made.connected(0.0)
    made.saw(look(made.next(0.0, IDLE)), FRESH, 0.0, 0.0)
    made.took(take(made.next(0.0, IDLE)), claim(suspects_wait=True, left=False), 0.0, 0.0)
    plan = made.next(0.5, IDLE)
    assert plan is None or (isinstance(plan, Take) and not plan.want.suspects)
    assert made.wake_at_s(IDLE) == 3.0, "it wakes by itself when the time has come"


def test_suspects_wait_while_no_publisher_can_be_asked() -> None:
    """Taking one counts as an attempt: not during an outage."""
    assert aware().next(0.0, holding(appetite=NONE)) is None


def test_a_paused_lane_takes_no_suspects() -> None:
    """Paused means that nothing is claimed."""
    made = aware()
    made.paused = True
    assert made.next(0.0, IDLE) is None
