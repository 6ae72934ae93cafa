"""When a worker looks, when it claims, how much and from where; time and the table's answers come in as data."""

import itertools

import pytest

from outboxd.config.schema import Lane
from outboxd.publishers.fanout import ALL, NONE, ONE
from outboxd.relay.planner import SWEEP_MOST_S, Holding, Look, Planner, Take
from outboxd.store.api import ZERO, Claim, Floors, Peek

LANE = Lane(name="room_outbox", poll_interval_s=1.0, batch_size=100, publish_timeout_s=3.0, max_inflight_bytes=1000)
IDLE = Holding(count=0, payload_bytes=0, waiting=0, suspect=False, appetite=ALL, all_closed=True)
BOTH = Peek(now_ms=0, paused=False, fresh=True, due=True)
FRESH = Peek(now_ms=0, paused=False, fresh=True, due=False)
NOTHING = Peek(now_ms=0, paused=False, fresh=False, due=False)


def planner(lane: Lane = LANE) -> Planner:
    """One that has just been made; no jitter."""
    tokens = itertools.count(1)
    return Planner(lane, "node/room_outbox-01", lambda: 0.5, lambda: next(tokens))


def holding(**changes: object) -> Holding:
    """What the worker holds: nothing, save what is said."""
    usual: dict[str, object] = dict(zip(Holding.__struct_fields__, (0, 0, 0, False, ALL, True, 0), strict=True))
    return Holding(**{**usual, **changes})  # type: ignore[arg-type]  # each test's words are Holding's own


def look(plan: object) -> Look:
    """It is a look."""
    assert isinstance(plan, Look)
    return plan


def take(plan: object) -> Take:
    """It is a claim."""
    assert isinstance(plan, Take)
    return plan


def claim(found: int = 100, *, floors: Floors = ZERO, left: bool = True, **changes: object) -> Claim:
    """A claim that found so many fresh rows; its events do not matter here."""
    usual: dict[str, object] = {"token": 1, "fresh_left": left, "floors": floors}
    return Claim(**{**usual, **changes})  # type: ignore[arg-type]  # each test's words are Claim's own


def busy(now_s: float = 0.0, peek: Peek = FRESH, took_s: float = 0.0, lane: Lane = LANE) -> Planner:
    """One that has just looked from the start and seen something."""
    made = planner(lane)
    made.saw(look(made.next(now_s, IDLE)), peek, now_s, took_s)
    return made


def test_the_first_thing_is_a_look_from_the_start() -> None:
    """What was there before the process began has no floor."""
    assert planner().next(0.0, IDLE) == Look(ZERO, True)


def test_it_never_sleeps_while_there_is_backlog() -> None:
    """Claim follows claim, without a look and without a pause, until one comes back short."""
    made = busy()
    for turn in range(1, 50):
        plan = take(made.next(0.001 * turn, IDLE))
        assert plan.want.limit == 100
        made.took(plan, claim(floors=Floors(fresh_id=100 * turn)), 0.001 * turn, 0.0)
    plan = take(made.next(0.05, IDLE))
    made.took(plan, claim(floors=plan.floors, left=False), 0.05, 0.0)
    assert made.next(0.051, IDLE) is None
    assert made.idle
    assert made.wake_at_s(IDLE) == 1.0


def test_a_claim_that_found_some_is_followed_by_another() -> None:
    """A batch that was not full may have passed over locked rows; only an empty claim ends the rush."""
    made = busy()
    made.took(take(made.next(0.0, IDLE)), claim(floors=Floors(fresh_id=7), left=False), 0.0, 0.0)
    assert take(made.next(0.0, IDLE)).floors == Floors(fresh_id=7)


def test_a_claim_starts_behind_the_last_one() -> None:
    """Without the floor every claim walks over what was claimed before."""
    made = busy(peek=BOTH)
    first = take(made.next(0.0, IDLE))
    assert (first.floors, first.sweep) == (ZERO, True)
    made.took(first, claim(floors=Floors(50, 6, 7), due_left=True), 0.0, 0.0)
    second = take(made.next(0.0, IDLE))
    assert (second.floors, second.sweep) == (Floors(50, 6, 7), False)


def test_a_class_that_was_not_asked_for_keeps_its_floor() -> None:
    """The claim's floors say where to go on in what it looked at, and nothing about the rest."""
    made = busy(peek=BOTH)
    made.took(take(made.next(0.0, IDLE)), claim(floors=Floors(50, 6, 7), due_left=True), 0.0, 0.0)
    made.took(take(made.next(0.0, IDLE)), claim(floors=Floors(90, 6, 7), left=True), 0.0, 0.0)
    assert made.floors == Floors(90, 6, 7)


