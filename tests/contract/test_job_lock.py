"""The lock of a job, whatever keeps it: one owner at a time, and only its owner renews or frees it."""

import re
import secrets
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from redis import Redis

from outboxd.config.schema import Database
from outboxd.errors import LockUnavailable
from outboxd.jobs.lock import OTHER_DATABASE, JobLock, MemoryLock, RedisLock, mark_of, open_lock
from tests.services.daemon import ROOT
from tests.services.job_locks import close_locks, redis_lock
from tests.services.redis_server import RedisServer, client
from tests.services.wait import let_pass, wait_for

HELD_FOR_S = 0.4

Open = Callable[[], JobLock]

@pytest.fixture(autouse=True)
def closing_locks() -> Iterator[None]:
    """Whatever a test opens."""
    yield
    close_locks()



@pytest.fixture(params=["memory", "redis"])
def open_it(request: pytest.FixtureRequest) -> Open:
    """The lock as runs of one node have it, or another node's."""
    if request.param == "memory":
        lock = MemoryLock()
        return lambda: lock
    url: str = request.getfixturevalue("redis_server")
    return lambda: redis_lock(url, held_for_s=HELD_FOR_S * 25)


@pytest.fixture
def job_id() -> int:
    """A job of this test alone."""
    return secrets.randbelow(10**12) + 1


def test_one_run_at_a_time_has_it(open_it: Open, job_id: int) -> None:
    here, there = open_it(), open_it()
    assert here.take(job_id, "a")
    assert not here.take(job_id, "b")
    assert not there.take(job_id, "c")
    assert here.free(job_id, "a")
    assert there.take(job_id, "c")


def test_each_job_has_one_of_its_own(open_it: Open, job_id: int) -> None:
    lock = open_it()
    assert lock.take(job_id, "a")
    assert lock.take(job_id + 1, "b")


def test_only_its_owner_frees_it(open_it: Open, job_id: int) -> None:
    """What another one frees would let a second run begin."""
    here, there = open_it(), open_it()
    assert here.take(job_id, "a")
    assert not there.free(job_id, "b")
    assert not there.renew(job_id, "b")
    assert not there.take(job_id, "b")
    assert here.renew(job_id, "a")


def test_what_was_freed_is_neither_renewed_nor_freed_again(open_it: Open, job_id: int) -> None:
    """The next owner has it."""
    lock = open_it()
    assert lock.take(job_id, "a")
    assert lock.free(job_id, "a")
    assert lock.take(job_id, "b")
    assert not lock.free(job_id, "a")
    assert not lock.renew(job_id, "a")
    assert lock.renew(job_id, "b")


def test_taking_it_again_with_the_same_token_changes_nothing(open_it: Open, job_id: int) -> None:
    """An answer that was lost on the way: the question is asked again."""
    lock = open_it()
    assert lock.take(job_id, "a")
    assert lock.take(job_id, "a")
    assert lock.free(job_id, "a")
    assert lock.take(job_id, "b")


def test_one_that_is_left_is_not_free_at_once(open_it: Open, job_id: int) -> None:
    """Its run goes on until its process has ended."""
    lock = open_it()
    assert lock.take(job_id, "a")
    assert lock.free(job_id, "a", after_s=5.0)
    assert not lock.take(job_id, "b")


# What Redis alone does: the owner may be gone.


@pytest.fixture
def redis(redis_server: str) -> Iterator[Redis]:
    """A look at the keys."""
    looking = client(redis_server)
    yield looking
    looking.close()


def short(url: str) -> RedisLock:
    """Held for HELD_FOR_S."""
    return redis_lock(url, held_for_s=HELD_FOR_S)


def test_one_that_is_not_renewed_frees_itself(redis_server: str, job_id: int) -> None:
    """A node that is killed frees it by this alone."""
    here, there = short(redis_server), short(redis_server)
    since_s = time.monotonic()
    assert here.take(job_id, "a")
    wait_for(lambda: there.take(job_id, "b"), 5, "the lock to free itself")
    assert time.monotonic() - since_s >= HELD_FOR_S


def test_one_that_is_renewed_is_held_for_longer_than_its_time(redis_server: str, job_id: int) -> None:
    here, there = short(redis_server), short(redis_server)
    assert here.take(job_id, "a")
    until_s = time.monotonic() + 3 * HELD_FOR_S
    while time.monotonic() < until_s:
        assert here.renew(job_id, "a")
        assert not there.take(job_id, "b")
        let_pass(HELD_FOR_S / 10)


def test_one_that_was_lost_is_its_next_owners(redis_server: str, redis: Redis, job_id: int) -> None:
    """The former owner neither frees nor renews it, nor changes how long the next one has it."""
    here, there = short(redis_server), redis_lock(redis_server, held_for_s=60.0)
    assert here.take(job_id, "a")
    wait_for(lambda: there.take(job_id, "b"), 5, "the lock to free itself")
    assert not here.renew(job_id, "a")
    assert not here.free(job_id, "a")
    assert not here.free(job_id, "a", after_s=0.1)
    assert redis.get(f"job:lock:{job_id}") == b"b"
    left_ms = redis.pttl(f"job:lock:{job_id}")
    assert isinstance(left_ms, int)
    assert left_ms > 50_000


