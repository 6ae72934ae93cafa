"""Locks of runs over their lives, in a real Redis and with short times: renewed, lost, never another's."""

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from redis import Redis

from outboxd.errors import LockUnavailable
from outboxd.jobs.holds import Hold, Holds
from outboxd.jobs.lock import MemoryLock
from tests.services.job_locks import close_locks, redis_lock
from tests.services.redis_server import RedisServer, client
from tests.services.wait import let_pass, wait_for

HELD_FOR_S = 0.5


@pytest.fixture(autouse=True)
def closing_locks() -> Iterator[None]:
    """Whatever a test opens."""
    yield
    close_locks()


class Node:
    """The locks of one process; its thread renews as long as the node lives."""

    def __init__(self, url: str, held_for_s: float = HELD_FOR_S) -> None:
        self.holds = Holds(redis_lock(url, held_for_s))
        self.lost: list[str] = []
        self._is_dead = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def _live(self) -> None:
        while not self._is_dead.wait(0.02):
            self.holds.turn(time.monotonic())

    def take(self, job_id: int) -> Hold | None:
        return self.holds.take(job_id, self.lost.append)

    def die(self) -> None:
        """As by SIGKILL: nothing is given back."""
        self._is_dead.set()
        self._thread.join()


@pytest.fixture
def job_id() -> int:
    return secrets.randbelow(10**12) + 1


@pytest.fixture
def redis(redis_server: str) -> Iterator[Redis]:
    looking = client(redis_server)
    yield looking
    looking.close()


@pytest.fixture
def nodes(redis_server: str) -> Iterator[tuple[Node, Node]]:
    pair = Node(redis_server), Node(redis_server)
    yield pair
    for node in pair:
        node.die()


def test_a_run_longer_than_the_lock_s_time_keeps_it(nodes: tuple[Node, Node], job_id: int) -> None:
    """By renewal; and it is free at once when the run ends."""
    here, there = nodes
    hold = here.take(job_id)
    assert hold is not None
    until_s = time.monotonic() + 4 * HELD_FOR_S
    while time.monotonic() < until_s:
        assert there.take(job_id) is None
        let_pass(0.02)
    here.holds.give_back(hold)
    assert there.take(job_id) is not None
    assert here.lost == []


def test_a_node_that_was_killed_frees_it_by_its_time_alone(nodes: tuple[Node, Node], job_id: int) -> None:
    here, there = nodes
    assert here.take(job_id) is not None
    let_pass(2 * HELD_FOR_S)
    here.die()
    assert there.take(job_id) is None
    wait_for(lambda: there.take(job_id), 5, "the lock to free itself")


def test_a_lock_that_was_lost_is_never_freed_by_its_former_owner(
    nodes: tuple[Node, Node], redis: Redis, job_id: int
) -> None:
    """Its key was removed and another run began: the first one is told, and leaves the second one's lock alone."""
    here, there = nodes
    hold = here.take(job_id)
    assert hold is not None
    redis.delete(f"job:lock:{job_id}")
    assert there.take(job_id) is not None
    wait_for(lambda: here.lost, 5, "it to be told")
    assert hold.lost == "another run has it, or its key was removed"
    owner = redis.get(f"job:lock:{job_id}")
    here.holds.give_back(hold)
    here.holds.give_back(hold, after_s=0.01)
    let_pass(2 * HELD_FOR_S)
    assert redis.get(f"job:lock:{job_id}") == owner
    assert len(here.lost) == 1


def test_a_process_that_stood_still_for_too_long_has_lost_it(redis_server: str, redis: Redis, job_id: int) -> None:
    """It looks at the server before it believes its own clock."""
    frozen, other = Holds(redis_lock(redis_server, 0.2)), Node(redis_server)
    lost: list[str] = []
    hold = frozen.take(job_id, lost.append)
    assert hold is not None
    wait_for(lambda: other.take(job_id), 5, "the lock to free itself")
    frozen.turn(time.monotonic())
    assert len(lost) == 1
    owner = redis.get(f"job:lock:{job_id}")
    frozen.give_back(hold)
    assert redis.get(f"job:lock:{job_id}") == owner
    other.die()


def test_a_server_that_is_away_for_a_moment_costs_no_lock(own_redis: RedisServer, job_id: int) -> None:
    """Renewals are tried again until the time is over."""
    node = Node(own_redis.url, held_for_s=6.0)
    hold = node.take(job_id)
    assert hold is not None
    own_redis.stop()
    let_pass(1.5)
    own_redis.start()
    let_pass(6.0)
    assert (hold.lost, node.lost) == ("", [])
    with closing(client(own_redis.url)) as looking:
        assert looking.exists(f"job:lock:{job_id}")
    node.die()


def test_a_server_that_stays_away_costs_it(own_redis: RedisServer, job_id: int) -> None:
    """The run is told when its time is over, and not before."""
    node = Node(own_redis.url, held_for_s=1.5)
    hold = node.take(job_id)
    assert hold is not None
    own_redis.stop()
    stopped_s = time.monotonic()
    wait_for(lambda: node.lost, 20, "it to be told")
    assert time.monotonic() - stopped_s >= 1.0
    assert "could not be renewed in time" in hold.lost
    node.die()


def test_what_could_not_be_given_back_is_given_back_later(own_redis: RedisServer, job_id: int) -> None:
    """Also a lock whose taking got no answer: it may have been taken."""
    node, other = Node(own_redis.url, held_for_s=60.0), Node(own_redis.url)
    hold = node.take(job_id)
    assert hold is not None
    own_redis.stop()
    node.holds.give_back(hold)
    with pytest.raises(LockUnavailable):
        node.take(job_id + 1)
    own_redis.start()

    def is_free() -> bool:
        try:
            return other.take(job_id) is not None
        except LockUnavailable:
            return False

    wait_for(is_free, 10, "the lock to be free")
    node.die()
    other.die()


def test_in_memory_a_lock_is_held_until_it_is_given_back(job_id: int) -> None:
    """Its owner's end is the process's, so no time is over: not even for a process that stood still."""
    holds = Holds(MemoryLock())
    hold = holds.take(job_id, lambda why: pytest.fail(why))
    assert hold is not None
    holds.turn(time.monotonic() + 1e6)
    assert holds.take(job_id, lambda why: pytest.fail(why)) is None
    holds.give_back(hold)
    assert holds.take(job_id, lambda why: pytest.fail(why)) is not None

