"""A worker's doorbell by itself: what it hears of a real Redis, and what it does while there is none."""

import contextlib
import os
import re
import shlex
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from redis.exceptions import AuthenticationError

from outboxd.errors import SubscriptionError
from outboxd.producer import ring
from outboxd.relay import doorbell
from outboxd.relay.doorbell import LONGEST_DELAY_S, Doorbell, subscribed
from tests.services.daemon import LANE, ROOT
from tests.services.redis_server import RedisServer, client
from tests.services.ringing import await_listeners, hears, ring_often
from tests.services.wait import let_pass, wait_for


@contextlib.contextmanager
def listening(server: RedisServer) -> Iterator[Doorbell]:
    """One that is subscribed, and has told of what may have come before."""
    bell = Doorbell(server.url, LANE)
    try:
        assert hears(bell), "once subscribed it rings for what was committed before"
        bell.answered(found=True)
        await_listeners(server.url, 1)
        yield bell
    finally:
        bell.close()


def is_quick(bell: Doorbell) -> bool:
    """Now."""
    return bell.is_quick


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "doorbell"]


def test_a_ring_is_heard_once(own_redis: RedisServer) -> None:
    """And the next one again: a doorbell that is not looked at is not forgotten either."""
    with listening(own_redis) as bell:
        for _ in range(3):
            ring_often(own_redis.url, 1)
            assert hears(bell)
            assert not bell.heard()
        ring_often(own_redis.url, 1, "another_lane")
        assert not hears(bell, 0.1)


def test_a_ring_that_comes_while_the_worker_looks_is_heard_after_that(own_redis: RedisServer) -> None:
    """What it is about may have been committed after the look began."""
    with listening(own_redis) as bell:
        ring_often(own_redis.url, 1)
        assert hears(bell)  # the look begins
        ring_often(own_redis.url, 1)
        bell.answered(found=True)  # and ends
        assert hears(bell)


@pytest.mark.parametrize("found", [True, False])
def test_a_burst_makes_few_wake_ups(own_redis: RedisServer, found: bool) -> None:
    """10,000 commits at once are a handful of looks, for those that find work and those that do not."""
    with listening(own_redis) as bell:
        ring_often(own_redis.url, 10_000)
        heard = 0
        while hears(bell, 0.3):
            heard += 1
            bell.answered(found)
        assert 1 <= heard <= 100


def test_a_worker_that_finds_nothing_hears_later_until_it_finds_work(own_redis: RedisServer) -> None:
    """Else each ring would make all workers of all nodes look at once."""
    with listening(own_redis) as bell:
        assert is_quick(bell)
        for _ in range(10):
            bell.answered(found=False)
        assert not is_quick(bell)
        took = []
        for _ in range(20):
            since_s = time.monotonic()
            ring_often(own_redis.url, 1)
            assert hears(bell)
            took.append(time.monotonic() - since_s)
        assert min(took) >= LONGEST_DELAY_S / 2, "however quick the machine is"
        assert max(took) - min(took) >= LONGEST_DELAY_S / 4, "jitter: they must not come back as one"
        bell.answered(found=True)
        assert is_quick(bell)


def test_rings_of_the_time_that_a_slow_worker_lets_pass_are_one(own_redis: RedisServer) -> None:
    """One look sees what all of them are about."""
    with listening(own_redis) as bell:
        for _ in range(10):
            bell.answered(found=False)
        ring_often(own_redis.url, 1)
        ring_often(own_redis.url, 3)
        assert hears(bell)
        assert not hears(bell, 0.3)


def test_a_redis_that_ends_and_comes_back_is_found_again(own_redis: RedisServer) -> None:
    """And what was committed meanwhile is looked for: it rings once by itself."""
    with listening(own_redis) as bell:
        own_redis.kill()
        own_redis.start()
        assert hears(bell)
        await_listeners(own_redis.url, 1)
        while hears(bell, 0.1):
            pass
        ring_often(own_redis.url, 1)
        assert hears(bell)


def test_a_connection_that_is_dead_is_found_out(own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen server, or a firewall that has forgotten the connection, says nothing at all: it is asked."""
    for name, limit_s in (("PING_AFTER_S", 0.1), ("ANSWER_S", 0.3), ("LONGEST_PAUSE_S", 0.2)):
        monkeypatch.setattr(doorbell, name, limit_s)
    with listening(own_redis) as bell:
        let_pass(1.0)  # several questions, all of them answered
        assert not bell.heard(), "an answer is no ring"
        before = identity(own_redis)
        os.kill(own_redis.pid, signal.SIGSTOP)
        try:
            let_pass(1.5)
        finally:
            os.kill(own_redis.pid, signal.SIGCONT)
        wait_for(lambda: identity(own_redis) - before, 10, "another connection")
        assert hears(bell)


def identity(server: RedisServer) -> set[str]:
    """The subscribed connections."""
    with contextlib.closing(client(server.url)) as redis:
        return {line["id"] for line in redis.client_list(_type="pubsub")}


def test_without_a_redis_it_never_rings_and_has_no_thread() -> None:
    """A lane that is polled only costs nothing more."""
    before = threads()
    bell = Doorbell(None, LANE)
    assert not hears(bell, 0.05)
    bell.answered(found=True)  # by a poll
    assert (threads(), bell.is_quick) == (before, False), "it must not wait for a ring that never comes"
    bell.close()


def test_closing_ends_the_thread(own_redis: RedisServer) -> None:
    """Wherever it is: reading, or waiting for a Redis that is away."""
    with listening(own_redis):
        assert threads()
    wait_for(lambda: not threads(), 5, "the thread to end")
    bell = Doorbell("redis://127.0.0.1:1/0", LANE)
    assert not hears(bell, 0.3)
    bell.close()
    wait_for(lambda: not threads(), 5, "the thread to end")


def test_a_user_who_may_not_listen_is_told_so(own_redis: RedisServer) -> None:
    """Since Redis 7 a new user has no channel at all."""
    with contextlib.closing(client(own_redis.url)) as redis:
        redis.execute_command("ACL", "SETUSER", "relay", "on", ">pass", "+@all", "~*", "resetchannels")
    address = own_redis.url.removeprefix("redis://")
    with pytest.raises(SubscriptionError, match="NOPERM"), subscribed(f"redis://relay:pass@{address}", LANE):
        pass
    with pytest.raises(AuthenticationError), subscribed(f"redis://relay:wrong@{address}", LANE):
        pass


def test_the_rights_that_the_documentation_lists_are_enough(own_redis: RedisServer) -> None:
    """And no others: no key, no other channel, no other command."""
    document = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    commands = re.findall(r"^redis-cli (ACL SETUSER .*)$", document, re.MULTILINE)
    with contextlib.closing(client(own_redis.url)) as redis:
        for command in commands:
            # Not as it stands there: what was once a password is hidden from every text of this process.
            redis.execute_command(*shlex.split(command.replace(">secret", ">let-me-ring")))
    listening, ringing = (own_redis.url.replace("//", f"//{user}:let-me-ring@") for user in ("outboxd", "producer"))
    bell = Doorbell(listening, LANE)
    try:
        assert hears(bell)
        assert ring(LANE, ringing)
        assert hears(bell)
    finally:
        bell.close()
