"""The scoreboard, over real forks."""

import os
import time

import pytest

from outboxd import vitals
from outboxd.supervisor.scoreboard import Scoreboard
from outboxd.vitals import TOTALS, State


def board_of(slots: int) -> Scoreboard:
    """A scoreboard with that many slots taken."""
    board = Scoreboard(slots)
    for number in range(1, slots + 1):
        board.take(f"lane-{number:02d}")
    return board


def in_a_child(board: Scoreboard, index: int, deliveries: int) -> None:
    """Fork a child that starts in the slot, counts and ends; wait for it."""
    board.slot(index).begin(time.monotonic())
    pid = os.fork()
    if pid == 0:
        try:
            slot = board.slot(index)
            slot.set_pid(os.getpid())
            slot.set_state(State.RUNNING)
            slot.set_in_flight(deliveries)
            slot.beat(time.monotonic())
            for _ in range(deliveries):
                slot.add(vitals.DELIVERED)
            slot.add(vitals.LEASE_LOST, 2)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def test_what_a_child_writes_is_seen_by_its_parent() -> None:
    """The parent decides from it what hangs, and shows it."""
    board = board_of(3)
    before_s = time.monotonic()
    in_a_child(board, 1, 7)
    view = board.read(1)
    assert (view.state, view.in_flight, view.starts) == (State.RUNNING, 7, 1)
    assert view.pid > 0
    assert before_s <= view.started_s <= view.heartbeat_s <= time.monotonic()
    assert (view.total("delivered"), view.total("lease_lost"), view.total("claimed")) == (7, 2, 0)


def test_slots_do_not_touch_each_other() -> None:
    """Each child has its own, from the first to the last."""
    board = board_of(3)
    untouched = board.read(0)
    in_a_child(board, 1, 7)
    assert board.read(0) == untouched
    assert board.read(2) == untouched
    in_a_child(board, 2, 3)
    assert [board.read(index).total("delivered") for index in range(len(board))] == [0, 7, 3]


def test_totals_go_on_when_a_child_is_replaced() -> None:
    """A counter that fell back with every crash would lie to whoever watches its rate."""
    board = board_of(1)
    in_a_child(board, 0, 7)
    board.slot(0).end(State.BACKOFF)
    view = board.read(0)
    assert (view.pid, view.state, view.in_flight, view.total("delivered")) == (0, State.BACKOFF, 0, 7)
    in_a_child(board, 0, 5)
    assert (board.read(0).starts, board.read(0).total("delivered")) == (2, 12)


def test_every_total_has_a_place_of_its_own() -> None:
    """Two totals in one place would add up; a total beyond the slot would be the neighbour's."""
    board = board_of(2)
    for total in range(len(TOTALS)):
        board.slot(0).add(total, 2**62 + total)
    assert board.read(0).totals == tuple(2**62 + total for total in range(len(TOTALS)))
    assert set(board.read(1).totals) == {0}


def test_a_name_that_comes_back_finds_its_slot_and_its_totals() -> None:
    """A lane that is switched off and on again goes on counting where it was."""
    board = board_of(2)
    board.slot(1).add(vitals.DELIVERED, 7)
    assert board.take("lane-02").index == 1
    assert board.read(1).total("delivered") == 7
    assert len(board) == 2


def test_a_child_sees_the_slots_that_are_taken_after_its_fork() -> None:
    """Whoever shows all workers was forked before some of them."""
    board = Scoreboard(3)
    board.take("first-01")
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.read(told, 1)
            is_seen = [board.name(index) for index in range(len(board))] == ["first-01", "a" * 60 + "-512"]
            os._exit(0 if is_seen and board.read(1).total("delivered") == 7 else 1)
        finally:
            os._exit(2)
    board.take("a" * 60 + "-512").add(vitals.DELIVERED, 7)
    os.write(tell, b"x")
    assert os.waitpid(pid, 0)[1] == 0
    for end in (told, tell):
        os.close(end)


def test_a_scoreboard_that_is_full_says_so() -> None:
    """A slot beyond the map would be another's memory. A name that has one still finds it."""
    board = board_of(2)
    with pytest.raises(ValueError, match="all 2 slots are taken"):
        board.take("lane-03")
    assert board.take("lane-01").index == 0


def test_a_beat_costs_next_to_nothing() -> None:
    """It is made in every turn of a loop that relays tens of thousands of events a second."""
    slot = Scoreboard(1).take("lane-01")
    rounds_s = []
    for _ in range(20):
        since_s = time.perf_counter()
        for _ in range(1000):
            slot.beat(since_s)
        rounds_s.append((time.perf_counter() - since_s) / 1000)
    assert min(rounds_s) < 2e-6
