"""The whole way: a commit, a ring, a delivery; with a Redis that goes away, hangs or refuses, and without any work."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from outboxd.cli.ask import ask
from outboxd.config.schema import Config
from outboxd.producer import ring
from outboxd.store import connect
from tests.services.daemon import LANE, Daemon, write_config
from tests.services.lanes import Table, event, table_of
from tests.services.redis_server import RedisServer
from tests.services.ringing import await_listeners, ring_often
from tests.services.wait import let_pass, wait_for

SELDOM_S = 30.0
"""A poll_interval so long that what is delivered before it was rung for."""
SOON_S = 5.0
"""However busy the machine is: far less than that."""
PUBLISHERS = {"nothing": {"type": "null"}}
UP_IN_S = 0.2
"""What a transaction may take to be sure to be within the time that looks start behind."""


def configured(tmp_path: Path, database: str, redis_url: str, poll_interval: str, workers: int) -> Config:
    return write_config(
        tmp_path / "outbox.yaml", database, PUBLISHERS, concurrency=workers, poll_interval=poll_interval,
        sections={"redis": {"url": redis_url}},
    )  # fmt: skip


class Rung:
    """A daemon whose workers are rung, and its table."""

    def __init__(self, daemon: Daemon, table: Table, redis: RedisServer) -> None:
        self.daemon, self.table, self.redis = daemon, table, redis

    def deliver(self, count: int = 1) -> None:
        """Insert, ring, and wait for the delivery, which no poll makes."""
        self.table.fill(count)
        assert ring(LANE, self.redis.url)
        wait_for(self.table.is_done, SOON_S, "what was rung for")


@pytest.fixture(params=[1, 4])
def rung(request: pytest.FixtureRequest, tmp_path: Path, mysql_url: str, own_redis: RedisServer) -> Iterator[Rung]:
    """One that hardly polls."""
    config = configured(tmp_path, mysql_url, own_redis.url, f"{SELDOM_S:g}s", request.param)
    with table_of(config) as table, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
        await_listeners(own_redis.url, request.param)
        made = Rung(daemon, table, own_redis)
        made.deliver()
        yield made


def test_what_was_committed_is_delivered_when_it_is_rung_for(rung: Rung) -> None:
    """Time after time, one event or many; and without a ring not before the next poll."""
    for count in (1, 1, 350, 1):
        rung.deliver(count)
    let_pass(0.5)  # slow workers hear the last ring now
    rung.table.fill(1)
    let_pass(0.5)
    assert rung.table.unfinished() == 1, "the polls of this test are not seldom enough"
    rung.deliver()
    rung.daemon.drain(3.0)


@pytest.mark.parametrize("rung", [1], indirect=True)
def test_a_transaction_that_commits_behind_higher_ids_is_delivered_when_it_is_rung_for(
    rung: Rung, tmp_path: Path, mysql_url: str
) -> None:
    """G1. With several producers this is everyday life; only a sweep would find it otherwise. One worker, since another
    one's floor may be lower by chance."""
    config = configured(tmp_path, mysql_url, rung.redis.url, "1s", 1)
    with closing(connect(config.database)) as connection:
        late = Table(connection)
        for _ in range(20):
            connection.begin()
            late.insert([event()])
            since_s = time.monotonic()
            rung.table.fill(1)
            assert ring(LANE, rung.redis.url)
            wait_for(
                lambda: rung.table.by_status().get("delivered", 0) and rung.table.is_done(), SOON_S, "the higher id"
            )
            let_pass(0.05)
            connection.commit()
            assert ring(LANE, rung.redis.url)
            if time.monotonic() - since_s < UP_IN_S:  # else the machine was too busy for it to tell anything
                wait_for(rung.table.is_done, SOON_S, "the lower id")
                return
            rung.table.connection.execute(f"DELETE FROM {LANE} WHERE status = 'pending'")
        pytest.fail("the machine is too busy to commit within 200 ms")


