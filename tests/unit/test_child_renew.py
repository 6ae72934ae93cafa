"""A slot whose child is renewed, as a reload does: every decision, given the time."""

import signal

import pytest

from outboxd.supervisor.child import HANG_DUMP_S, Exit, Limits, Signal, Spawn
from outboxd.vitals import State
from tests.unit.test_child import CRASH, EMPTY, KILL, child_in, view

OTHER = Limits(restart_backoff_s=9.0, restart_backoff_max_s=9.0, stable_after_s=9.0, startup_s=9.0, heartbeat_s=9.0)


@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING])
def test_a_renewed_child_drains_and_the_next_one_starts_at_once(state: State) -> None:
    """G5: the same drain as at the end, killed at its deadline; then a new one under the new limits, no backoff."""
    child = child_in(state)
    assert child.renew(OTHER, 105.0) == Signal(signal.SIGTERM)
    assert child.decide(104.9, view(State.STOPPING, 104.0)) is None
    assert child.decide(105.0, view(State.STOPPING, 104.0)) == KILL
    child.exited(Exit(None, signal.SIGKILL), 105.1)
    assert (child.state, child.failures) == (State.EMPTY, 0)
    assert child.decide(105.1, EMPTY) == Spawn()
    child.spawned(4712, 105.2)
    assert not child.is_renewing
    child.exited(CRASH, 105.3)
    assert child.due_s - 105.3 == 9.0


@pytest.mark.parametrize("how", [Exit(78, None), CRASH, Exit(0, None)])
def test_however_the_old_child_ends_the_next_one_starts(how: Exit) -> None:
    """Even one that needed a person: the new settings may be what that person has mended."""
    child = child_in(State.RUNNING)
    child.renew(OTHER, 105.0)
    child.exited(how, 101.0)
    assert child.decide(101.0, EMPTY) == Spawn()


def test_a_slot_that_backs_off_or_has_given_up_is_renewed_at_once() -> None:
    """Nothing drains where nothing runs."""
    waiting, refused = child_in(State.BACKOFF), child_in(State.RUNNING)
    refused.exited(Exit(78, None), 101.0)
    for child in (waiting, refused):
        assert child.renew(OTHER, 105.0) is None
        assert child.decide(101.0, EMPTY) == Spawn()


def test_a_hung_child_that_is_renewed_is_not_asked_twice() -> None:
    """It is being killed; the new one follows at once all the same."""
    child = child_in(State.KILLING)
    assert child.renew(OTHER, 200.0) is None
    assert child.decide(113.0 + HANG_DUMP_S, view(State.RUNNING, 100.0)) == KILL
    child.exited(Exit(None, signal.SIGKILL), 114.5)
    assert child.decide(114.5, EMPTY) == Spawn()


@pytest.mark.parametrize(("deadline_s", "kept_s"), [(103.0, 103.0), (999.0, 105.0)])
def test_a_stop_during_a_renewal_ends_it_and_never_lengthens_its_drain(deadline_s: float, kept_s: float) -> None:
    """G5: SIGTERM during a reload; the child was asked before, and its time runs since then."""
    child = child_in(State.RUNNING)
    child.renew(OTHER, 105.0)
    assert child.stop(deadline_s) is None
    assert child.wake_at() == kept_s
    child.exited(Exit(0, None), 101.0)
    assert child.state is State.DONE


def test_a_fork_that_is_refused_during_a_renewal_backs_off() -> None:
    """It must be seen to have failed, and be tried again."""
    child = child_in(State.RUNNING)
    child.renew(OTHER, 105.0)
    child.exited(Exit(0, None), 101.0)
    child.spawn_failed(101.0)
    assert (child.state, child.is_renewing, child.failures) == (State.BACKOFF, False, 1)
