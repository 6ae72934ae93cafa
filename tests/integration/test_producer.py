"""outboxd.producer.ring: what a caller may count on, whatever Redis does."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from outboxd.producer import REST_S, TIMEOUT_S, doorbell, ring
from tests.services.daemon import ROOT
from tests.services.redis_server import RedisServer, client
from tests.services.ringing import heard, hearing
from tests.services.wait import let_pass, wait_for

LANE = "room_outbox"
A_WHILE_S = 3 * TIMEOUT_S
"""More than a ring may take, on a machine that has other things to do."""


@pytest.fixture(autouse=True)
def _no_bells() -> Iterator[None]:
    """Each test's connections are its own."""
    doorbell._bells.clear()
    yield
    doorbell._bells.clear()


def test_a_ring_reaches_who_listens(own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the URL that is given, the environment's, or through a client of the application's own."""
    with hearing(own_redis.url) as subscription:
        assert ring(LANE, own_redis.url)
        monkeypatch.setenv("OUTBOXD_REDIS_URL", own_redis.url)
        assert ring(LANE)
        with closing(client(own_redis.url)) as redis:
            assert ring(LANE, client=redis)
        heard(subscription, 3)


def test_a_ring_that_nobody_hears_is_taken_all_the_same(own_redis: RedisServer) -> None:
    """The daemon may be down; that is no news for the caller."""
    assert ring(LANE, own_redis.url)


def test_rings_share_one_connection(own_redis: RedisServer) -> None:
    """Of many threads, too: a connection for each ring would cost more than the ring."""
    results: list[bool] = []

    def work() -> None:
        results.extend(ring(LANE, own_redis.url) for _ in range(50))

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert results == [True] * 400
    with closing(client(own_redis.url)) as redis:
        info: Any = redis.info("stats")
        assert len(redis.client_list()) == 2, "ours, and the one that asks"
        assert info["total_connections_received"] <= 5, "the server's start asks, too"


def test_a_redis_that_is_away_costs_the_caller_next_to_nothing(own_redis: RedisServer) -> None:
    """No exception, no second attempt; and once it is back the next ring but a second is taken."""
    assert ring(LANE, own_redis.url)
    own_redis.kill()
    since_s = time.monotonic()
    assert [ring(LANE, own_redis.url) for _ in range(1000)] == [False] * 1000
    assert time.monotonic() - since_s < REST_S, "it was not tried a thousand times"
    own_redis.start()
    wait_for(lambda: ring(LANE, own_redis.url), 2 * REST_S, "a ring that is taken")


def test_a_redis_that_was_restarted_between_two_rings_loses_none(own_redis: RedisServer) -> None:
    """The kept connection is dead, which is seen before anything is sent over it."""
    assert ring(LANE, own_redis.url)
    own_redis.kill()
    own_redis.start()
    assert ring(LANE, own_redis.url)


def test_a_redis_that_hangs_holds_a_caller_up_for_a_moment_only(own_redis: RedisServer) -> None:
    """With a connection that stands, and with a new one."""
    assert ring(LANE, own_redis.url)
    os.kill(own_redis.pid, signal.SIGSTOP)
    try:
        for _ in range(2):
            since_s = time.monotonic()
            assert not ring(LANE, own_redis.url)
            assert time.monotonic() - since_s < 2 * TIMEOUT_S + A_WHILE_S
            let_pass(REST_S)
    finally:
        os.kill(own_redis.pid, signal.SIGCONT)
    wait_for(lambda: ring(LANE, own_redis.url), 2 * REST_S + A_WHILE_S, "a ring that is taken")


def test_a_fork_rings_over_a_connection_of_its_own(own_redis: RedisServer) -> None:
    """Answers of one process must not reach the other; and a lock that another thread held is not waited for."""
    assert ring(LANE, own_redis.url)
    (bell,) = doorbell._bells.values()
    with bell._lock:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if all(ring(LANE, own_redis.url) for _ in range(20)) else 1)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert ring(LANE, own_redis.url)


@pytest.mark.parametrize("url", ["", "no url", "http://h/", "redis://127.0.0.1:no/0", "redis://no.such.host.invalid/0"])
def test_what_is_configured_wrongly_never_fails_the_caller(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The event is committed: the request must not end in an error. The log says it, once."""
    assert not ring(LANE, url)
    assert not ring(LANE, url)
    assert len(caplog.records) == 1
    assert "cannot be rung" in caplog.text


def test_changes_are_logged_once_without_the_password(own_redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """G11. A line for each ring would drown the application's log."""
    url = own_redis.url.replace("redis://", "redis://:a-password@")
    own_redis.kill()
    assert not ring(LANE, url)
    let_pass(REST_S)
    assert not ring(LANE, url)
    own_redis.start()
    with closing(client(own_redis.url)) as redis:
        redis.config_set("requirepass", "a-password")
    wait_for(lambda: ring(LANE, url), 2 * REST_S, "a ring that is taken")
    assert [record.levelname for record in caplog.records if record.name == "outboxd.producer"] == ["WARNING"]
    assert "a-password" not in caplog.text


def test_a_client_that_fails_in_its_own_way_never_fails_the_caller() -> None:
    """It may be of any library."""

    class Broken:
        def publish(self, channel: str, message: str) -> None:
            raise ZeroDivisionError(channel + message)

    assert not ring(LANE, client=Broken())


def test_importing_it_loads_no_client() -> None:
    """It is imported by every process of an application, also by those that never ring."""
    program = (
        "import sys, outboxd.producer; print(*sorted({'redis', 'MySQLdb', 'click', 'msgspec'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout.split() == []
