"""What stands open in the rooms of an ordered lane: what may be claimed, what keeps it, what is remembered of it."""

import pytest

from outboxd.relay import open_rooms as module
from outboxd.relay import waits
from outboxd.relay.room import FOREVER_S
from outboxd.relay.rooms import Rooms
from outboxd.store.api import RELEASED, RETRYABLE
from tests.unit.roomed import LEASE_MS, NUMBERS, claim, end, look, owe, picked, rooms_of, row, settle


def test_what_waits_for_its_next_try_keeps_those_behind_it_and_nobody_else() -> None:
    """G7."""
    rooms = rooms_of(row(1), row(2), row(3, "b"))
    assert picked(rooms) == [1, 2, 3]
    claim(rooms, 1)
    end(rooms, 1, RETRYABLE, 5000)
    assert picked(rooms) == [3]
    assert rooms.waits.next_s == 5.0
    rooms.wake(5.0)
    assert picked(rooms) == [3, 1, 2]


def test_looks_at_what_waits_leave_nothing_behind() -> None:
    """G9: a blocked room is looked at every few seconds, for as long as it is blocked."""
    rows = [row(number, f"room-{number}", "retryable", wait_ms=3_600_000) for number in range(1, 101)]
    rooms = rooms_of(*rows)
    for _ in range(100):
        look(rooms, rooms.blocking(), *rows)
    assert len(rooms.waits._timers) <= 2 * len(rows) + waits.SPARE
    assert rooms.waits.next_s == 3600.0
    rooms.wake(3600.0)
    assert len(picked(rooms)) == 100
    assert rooms.waits.next_s == FOREVER_S


def test_a_look_before_an_outcome_is_written_does_not_take_its_lease_for_somebody_elses() -> None:
    """The row still says `delivering`, under this worker's own lease: the room would wait for all of it."""
    rooms = rooms_of(row(1), row(2))
    claim(rooms, 1)
    owe(rooms, 1, RETRYABLE, 1000)
    look(rooms, rooms.blocking(), row(1, status="delivering", leased_ms=LEASE_MS))
    settle(rooms, 1)
    rooms.wake(1.0)
    assert picked(rooms) == [1, 2]


