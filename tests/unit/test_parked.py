"""Events that rest while their publisher is failing."""

from outboxd.relay.parked import CHUNK, REMEMBERED, Parked


def drained(parked: Parked) -> list[tuple[int, int]]:
    """All that is to be pulled forward, chunk by chunk."""
    found: list[tuple[int, int]] = []
    while parked.waking:
        chunk = parked.chunk()
        assert 0 < len(chunk) <= CHUNK
        found += chunk
        parked.woken(len(chunk))
    return found


def test_what_rests_stays_until_the_publisher_works_again() -> None:
    """Then all of it, in the order in which it was parked, and only once."""
    parked = Parked()
    for row_id in range(2500):
        parked.note(row_id, row_id + 7)
    assert not parked.waking
    assert parked.chunk() == []
    parked.wake_all()
    assert drained(parked) == [(row_id, row_id + 7) for row_id in range(2500)]
    parked.wake_all()
    assert not parked.waking


def test_a_chunk_stays_until_it_was_written() -> None:
    """The database may go away in the middle: the same rows are pulled forward on the next connection."""
    parked = Parked()
    for row_id in range(1500):
        parked.note(row_id, 1)
    parked.wake_all()
    first = parked.chunk()
    assert parked.chunk() == first
    parked.woken(len(first))
    assert parked.chunk() == [(row_id, 1) for row_id in range(CHUNK, 1500)]


def test_what_is_parked_while_others_are_woken_waits_for_its_own_turn() -> None:
    """A second outage begins before the first one's backlog is through."""
    parked = Parked()
    parked.note(1, 1)
    parked.wake_all()
    parked.note(2, 2)
    assert drained(parked) == [(1, 1)]
    parked.wake_all()
    assert drained(parked) == [(2, 2)]


def test_the_memory_of_an_outage_is_bounded() -> None:
    """G9: the oldest are forgotten; they come due by themselves within max_backoff."""
    parked = Parked()
    for row_id in range(REMEMBERED + 10):
        parked.note(row_id, 1)
    assert len(parked._resting) == REMEMBERED
    parked.wake_all()
    found = drained(parked)
    assert len(found) == REMEMBERED
    assert found[0] == (10, 1)


def test_outages_one_after_another_do_not_add_up() -> None:
    """G9: a database that is away keeps rows from being woken while breakers open and close."""
    parked = Parked()
    for outage in range(5):
        for row_id in range(REMEMBERED // 2):
            parked.note(row_id + outage * REMEMBERED, 1)
        parked.wake_all()
    assert len(drained(parked)) <= 2 * REMEMBERED


def test_a_row_that_is_parked_again_is_known_by_its_last_claim() -> None:
    """The older token would find nothing, and each outage would fill the memory with them."""
    parked = Parked()
    for token in range(3):
        for row_id in (1, 2):
            parked.note(row_id, token)
    parked.wake_all()
    assert drained(parked) == [(1, 2), (2, 2)]


def test_one_that_is_woken_before_is_who_has_rested_longest() -> None:
    """G6: each probe another event, round and round."""
    parked = Parked()
    assert not parked.resting
    for row_id in (1, 2, 3):
        parked.note(row_id, 7)
    assert parked.take_one() == (1, 7)
    parked.note(1, 8)
    assert [parked.take_one() for _ in range(3)] == [(2, 7), (3, 7), (1, 8)]
    assert not parked.resting
