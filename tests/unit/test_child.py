"""A slot's state machine: every decision, given the time."""

import math
import signal

import pytest

from outboxd.supervisor.child import (
    HANG_DUMP_S,
    HURRY_S,
    UNKILLABLE_S,
    Abandon,
    Child,
    Exit,
    Limits,
    Signal,
    Spawn,
    decode,
)
from outboxd.vitals import RESTARTS, TOTALS, SlotView, State

LIMITS = Limits(
    restart_backoff_s=0.5, restart_backoff_max_s=30.0, stable_after_s=60.0, startup_s=30.0, heartbeat_s=13.0
)
CRASH = Exit(70, None)
KILL = Signal(signal.SIGKILL)
EMPTY = SlotView(0, State.EMPTY, 0.0, 0.0, 0, 0, 0, (0,) * len(RESTARTS), (0,) * len(TOTALS))


def view(state: State, heartbeat_s: float) -> SlotView:
    """The slot as a child in that state left it at its last beat."""
    return EMPTY._replace(state=state, heartbeat_s=heartbeat_s)


def child_in(state: State, now_s: float = 100.0, replace_done: bool = True) -> Child:
    """A slot in that state: forked at now_s, and for RUNNING and later up at once."""
    child = Child("lane-01", LIMITS, replace_done, random=lambda: 0.5)
    if state is State.EMPTY:
        return child
    child.spawned(4711, now_s)
    if state is not State.STARTING:
        assert child.decide(now_s, view(State.RUNNING, now_s)) is None
    if state is State.STOPPING:
        assert child.stop(now_s + 5.0) == Signal(signal.SIGTERM)
    if state is State.BACKOFF:
        child.exited(CRASH, now_s)
    if state is State.KILLING:
        hung_s = now_s + 13.0
        assert child.decide(hung_s, view(State.RUNNING, now_s)) == Signal(signal.SIGABRT, silent_s=13.0)
    assert child.state is state
    return child


def test_an_empty_slot_gets_a_child_at_once() -> None:
    """The start of everything."""
    child = child_in(State.EMPTY)
    assert child.wake_at() <= 0.0
    assert child.decide(100.0, EMPTY) == Spawn()


def test_every_crash_doubles_the_wait_of_the_slot() -> None:
    """A crash loop must not burn the machine: 0.5 s, 1 s, 2 s, up to 30 s."""
    child = child_in(State.EMPTY)
    now_s = 100.0
    waits_s = []
    for _ in range(8):
        child.spawned(4711, now_s)
        child.exited(CRASH, now_s)
        assert (child.state, child.is_alive) == (State.BACKOFF, False)
        waits_s.append(child.due_s - now_s)
        assert child.decide(child.due_s - 0.001, EMPTY) is None
        now_s = child.due_s
        assert child.decide(now_s, EMPTY) == Spawn()
    assert waits_s == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30])


@pytest.mark.parametrize(("ran_s", "wait_s"), [(59.9, 2.0), (60.0, 0.5)])
def test_a_stable_run_forgets_earlier_crashes(ran_s: float, wait_s: float) -> None:
    """One crash a day is no crash loop."""
    child = child_in(State.EMPTY)
    for _ in range(2):
        child.spawned(4711, 100.0)
        child.exited(CRASH, 100.0)
    child.spawned(4711, 200.0)
    child.exited(CRASH, 200.0 + ran_s)
    assert child.due_s - (200.0 + ran_s) == pytest.approx(wait_s)


def test_a_refused_fork_backs_off_like_a_crash() -> None:
    """A machine without memory must not be asked again in a busy loop."""
    child = child_in(State.EMPTY)
    child.spawn_failed(100.0)
    child.spawn_failed(101.0)
    assert (child.state, child.failures) == (State.BACKOFF, 2)
    assert child.wake_at() == pytest.approx(102.0)


@pytest.mark.parametrize(("ran_s", "wait_s"), [(0.0, 0.5), (0.2, 0.3), (10.0, 0.0)])
def test_a_child_that_ends_itself_is_replaced_at_once_but_not_in_a_busy_loop(ran_s: float, wait_s: float) -> None:
    """Its end was its own wish, so no failure is counted; two starts are the first backoff apart at least."""
    child = child_in(State.RUNNING)
    child.exited(Exit(0, None), 100.0 + ran_s)
    assert (child.state, child.failures) == (State.BACKOFF, 0)
    assert child.due_s - (100.0 + ran_s) == pytest.approx(wait_s)


def test_until_done_a_child_that_ends_with_0_is_not_replaced_but_a_crashed_one_is() -> None:
    """`run --until-empty` is done when every worker says so."""
    done, crashed = child_in(State.RUNNING, replace_done=False), child_in(State.RUNNING, replace_done=False)
    done.exited(Exit(0, None), 101.0)
    crashed.exited(CRASH, 101.0)
    assert (done.state, done.wake_at()) == (State.DONE, math.inf)
    assert crashed.state is State.BACKOFF


def test_a_child_that_needs_a_person_is_not_replaced() -> None:
    """G10: a restart would be refused again."""
    child = child_in(State.STARTING)
    child.exited(Exit(78, None), 101.0)
    assert child.state is State.DONE
    assert child.decide(1e9, EMPTY) is None


@pytest.mark.parametrize("how", [Exit(0, None), CRASH, Exit(None, signal.SIGKILL)])
def test_a_child_that_was_asked_to_stop_is_never_replaced(how: Exit) -> None:
    """However it ended."""
    child = child_in(State.STOPPING)
    child.exited(how, 101.0)
    assert (child.state, child.is_alive, child.wake_at()) == (State.DONE, False, math.inf)


