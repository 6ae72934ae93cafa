"""How far an ordered lane reads, and how far it looks back for what was committed late."""

import pytest

from outboxd.relay.scans import BRIEF_S, FEW, LATE_S, Scans
from outboxd.store.api import FRESH, ZERO


def row(row_id: int, number: int = 0) -> tuple[object, ...]:
    """A fresh row as a scan gives it."""
    return (row_id, "e", "t", "room", "app", b"{}", "", None, 0, 0, "", None, "pending", FRESH, 2, number, 0, 0)


def read(scans: Scans, row_id: int, now_s: float) -> None:
    """A scan comes to a row."""
    scans.saw(scans.starts(), [row(row_id)], 10, now_s)
    scans.look_everywhere(fresh=True, due=False)


@pytest.fixture
def scans() -> Scans:
    """One partition; a row was read every second for a minute."""
    made = Scans(1.0)
    made.begin({0: ZERO})
    for second in range(60):
        read(made, 100 + second, float(second))
    return made


@pytest.mark.parametrize("took_s", [0.001, 0.1])
def test_a_busy_server_is_no_reason_to_look_less_far(scans: Scans, took_s: float) -> None:
    """A transaction may have been open for longer than LATE_S; its room's next event is written right behind it."""
    for _ in range(3):
        scans.looked_for_late(0, FEW, 60.0, took_s)
        assert scans.late_range(60.0) == (0, {0: 160})


@pytest.mark.parametrize(("found", "took_s"), [(FEW + 1, 0.001), (0, BRIEF_S * 1.1)])
def test_thousands_of_blocked_events_are_not_read_again_with_every_claim(
    scans: Scans, found: int, took_s: float
) -> None:
    """Nor what a snapshot that is open for long keeps in the index: then the last LATE_S have to do, for a while."""
    scans.looked_for_late(0, found, 60.0, took_s)
    start, ends = scans.late_range(60.0)
    assert start == 100 + 60 - LATE_S
    assert ends == {0: 160}
    assert scans.late_range(60.0 + 61)[0] == 0


def test_what_was_there_at_the_last_look_needs_no_other(scans: Scans) -> None:
    """A backlog: who committed late before it was written was found then, and nobody can come in front of it since."""
    scans.looked_for_late(500, 0, 60.0, 0.001)
    assert not scans.unchecked
    read(scans, 400, 61.0)
    assert not scans.unchecked
    read(scans, 501, 62.0)
    assert scans.unchecked


def test_a_quiet_partition_keeps_up_with_the_others() -> None:
    """Else what is new would be read from far behind for all of them, blocked events of old included, at every look."""
    scans = Scans(1.0)
    scans.begin({0: ZERO, 1: ZERO})
    scans.saw({0: ZERO}, [row(700)], 10, 1.0)
    scans.saw({1: ZERO}, [], 10, 1.0)
    assert scans.lowest(2.0).fresh_id == 700
    scans.look_everywhere(fresh=True, due=False)
    starts = scans.starts()
    assert {number: floor.fresh_id for number, floor in starts.items()} == {0: 700, 1: 700}
    assert scans.are_level(starts)


def test_partitions_that_are_as_far_are_read_together_and_those_behind_catch_up_first() -> None:
    """A backlog: windows of ids over all of them; one that is new is read up to where the others are, and joins in."""
    scans = Scans(1.0)
    scans.begin({0: ZERO, 1: ZERO})
    scans.saw_up_to(scans.starts(), [row(10), row(20, 1)], 50, 1.0)
    assert {number: floor.fresh_id for number, floor in scans.starts().items()} == {0: 50, 1: 50}
    scans.begin({2: ZERO})
    assert (list(scans.starts()), scans.next_floor(scans.starts())) == ([2], 50)
    scans.saw_up_to(scans.starts(), [], 50, 2.0)
    assert (list(scans.starts()), scans.next_floor(scans.starts())) == ([0, 1, 2], FRESH)
    assert scans.late_range(3.0) == (0, {0: 51, 1: 51, 2: 51}), "what comes in front of that is late"
    scans.saw_up_to(scans.starts(), [row(60, 2)], FRESH, 3.0)
    assert scans.starts() == {}
    scans.look_everywhere(fresh=True, due=False)
    assert {floor.fresh_id for floor in scans.starts().values()} == {60}