def test_one_that_is_left_frees_itself_soon(redis_server: str, job_id: int) -> None:
    lock = redis_lock(redis_server, held_for_s=60.0)
    assert lock.take(job_id, "a")
    assert lock.free(job_id, "a", after_s=0.2)
    wait_for(lambda: lock.take(job_id, "b"), 5, "the lock to free itself")


def test_a_server_that_was_restarted_meanwhile_costs_no_run(own_redis: RedisServer, job_id: int) -> None:
    """The connection that it has closed is found out by the next question only, which is asked again."""
    lock = redis_lock(own_redis.url)
    assert lock.take(job_id, "a")
    own_redis.stop()
    own_redis.start()
    assert lock.take(job_id + 1, "b")
    assert not lock.take(job_id, "b"), "it is kept on the disk"


def test_a_server_that_is_away_is_told_of(own_redis: RedisServer, job_id: int) -> None:
    """And not asked for a while: runs would wait for its time-outs, one after the other."""
    lock = redis_lock(own_redis.url)
    own_redis.stop()
    for _ in range(2):
        with pytest.raises(LockUnavailable, match="refused"):
            lock.take(job_id, "a")
    own_redis.start()

    def is_taken() -> bool:
        try:
            return lock.take(job_id, "a")
        except LockUnavailable:
            return False

    wait_for(is_taken, 5, "the lock to be had again")


def test_the_rights_that_the_documents_name_are_enough(own_redis: RedisServer, job_id: int) -> None:
    """Where Redis has access control; without them the lock cannot be had, which is told."""
    (rights,) = re.findall(r"ACL SETUSER outboxd ('~job:lock:.*)", (ROOT / "docs" / "jobs.md").read_text("utf-8"))
    with closing(client(own_redis.url)) as admin:
        admin.execute_command("ACL", "SETUSER", "limited", "on", ">limited-word", "resetchannels", "-@all", "+hello")
        url = own_redis.url.replace("redis://", "redis://limited:limited-word@")
        with pytest.raises(LockUnavailable, match=r"Redis refused it: .*needs ~job:lock:\*"):
            redis_lock(url).take(job_id, "a")
        admin.execute_command("ACL", "SETUSER", "limited", *shlex.split(rights))
    lock = redis_lock(url)
    assert lock.take(job_id, "a")
    assert lock.renew(job_id, "a")
    assert not lock.take(job_id, "b")
    assert lock.free(job_id, "a", after_s=5.0)
    assert lock.free(job_id, "a")


def test_where_it_is_kept_is_chosen_by_the_configuration(redis_server: str) -> None:
    assert isinstance(open_lock(None, Database()), MemoryLock)
    assert isinstance(open_lock(redis_server, Database()), RedisLock)


# Who has it, if it is no run of this database.


def test_one_that_a_run_of_another_database_has_is_told_apart(redis_server: str, job_id: int) -> None:
    """The key says nothing of the database, its value does. What another node of the same one has is no stranger's."""
    here, beside, there = (redis_lock(redis_server, mark=mark) for mark in ("shop:", "shop:", "staging:"))
    assert here.stranger(job_id) == "", "nobody has it"
    assert here.take(job_id, "shop:a")
    assert not there.take(job_id, "staging:b")
    assert there.stranger(job_id) == OTHER_DATABASE
    assert beside.stranger(job_id) == ""


def test_a_key_that_no_run_has_set_is_told_of(redis_server: str, redis: Redis, job_id: int) -> None:
    """It would keep the job from running for ever."""
    lock = redis_lock(redis_server, mark="shop:")
    redis.set(f"job:lock:{job_id}", "by hand")
    assert not lock.take(job_id, "shop:a")
    assert f"DEL job:lock:{job_id}" in lock.stranger(job_id)
    redis.delete(f"job:lock:{job_id}")
    redis.rpush(f"job:lock:{job_id}", "a list")
    assert not lock.take(job_id, "shop:a")
    assert "is no lock" in lock.stranger(job_id)
    assert not lock.renew(job_id, "shop:a")
    assert not lock.free(job_id, "shop:a")
    redis.delete(f"job:lock:{job_id}")
    assert lock.take(job_id, "shop:a")


def test_a_database_s_mark_is_the_same_on_all_nodes_and_another_for_another_one() -> None:
    """Whoever logs in; and the address is not to be read in Redis."""
    here = Database(scheme="mysql", host="db.internal", user="one", password="a-word", name="shop")
    assert mark_of(here) == mark_of(replace(here, user="two", password=None))
    others = [replace(here, name="staging"), replace(here, host="db2.internal"), replace(here, port=3307), Database()]
    assert len({mark_of(database) for database in [here, *others]}) == 5
    assert "internal" not in mark_of(here)