@pytest.mark.parametrize("state", [State.EMPTY, State.BACKOFF])
def test_a_slot_without_a_child_ends_at_once_when_asked_to_stop(state: State) -> None:
    """No child is started in order to be stopped."""
    child = child_in(state)
    assert child.stop(105.0) is None
    assert child.state is State.DONE


@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING])
def test_a_stop_asks_once_and_kills_at_the_deadline(state: State) -> None:
    """G5: being woken early never shortens the drain, being asked again never lengthens it."""
    child = child_in(state)
    assert child.stop(105.0) == Signal(signal.SIGTERM)
    assert child.stop(999.0) is None
    assert child.wake_at() == 105.0
    assert [child.decide(now_s, view(State.STOPPING, 0.0)) for now_s in (101.0, 104.999)] == [None, None]
    assert child.decide(105.0, view(State.STOPPING, 0.0)) == KILL
    assert child.decide(105.1, view(State.STOPPING, 0.0)) is None


def test_hurry_asks_again_and_kills_soon() -> None:
    """G5: a second signal; the deadline moves nearer only."""
    child = child_in(State.STOPPING)
    assert child.hurry(101.0 + HURRY_S) == Signal(signal.SIGQUIT)
    assert child.hurry(104.0 + HURRY_S) == Signal(signal.SIGQUIT)
    assert child.wake_at() == 101.5
    assert child.decide(101.5, view(State.STOPPING, 101.5)) == KILL
    assert child.hurry(102.0) is None


def test_a_killed_child_that_does_not_go_is_abandoned_at_the_end_only() -> None:
    """A process in uninterruptible sleep must not hold up the end; before the end its slot stays taken."""
    child = child_in(State.KILLING)
    killed_s = 113.0 + HANG_DUMP_S
    assert child.decide(killed_s, view(State.RUNNING, 100.0)) == KILL
    assert child.decide(killed_s + UNKILLABLE_S, view(State.RUNNING, 100.0)) is None
    assert child.is_alive
    assert child.stop(1e9) is None
    assert child.decide(killed_s + 2 * UNKILLABLE_S, view(State.RUNNING, 100.0)) == Abandon()
    assert child.state is State.DONE


@pytest.mark.parametrize(("state", "limit_s"), [(State.STARTING, 30.0), (State.RUNNING, 13.0)])
def test_silence_is_measured_by_the_limit_of_the_state(state: State, limit_s: float) -> None:
    """A slow start is no hang: three limits, not one."""
    child = child_in(state)
    seen = view(State.STARTING if state is State.STARTING else State.RUNNING, 100.0)
    assert child.decide(100.0 + limit_s - 0.001, seen) is None
    assert child.decide(100.0 + limit_s, seen) == Signal(signal.SIGABRT, silent_s=limit_s)
    assert child.state is State.KILLING


def test_a_beat_moves_the_limit() -> None:
    """Also of one that is not up yet: the database may be away at the start for as long as it likes (G10)."""
    starting, running = child_in(State.STARTING), child_in(State.RUNNING)
    assert starting.decide(140.0, view(State.STARTING, 139.0)) is None
    assert running.decide(140.0, view(State.RUNNING, 139.0)) is None
    assert running.wake_at() == 139.0 + 13.0


def test_a_starting_child_is_looked_at_so_that_its_other_limit_holds_soon() -> None:
    """Nothing wakes the supervisor when a child comes up; the start-up limit must not be what it sleeps for."""
    child = child_in(State.STARTING)
    assert child.decide(100.1, view(State.STARTING, 100.0)) is None
    assert 100.1 < child.wake_at() < 101.0
    assert child.decide(100.3, view(State.RUNNING, 100.2)) is None
    assert child.wake_at() == 113.2


def test_silence_while_the_supervisor_was_frozen_does_not_count() -> None:
    """Whatever froze it froze the children too."""
    child = child_in(State.RUNNING)
    assert child.decide(500.0, view(State.RUNNING, 100.0), awake_s=499.0) is None
    assert child.wake_at() == 512.0


def test_without_a_limit_a_running_child_may_be_silent() -> None:
    """Not every role has a loop that beats."""
    child = Child("lane-01", Limits(0.5, 30.0, 60.0, startup_s=30.0))
    child.spawned(4711, 100.0)
    assert child.decide(1e9, view(State.RUNNING, 100.0)) is None
    assert child.wake_at() == math.inf


def test_a_hung_child_is_killed_once_its_threads_had_time_to_be_shown() -> None:
    """SIGABRT, then SIGKILL at an absolute deadline, however often the loop turns in between."""
    child = child_in(State.KILLING)
    assert [child.decide(113.0 + early_s, view(State.RUNNING, 100.0)) for early_s in (0.0, 0.5, 0.999)] == [None] * 3
    assert child.decide(113.0 + HANG_DUMP_S, view(State.RUNNING, 100.0)) == KILL
    child.exited(Exit(None, signal.SIGKILL), 114.5)
    assert (child.state, child.failures) == (State.BACKOFF, 1)


@pytest.mark.parametrize(
    ("status", "how", "text"),
    [
        (0, Exit(0, None), "exit status 0"),
        (70 << 8, Exit(70, None), "exit status 70"),
        (9, Exit(None, 9), "SIGKILL"),
        (6 | 0x80, Exit(None, 6), "SIGABRT"),
        (40, Exit(None, 40), "signal 40"),
    ],
)
def test_a_wait_status_is_decoded(status: int, how: Exit, text: str) -> None:
    """0x80 says that there is a core dump."""
    assert decode(status) == how
    assert str(how) == text
