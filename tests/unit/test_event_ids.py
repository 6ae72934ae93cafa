"""Event ids of producers: RFC 9562's version 7, ascending within a process, different in its forks."""

import os
import signal
import threading
import time
import uuid

import pytest

from outboxd.producer import ids, new_event_id
from outboxd.table import LIMITS


def test_an_id_is_a_uuid_of_version_7_that_says_when_it_was_made() -> None:
    before_ms = time.time_ns() // 1_000_000
    text = new_event_id()
    after_ms = time.time_ns() // 1_000_000
    found = uuid.UUID(text)
    assert (str(found), found.version, found.variant) == (text, 7, uuid.RFC_4122)
    assert before_ms <= found.int >> 80 <= after_ms
    assert len(text) <= LIMITS["event_id"]


def test_ids_ascend_over_all_threads() -> None:
    """Each that is made after another one is greater, whoever makes them; so no two are alike."""
    made: list[list[str]] = [[] for _ in range(8)]
    newest = [""]
    lock = threading.Lock()
    behind: list[str] = []

    def work(mine: list[str]) -> None:
        for _ in range(2000):
            with lock:
                floor = newest[0]
            mine.append(new_event_id())
            if mine[-1] <= floor:
                behind.append(mine[-1])
            with lock:
                newest[0] = max(newest[0], mine[-1])

    threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert behind == []
    assert all(mine == sorted(mine) for mine in made)
    assert len({one for mine in made for one in mine}) == 16_000


def test_ids_ascend_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    sequence = ids._Sequence()
    times_ns = iter([5_000_000_000, 5_000_000_000, 4_000_000_000, 5_001_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(times_ns))
    made = [sequence.take() for _ in range(4)]
    assert made == sorted(made)
    assert [one >> 80 for one in made] == [5000, 5000, 5000, 5001]


def test_ids_ascend_when_the_counter_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It borrows a millisecond of the future (RFC 9562, section 6.2)."""
    sequence = ids._Sequence()
    monkeypatch.setattr(time, "time_ns", lambda: 5_000_000_000)
    first = sequence.take()
    sequence._counter = ids._COUNTER_END - 1
    second, third = sequence.take(), sequence.take()
    assert first < second < third
    assert [one >> 80 for one in (first, second, third)] == [5000, 5001, 5001]


def test_forks_make_ids_of_their_own() -> None:
    """Of the same millisecond and the same counter; also while a thread of the parent holds the lock."""
    reader, writer = os.pipe()
    with ids._sequence._lock:
        pids = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)  # of a lock that nobody releases
                made = [new_event_id() for _ in range(500)]
                os.write(writer, "".join(f"{one}\n" for one in made).encode() if made == sorted(made) else b"")
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            assert status == 0
            pids.append(os.read(reader, 500 * 37))
    os.close(reader)
    os.close(writer)
    mine = [new_event_id() for _ in range(500)]
    found = [line for text in pids for line in text.decode().split()]
    assert len(found) == 2000
    assert len({*found, *mine}) == 2500


def test_a_forks_counter_begins_anew() -> None:
    """Else only 32 random bits would keep the ids of two forks apart that go on from the same state."""
    before = ids._sequence
    ids._begin_anew()
    assert ids._sequence is not before
    assert ids._sequence._ms == 0