def test_events_flow_while_redis_is_killed_and_comes_back(
    tmp_path: Path, mysql_url: str, own_redis: RedisServer
) -> None:
    """Redis away costs latency only: one line when it goes, one when it is back, for each worker; G9."""
    config = configured(tmp_path, mysql_url, own_redis.url, "200ms", 2)
    with table_of(config) as table, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
        await_listeners(own_redis.url, 2)
        own_redis.kill()
        daemon.wait_for("doorbell_unavailable", 2)
        for _ in range(5):
            table.fill(20)
            ring(LANE, own_redis.url)
            daemon.wait_until(table.is_done, "the events to be delivered by polling")
        own_redis.start()
        daemon.wait_for("doorbell_available", 2)
        await_listeners(own_redis.url, 2)
        table.fill(20)
        daemon.wait_until(table.is_done, "the events to be delivered")
        daemon.drain(3.0)
        assert len(daemon.lines("doorbell_unavailable")) == 2
        assert len(daemon.lines("doorbell_available")) == 2
        assert table.by_status() == {"delivered": 120}


def test_events_flow_while_redis_hangs(tmp_path: Path, mysql_url: str, own_redis: RedisServer) -> None:
    """It answers nothing, and refuses nothing: the loop must not wait for it, also not when it ends (G5)."""
    config = configured(tmp_path, mysql_url, own_redis.url, "200ms", 2)
    with table_of(config) as table, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
        await_listeners(own_redis.url, 2)
        os.kill(own_redis.pid, signal.SIGSTOP)
        try:
            for _ in range(5):
                table.fill(20)
                wait_for(table.is_done, SOON_S, "the events to be delivered by polling")
            daemon.drain(3.0)
        finally:
            os.kill(own_redis.pid, signal.SIGCONT)


@pytest.mark.parametrize("spoilt", ["away", "frozen", "password"])
def test_a_daemon_starts_and_relays_whatever_redis_says(
    spoilt: str, tmp_path: Path, mysql_url: str, own_redis: RedisServer
) -> None:
    """A wrong password is a person's to put right, and no reason to hold events back. It is not in the log (G11)."""
    url = own_redis.url
    if spoilt == "password":
        url = url.replace("redis://", "redis://outboxd:a-wrong-password@")
    elif spoilt == "away":
        own_redis.kill()
    else:
        os.kill(own_redis.pid, signal.SIGSTOP)
    try:
        config = configured(tmp_path, mysql_url, url, "200ms", 2)
        with table_of(config) as table, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            table.fill(20)
            daemon.wait_until(table.is_done, "the events to be delivered by polling")
            if spoilt != "frozen":
                assert "redis" not in daemon.wait_for("doorbell_unavailable", 2)[0]["error"].split("/")[0]
            daemon.drain(3.0)
            assert len(daemon.lines("doorbell_unavailable")) <= 2
            assert "a-wrong-password" not in daemon.text()
    finally:
        if spoilt == "frozen":
            os.kill(own_redis.pid, signal.SIGCONT)


def totals(config: Config) -> Counter[str]:
    """Of all workers."""
    found: Counter[str] = Counter()
    for lane in ask(config.admin.socket, "/api/lanes")["lanes"]:
        for worker in lane["workers"]:
            found.update(worker["totals"])
    return found


def test_rings_without_work_make_few_looks(tmp_path: Path, mysql_url: str, own_redis: RedisServer) -> None:
    """Ten idle nodes must not stampede: whoever finds nothing answers later. 100 rings a second would be 100 looks a
    second of each worker; and 10,000 at once are a few."""
    workers, rings = 6, 200
    config = configured(tmp_path, mysql_url, own_redis.url, "30s", workers)
    with table_of(config), Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
        await_listeners(own_redis.url, workers)
        daemon.admin_pid()
        before = totals(config)["looks"]
        for _ in range(rings):
            ring(LANE, own_redis.url)
            let_pass(0.01)
        seen = totals(config)
        looks = seen["looks"] - before
        assert workers <= looks <= workers * rings / 2, "about 50 each; 200 if each ring made all of them look"
        assert seen["claims"] == 0, "a look is one statement, without locks"
        ring_often(own_redis.url, 10_000)
        let_pass(0.5)
        assert totals(config)["looks"] - seen["looks"] <= 40 * workers
        daemon.drain(3.0)