def test_a_sweep_that_finds_nothing_leaves_the_floors() -> None:
    """Else every empty sweep would send the next claim through all that was claimed since the start."""
    made = busy()
    made.took(take(made.next(0.0, IDLE)), claim(floors=Floors(fresh_id=500)), 0.0, 0.0)
    made.floors = Floors(500, 6, 7)
    plan = look(made.next(1.0, IDLE))
    assert plan == Look(ZERO, True)
    made.saw(plan, BOTH, 1.0, 0.0)
    sweep = take(made.next(1.0, IDLE))
    assert (sweep.floors, sweep.sweep) == (ZERO, True)
    made.took(sweep, claim(floors=ZERO, left=False), 1.0, 0.0)
    assert made.floors == Floors(500, 6, 7)


def test_a_sweep_that_finds_rows_lowers_the_floor() -> None:
    """A transaction with lower ids has committed late: what stands behind it is claimed from there."""
    made = busy()
    made.took(take(made.next(0.0, IDLE)), claim(floors=Floors(fresh_id=500)), 0.0, 0.0)
    made.saw(look(made.next(1.0, IDLE)), FRESH, 1.0, 0.0)
    made.took(take(made.next(1.0, IDLE)), claim(floors=Floors(fresh_id=20)), 1.0, 0.0)
    assert made.floors == Floors(fresh_id=20)


@pytest.mark.parametrize(
    ("took_s", "apart_s"), [(0.0, 1.0), (0.02, 1.0), (0.1, 5.0), (0.6, 30.0), (30.0, SWEEP_MOST_S)]
)
def test_sweeps_are_fifty_times_their_own_duration_apart(took_s: float, apart_s: float) -> None:
    """Under a long-open snapshot a sweep reads everything relayed since: it must not become the load. 60 s at most."""
    made = busy(peek=NOTHING, took_s=took_s)
    sweeps, now_s = [0.0], 0.0
    while len(sweeps) < 4:
        now_s = made.poll_at_s
        plan = look(made.next(now_s, IDLE))
        if plan.sweep:
            sweeps.append(now_s)
        made.saw(plan, NOTHING, now_s, took_s if plan.sweep else 0.0)
    first_s, *gaps = [later - earlier for earlier, later in itertools.pairwise(sweeps)]
    assert first_s <= 1.0 + 1e-9, "one slow sweep says nothing yet"
    assert min(gaps) >= apart_s - 1e-9
    assert max(gaps) <= apart_s + 1.0 + 1e-9


def test_the_claim_of_a_sweep_counts_into_its_duration() -> None:
    """The look may end at the first row, the claim reads the rest."""
    made = busy(took_s=0.1)
    made.took(take(made.next(0.0, IDLE)), claim(), 0.0, 0.5)
    made.saw(look(made.next(1.0, IDLE)), FRESH, 1.0, 0.1)
    made.took(take(made.next(1.0, IDLE)), claim(), 1.0, 0.5)
    assert not look(made.next(30.9, IDLE)).sweep
    assert look(made.next(31.0, IDLE)).sweep


def test_one_slow_sweep_does_not_put_off_the_next() -> None:
    """G8: it waited for an ALTER, or the database had just started: lost leases would stay hidden for a minute."""
    made = busy(took_s=0.01, peek=NOTHING)
    made.saw(look(made.next(1.0, IDLE)), NOTHING, 1.0, 5.0)
    plan = look(made.next(2.0, IDLE))
    assert plan.sweep
    made.saw(plan, NOTHING, 2.0, 0.01)
    assert look(made.next(3.0, IDLE)).sweep


def test_looks_between_sweeps_start_at_the_floors() -> None:
    """New rows are found by a look that reads nothing old."""
    made = busy(took_s=1.0)
    made.saw(look(made.next(1.0, IDLE)), FRESH, 1.0, 1.0)
    made.took(take(made.next(1.0, IDLE)), claim(floors=Floors(fresh_id=500)), 1.0, 0.0)
    assert made.next(2.0, IDLE) == Look(Floors(fresh_id=500), False)


def test_payload_that_is_held_is_taken_off_the_budget() -> None:
    """G9: what a worker holds, claimed and unsettled, never exceeds max_inflight_bytes."""
    made = busy()
    assert take(made.next(0.0, IDLE)).want.budget_bytes == 1000
    want = take(made.next(0.0, holding(count=3, payload_bytes=900))).want
    assert (want.budget_bytes, want.idle) == (100, False)
    assert made.next(0.0, holding(count=3, payload_bytes=1000)) is None
    assert made.next(0.0, holding(count=1, payload_bytes=5000)) is None