def test_an_outcome_that_waits_to_be_written_keeps_its_room_when_the_partition_comes_back() -> None:
    """Lost and owned again meanwhile, its row is read as what it is: under a claim."""
    rooms = rooms_of(row(1), row(2))
    claim(rooms, 1)
    rooms.owned = frozenset()
    rooms.forget(NUMBERS)
    owe(rooms, 1, RETRYABLE, 1000)
    rooms.owned = NUMBERS
    rooms.note([row(1, status="delivering", leased_ms=LEASE_MS)], 0.0)
    rooms.note([row(2)], 0.0)
    settle(rooms, 1)
    assert picked(rooms) == []
    look(rooms, rooms.blocking(), row(1, status="retryable", wait_ms=-1))
    assert picked(rooms) == [1, 2]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two events are remembered beside the first one of each room."""
    monkeypatch.setattr(module, "REMEMBERED", 2)


@pytest.mark.usefixtures("few")
def test_what_is_not_remembered_is_read_again() -> None:
    """G1, G9: and until then nothing goes past it."""
    rooms = rooms_of(*(row(number) for number in range(1, 6)), row(6, "b"))
    assert not rooms.is_whole
    assert picked(rooms) == [1, 2, 6]
    claim(rooms, 1, 2)
    end(rooms, 1)
    end(rooms, 2)
    lacking = rooms.lacking()
    assert lacking is not None
    assert lacking.more_from == 3
    rooms.refill(lacking, [row(3), row(4), row(5)], 500, 0.0)
    assert picked(rooms) == [6, 3, 4] or picked(rooms) == [6, 3]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("how", ["retried", "released"])
def test_what_was_held_is_remembered_also_behind_what_is_not(how: str) -> None:
    """It is not read again, being no fresh row any more: its followers would overtake it."""
    rooms = rooms_of(row(5))
    claim(rooms, 5)
    rooms.note([row(1)], 0.0)  # these commit late
    rooms.note([row(2)], 0.0)
    rooms.note([row(3)], 0.0)
    if how == "retried":
        end(rooms, 5, RETRYABLE, 1000)
        rooms.wake(1.0)
    else:
        end(rooms, 5, RELEASED)
    seen: list[int] = []
    for _ in range(10):
        lacking = rooms.lacking()
        if lacking is not None and lacking.more_from is not None:
            fresh = [number for number in (1, 2, 3, 6, 7) if number not in seen and number >= lacking.more_from]
            rooms.refill(lacking, [row(number) for number in fresh], 500, 0.0)
        for number in picked(rooms, limit=1):
            seen.append(number)
            claim(rooms, number)
            end(rooms, number)
    assert seen == [1, 2, 3, 5, 6, 7]


@pytest.mark.usefixtures("few")
def test_what_commits_late_in_front_of_all_is_not_remembered_without_end_either() -> None:
    """G9: a long transaction may bring any number of events with low ids."""
    rooms = rooms_of(row(1000))
    for number in range(1, 500):
        rooms.note([row(number)], 0.0)
    assert rooms.ready_count <= 4
    assert picked(rooms)[0] == 1


@pytest.mark.usefixtures("few")
def test_a_suspect_waits_for_what_must_be_read_again_in_front_of_it() -> None:
    """It would overtake it."""
    rooms = rooms_of(row(1), row(2), row(3), row(9, status="delivering"))
    claim(rooms, 1, 2)
    end(rooms, 1)
    end(rooms, 2)
    assert rooms.waits.suspect() is None
    lacking = rooms.lacking()
    assert lacking is not None
    rooms.refill(lacking, [], 500, 0.0)
    assert rooms.waits.suspect() == 9


@pytest.mark.usefixtures("few")
def test_a_long_room_is_read_piece_by_piece() -> None:
    """G1: each piece begins right behind the last one."""
    rooms = rooms_of(*(row(number, "b") for number in (1, 2, 3)), *(row(number) for number in range(4, 8)))
    claim(rooms, 4)
    end(rooms, 4)
    lacking = rooms.lacking()
    assert lacking is not None
    rooms.refill(lacking, [row(5)], 1, 0.0)
    assert lacking.more_from == 6


@pytest.mark.usefixtures("few")
def test_nothing_is_left_of_a_partition_that_is_somebody_elses() -> None:
    """G9: nor does a room of it count among those of which not all is remembered."""
    rooms = rooms_of(*(row(number) for number in range(1, 6)), row(9, "b", "retryable", wait_ms=5000))
    assert not rooms.is_whole
    rooms.owned = frozenset()
    rooms.forget(NUMBERS)
    check_nothing_left(rooms)


def check_nothing_left(rooms: Rooms) -> None:
    """Of anything."""
    waits = rooms.waits
    assert [*rooms._rooms, *rooms._known, *rooms._turn, *rooms._owed, *rooms._cut] == []
    assert [*waits._suspects, *waits._until_s, *waits.unsure] == []
    assert (rooms.ready_count, rooms.light_count) == (0, 0)


def test_nothing_is_left_of_what_is_delivered() -> None:
    """G9."""
    rooms = rooms_of(row(1), row(2), row(3, ""), row(4, status="retryable"), row(5, "b", "delivering"))
    claim(rooms, 1, 2, 4)
    claim(rooms, 3, room="")
    claim(rooms, 5, room="b")
    end(rooms, 3, RETRYABLE, 1000)
    rooms.hurried([3])
    claim(rooms, 3, room="")
    for number in (3, 1, 2, 4, 5):
        end(rooms, number)
    check_nothing_left(rooms)


def test_what_is_claimed_next_need_not_wait_for_what_is_in_hand() -> None:
    """As many rooms as can be share a claim; what is held of one bounds it by itself, and is topped up by many."""
    rooms = rooms_of(*(row(number, room="ab"[number % 2]) for number in range(1, 17)))

    def claimed() -> list[int]:
        chosen = [one[0] for one in rooms.pick(4, 1 << 20, 6, False)]
        for row_id in chosen:
            claim(rooms, row_id, room="ab"[row_id % 2])
        return sorted(chosen)

    assert claimed() == [1, 2, 3, 4]
    assert claimed() == [5, 6, 7, 8]
    assert claimed() == [], "four of six are held"
    for row_id in (1, 2):
        end(rooms, row_id)
    assert claimed() == [9, 10, 11, 12]


def test_an_event_is_held_that_was_claimed_before_those_in_front_of_it() -> None:
    """An oversize one is taken out of its claim first."""
    rooms = rooms_of(row(1), row(2), row(3), row(4, "b"))
    claim(rooms, 2)
    assert picked(rooms) == [4, 1, 3]
    claim(rooms, 1, 3)
    assert picked(rooms) == [4]


def test_a_row_whose_settle_was_lost_is_looked_at() -> None:
    """Somebody else has claimed it, or deleted it."""
    rooms = rooms_of(row(1), row(2), row(3))
    claim(rooms, 1, 2)
    owe(rooms, 1)
    owe(rooms, 2)
    settle(rooms, 1, 2, lost=(2,))
    assert rooms.waits.unsure == {2}
    look(rooms, [2], row(2, status="delivering", leased_ms=LEASE_MS))
    assert picked(rooms) == []


def test_what_is_delivered_is_known_until_that_is_written() -> None:
    """Till then its row says `delivering`, as if it were somebody else's, and its partition is not to be given away."""
    rooms = rooms_of(row(1), row(2))
    claim(rooms, 1)
    owe(rooms, 1)
    assert rooms.note([row(1, status="delivering", leased_ms=LEASE_MS)], 0.0) == 0
    assert (rooms.unknown([1, 2, 3]), rooms.known_count, rooms.number_of(1)) == ([3], 2, 1)
    assert picked(rooms) == [2]
    settle(rooms, 1)
    assert (rooms.unknown([1]), rooms.known_count, rooms.number_of(1)) == ([1], 1, None)


@pytest.mark.parametrize(("status", "ready"), [(RELEASED, [1]), (RETRYABLE, [])])
def test_a_claim_that_is_found_again_is_held_whatever_has_happened_to_its_room(status: str, ready: list[int]) -> None:
    """Its COMMIT had no answer, and meanwhile an event in front of it came back."""
    rooms = rooms_of(*(row(number, payload_bytes=10) for number in (1, 2, 3)))
    claim(rooms, 1)
    assert picked(rooms) == [2, 3]
    owe(rooms, 1, status, 1000)
    claim(rooms, 2, 3)
    assert (rooms.ready_count, rooms.light_count) == (len(ready), len(ready))
    assert picked(rooms) == ready
    for number in (2, 3):
        end(rooms, number)
    settle(rooms, 1)
    rooms.wake(1.0)
    assert picked(rooms) == [1]


def test_with_a_publisher_that_takes_several_a_room_gets_some_and_then_it_is_the_next_ones_turn() -> None:
    """A hot room keeps nobody waiting for long."""
    rooms = rooms_of(*(row(number) for number in range(1, 21)), row(21, "b"), row(22, "c"))
    chosen = [one[0] for one in rooms.pick(8, 1 << 20, 100, True, 3)]
    assert chosen == [1, 2, 3, 21, 22]
    claim(rooms, *chosen)
    assert [one[0] for one in rooms.pick(8, 1 << 20, 100, True, 3)] == list(range(4, 12))
