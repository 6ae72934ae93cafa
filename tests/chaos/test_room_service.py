"""The example's room service under load: two nodes of it and two of the relay, each of which is killed again and again.

`OUTBOXD_CHAOS=full` is the long form.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from outboxd.wakeups.redis import KEY
from room_service.audit import audit, audit_delivery
from room_service.database import Database
from room_service.domain import DAY_MS
from room_service.load import Load, run
from tests.services.chaos import SEED, scaled
from tests.services.cli import Cli
from tests.services.daemon import Daemon, is_running, write_config
from tests.services.lanes import Table, table_of
from tests.services.redis_server import RedisServer, client
from tests.services.room_service import CONFIG, Service, query, relay_environ, services, stream_events
from tests.services.tencent import TencentServer
from tests.services.tencent_rooms import APP, KEYS
from tests.services.wait import let_pass, wait_for

SECONDS = scaled(60.0, 10.0)
ROOMS = [f"room-{number}" for number in range(scaled(12, 6))]
ENDS_S = 90.0
LATEST_S = scaled(180.0, 60.0)
"""Each of the four has died by then."""


class Relay:
    """One node of the relay over all its runs, with the example's own configuration."""

    def __init__(self, folder: Path, node: str, environ: dict[str, str]) -> None:
        self._folder, self._node, self._environ = folder, node, environ
        self.start()

    def start(self) -> None:
        """Another run."""
        self.daemon = Daemon(CONFIG, self._folder / f"{self._node}.log", **self._environ)

    def stop(self) -> None:
        """By force."""
        self.daemon.stop()

    def kill(self) -> None:
        """SIGKILL to every process of it at once."""
        os.killpg(self.daemon.pid, signal.SIGKILL)
        self.daemon.stop()

    def kill_supervisor(self) -> None:
        """Its workers end by themselves."""
        pids = list(self.daemon.workers(2).values())
        os.kill(self.daemon.pid, signal.SIGKILL)
        wait_for(lambda: not any(map(is_running, pids)), 10, "the orphans to end")
        self.daemon.stop()


@contextmanager
def relays(folder: Path, url: str, redis_url: str, tencent: TencentServer) -> Iterator[list[Relay]]:
    """Two, with leases that are over soon."""
    short = {"OUTBOXD_PUBLISH_TIMEOUT": "1s", "OUTBOXD_LEASE": "5s", "OUTBOXD_INITIAL_BACKOFF": "200ms"}
    with ExitStack() as stack:
        made: list[Relay] = []
        for node in ("relay-1", "relay-2"):
            said = relay_environ(folder, node, url, redis_url, tencent.url, APP, KEYS[APP])
            if not made:
                Cli(folder, CONFIG, **said)("init-db").ok()
            made.append(Relay(folder, node, {**said, **short}))
            stack.callback(made[-1].stop)
        yield made


def disturb(nodes: list[Service], relaying: list[Relay], chance: random.Random, is_over: Callable[[], bool]) -> int:
    """One of the four dies, and is started again; then the next one, each in its turn. How many died."""
    deaths: dict[str, Callable[[], None]] = {
        "a": nodes[0].kill,
        "b": nodes[1].kill,
        "relay-1": relaying[0].kill,
        "relay-2": lambda: chance.choice((relaying[1].kill, relaying[1].kill_supervisor))(),
    }
    starts: dict[str, Callable[[], None]] = {
        "a": nodes[0].start,
        "b": nodes[1].start,
        "relay-1": relaying[0].start,
        "relay-2": relaying[1].start,
    }
    count = 0
    while count < len(deaths) or not is_over():
        for name in chance.sample(sorted(deaths), len(deaths)):
            let_pass(chance.uniform(0.1, 1.0))
            deaths[name]()
            let_pass(chance.uniform(0.0, 0.5))
            starts[name]()
            count += 1
    return count


def at_rest(table: Table, redis_url: str) -> bool:
    """Is everything relayed, and every rocket dealt with?"""
    with closing(client(redis_url)) as redis:
        waiting: Any = redis.zcard(KEY)
    return table.is_done() and not waiting and table.is_done()


@pytest.mark.parametrize("seed", [SEED])
def test_rooms_are_what_was_delivered_whoever_dies(
    seed: int, mysql_url: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    """G1, and the service's own promises: each room is the fold of its delivered events, which come in order; a command
    that was answered is in the log, with its events; each gift is paid once; nothing waits for ever.
    """
    chance, load = random.Random(seed), Load()
    began_s = time.monotonic()
    disturbed = threading.Event()

    def is_over() -> bool:
        late = time.monotonic() > began_s + LATEST_S
        return late or (disturbed.is_set() and time.monotonic() > began_s + SECONDS)

    environ = {"ROCKET_DELAY_MS": 1500, "RESET_OFFSET_MS": (time.time_ns() // 1_000_000 + DAY_MS // 2) % DAY_MS}
    config = write_config(tmp_path / "table.yaml", mysql_url, {"nothing": {"type": "null"}})
    with (
        TencentServer(KEYS) as tencent,
        relays(tmp_path, mysql_url, own_redis.url, tencent) as relaying,
        table_of(config) as table,
        services(tmp_path, mysql_url, own_redis.url, "a", "b", HELD_MS=1000, **environ) as nodes,
    ):
        urls = [node.url for node in nodes]
        loading = threading.Thread(target=run, args=(urls, ROOMS, is_over, load), daemon=True)
        loading.start()
        deaths = disturb(nodes, relaying, chance, lambda: time.monotonic() > began_s + SECONDS)
        disturbed.set()
        loading.join(ENDS_S)
        assert not loading.is_alive()
        wait_for(lambda: at_rest(table, own_redis.url), ENDS_S, "everything to be relayed")
        held = "SELECT 1 FROM wallet_debit WHERE state = 'held'"
        wait_for(lambda: not query(mysql_url, held), 20, "debits to be settled")
        for relay in relaying:
            assert relay.daemon.end_after(signal.SIGTERM) == 0
        check(mysql_url, own_redis.url, table, load)
        check_groups(tencent)
    print(f"{len(load.done)} commands, {deaths} deaths, {table_size(mysql_url)} events")


def check(url: str, redis_url: str, table: Table, load: Load) -> None:
    """Of the whole run."""
    database = Database(url)
    arrived = stream_events(redis_url)
    assert audit(database) == []
    assert audit_delivery(database, arrived) == []
    assert set(table.by_status()) == {"delivered"}
    assert load.unanswered == []
    logged = {row[0] for row in query(url, "SELECT command_id FROM room_command")}
    answered = {done.command_id for done in load.done if done.status == 200}
    launches = {command_id for command_id in logged if command_id.startswith("rocket:")}
    assert logged - launches == answered
    assert len(answered) > 50
    assert launches
    ignited = [event for event in arrived if event.event_type == "RoomRocketIgnited"]
    assert len({event.event_id for event in ignited}) == len(launches)


def check_groups(tencent: TencentServer) -> None:
    """Tencent IM got each room's messages in order, too."""
    assert tencent.mistakes == []
    for room_id in ROOMS:
        versions = [data["room_version"] for data in tencent.apps[APP].data(room_id)]
        assert versions == sorted(set(versions))


def table_size(url: str) -> int:
    """Rows of the outbox."""
    return int(query(url, "SELECT COUNT(*) FROM room_outbox")[0][0])