def test_only_an_idle_worker_takes_an_event_larger_than_the_budget() -> None:
    """It goes alone: `idle` is what allows it."""
    made = busy()
    assert take(made.next(0.0, IDLE)).want.idle
    assert not take(made.next(0.0, holding(count=1, payload_bytes=1))).want.idle


def test_a_claim_cut_to_nothing_waits_until_something_is_settled() -> None:
    """The next row does not fit beside what is held: asking again would be a busy loop."""
    made = busy()
    some = holding(count=2, payload_bytes=600)
    made.took(take(made.next(0.0, some)), claim(left=False, cut_by_budget=True), 0.0, 0.0)
    assert made.next(0.0, some) is None
    made.freed()
    assert take(made.next(0.0, some)).want.budget_bytes == 400


def test_a_claim_cut_to_nothing_that_settled_all_there_was_is_followed_by_another() -> None:
    """Settling and claiming share a transaction: nobody is left whose settling could make room, so nobody says so."""
    made = busy()
    some = holding(count=2, payload_bytes=600)
    made.took(take(made.next(0.0, some)), claim(left=False, cut_by_budget=True), 0.0, 0.0)
    want = take(made.next(0.0, IDLE)).want
    assert (want.budget_bytes, want.idle) == (1000, True)


def test_nothing_is_claimed_while_events_wait_for_a_publisher() -> None:
    """The publishers are full: more would only grow old under its lease."""
    made = busy()
    assert made.next(0.0, holding(count=10, payload_bytes=10, waiting=1)) is None
    assert take(made.next(0.0, holding(count=10, payload_bytes=10)))


def test_an_appetite_for_one_takes_one_and_only_when_nothing_is_held() -> None:
    """A probe: the rest of a batch would be parked at once, a row written twice for nothing."""
    made = busy(peek=BOTH)
    want = take(made.next(0.0, holding(appetite=ONE, all_closed=False))).want
    assert (want.limit, want.due) == (1, False), "a probe prefers an event that has not failed yet"
    assert made.next(0.0, holding(appetite=ONE, all_closed=False, count=1, payload_bytes=1)) is None


def test_no_appetite_takes_nothing() -> None:
    """Every publisher is failing or has asked for a pause; looks go on."""
    made = busy()
    assert made.next(0.0, holding(appetite=NONE)) is None
    assert look(made.next(1.0, holding(appetite=NONE)))


def test_a_paused_lane_is_looked_at_and_nothing_more() -> None:
    """`outboxd pause`: nothing new is claimed on any node, until a look sees that it is over."""
    made = busy(peek=Peek(now_ms=0, paused=True, fresh=True, due=True))
    assert made.paused
    assert made.next(0.5, IDLE) is None
    made.saw(look(made.next(1.0, IDLE)), FRESH, 1.0, 0.0)
    assert take(made.next(1.0, IDLE))


def test_a_new_session_looks_from_the_start_at_once() -> None:
    """Whatever happened meanwhile, nothing the floors say about it can be trusted."""
    made = busy(took_s=1.0)
    made.took(take(made.next(0.0, IDLE)), claim(floors=Floors(fresh_id=500)), 0.0, 0.0)
    assert made.next(0.5, holding(waiting=1)) is None
    made.connected(0.5)
    assert made.next(0.5, IDLE) == Look(ZERO, True)


def test_what_was_made_due_is_found_at_once() -> None:
    """Parked rows that were pulled forward stand before the floors."""
    made = busy(took_s=1.0)
    made.took(take(made.next(0.0, IDLE)), claim(floors=Floors(500, 6, 7)), 0.0, 0.0)
    made.poll_soon(0.1)
    assert made.next(0.1, IDLE) == Look(ZERO, True)


def test_polls_of_many_workers_spread_out() -> None:
    """They must not all ask at the same moment: a tenth earlier or later."""
    at = []
    for share in (0.0, 0.5, 0.999):
        made = Planner(LANE, "node/room_outbox-01", lambda share=share: share, lambda: 1)  # type: ignore[misc]
        made.saw(look(made.next(0.0, IDLE)), NOTHING, 10.0, 0.0)
        at.append(made.poll_at_s)
    assert at == pytest.approx([10.9, 11.0, 11.1], abs=0.001)
