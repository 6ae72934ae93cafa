"""A room service's day: the scenes that a relay has to get right, by the real daemon and real receivers."""

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from outboxd.inbox import first_time, table_sql
from outboxd.message import decode
from outboxd.wakeups import Wakeups
from outboxd.wakeups.redis import RedisWakeups
from outboxd.wakeups.rocketmq import RocketMqWakeups
from tests.services.daemon import Daemon, write_config
from tests.services.grpc_server import GrpcServer, start_grpc_server
from tests.services.lanes import Table, event, table_of
from tests.services.mariadb import connect, execute
from tests.services.queues import RedisQueue, streams_of
from tests.services.redis_server import RedisServer, client
from tests.services.rocketmq_queue import RocketMqQueue
from tests.services.tencent import TencentServer
from tests.services.tencent_rooms import APP, KEYS
from tests.services.tencent_state import ADMIN

BREAKER = {"initial_probe": "100ms", "max_probe": "500ms"}


def row(event_type: str, number: int, **body: object) -> dict[str, object]:
    """As the room service writes it."""
    event_id = f"e-{number}"
    envelope = {"event_id": event_id, "event_type": event_type, "room_id": "room-1", "app_code": "app", "body": body}
    return event(event_id=event_id, event_type=event_type, envelope=json.dumps(envelope).encode())


class Services:
    """Tencent IM, the activity service and a queue, each of which can be down."""

    def __init__(self, folder: Path, im: TencentServer, redis: RedisServer) -> None:
        self._folder = folder
        self.im = im
        self.queue = RedisQueue(redis)
        self.activity: GrpcServer = start_grpc_server(folder)
        app = {"sdk_app_id": APP, "identifier": ADMIN, "secret_key": KEYS[APP]}
        self.publishers: dict[str, Any] = {
            "im": {"type": "tencent_im", "base_url": im.url, "apps": {"app": app}, "breaker": BREAKER},
            "activity": {"type": "activity_grpc", "target": self.activity.target, "breaker": BREAKER},
            **self.queue.publishers(breaker=BREAKER),
        }

    def down(self, name: str) -> None:
        """It takes no connections."""
        if name == "im":
            self.im.receiver.refuse()
            self.im.receiver.cut()
        elif name == "activity":
            self.activity.stop()
        else:
            self.queue.stop()

    def up(self, name: str) -> None:
        """It is back, at the same address."""
        if name == "im":
            self.im.receiver.listen_again()
        elif name == "activity":
            self.activity = start_grpc_server(self._folder, self.activity.port)
        else:
            self.queue.start()

    def got(self, name: str) -> Counter[str]:
        """Event id: how often it arrived there."""
        if name == "im":
            return Counter(str(data["event_id"]) for data in self.im.apps[APP].data("room-1"))
        if name == "activity":
            return Counter(call["event"]["event_id"] for call in self.activity.calls())
        return Counter(one.message.event_id for one in self.queue.arrived())


@pytest.fixture
def services(tmp_path: Path, own_redis: RedisServer) -> Iterator[Services]:
    """All of them up."""
    with TencentServer(KEYS) as im:
        made = Services(tmp_path, im, own_redis)
        yield made
        made.activity.stop()
        assert im.mistakes == []


@contextmanager
def relaying(folder: Path, url: str, publishers: Any, sections: Any = None, **worker: object) -> Iterator[Any]:
    """The table and the daemon."""
    usual: dict[str, Any] = {"concurrency": 1, "publish_timeout": "1s", "initial_backoff": "200ms", "max_backoff": "1s"}
    config = write_config(folder / "outbox.yaml", url, publishers, sections=sections, **{**usual, **worker})
    with table_of(config) as table, Daemon(folder / "outbox.yaml", folder / "daemon.log") as daemon:
        yield table, daemon
        daemon.drain(3.0)


@pytest.mark.parametrize(
    ("mode", "down"),
    [("direct", "im"), ("direct", "activity"), ("dual", "im"), ("dual", "activity"), ("dual", "bus"), ("mq", "bus")],
)
def test_while_one_service_is_down_the_others_go_on_and_it_gets_everything_when_it_is_back(
    services: Services, mysql_url: str, tmp_path: Path, mode: str, down: str
) -> None:
    """G6, G7: rows wait as `retryable` with their attempts untouched, and say who has them and who has not."""
    asked = {"direct": ["im", "activity"], "dual": ["im", "activity", "bus"], "mq": ["bus"]}[mode]
    others = [name for name in asked if name != down]
    wanted = Counter({f"e-{number}": 1 for number in range(60)})
    direct = ["im", "activity"] if mode != "mq" else []
    with relaying(
        tmp_path, mysql_url, services.publishers, publish_mode=mode, direct=direct, mq="bus", max_retry_count=2
    ) as (table, daemon):
        table.insert([row("RoomGiftSent", number) for number in range(20)])
        daemon.wait_until(table.is_done, "the first ones")
        services.down(down)
        table.insert([row("RoomGiftSent", number) for number in range(20, 60)])
        daemon.wait_until(lambda: waiting(table) == {(0, ",".join(others) or None)}, "the others to have all of them")
        for name in others:
            assert services.got(name) == wanted
        services.up(down)
        daemon.wait_until(table.is_done, "the service to catch up", timeout_s=30)
        found = table.rows()
    assert Counter((one["status"], one["retry_count"]) for one in found) == {("delivered", 0): 60}
    assert [services.got(name) for name in asked] == [wanted] * len(asked)


def waiting(table: Table) -> set[tuple[object, object]]:
    """(attempts used, who has it) of what is not delivered, once that is all the forty of the outage."""
    rows = table.rows("status = 'retryable'")
    return {(one["retry_count"], one["published_to"]) for one in rows} if len(rows) >= 35 else set()


def test_a_poison_event_ends_as_failed_and_is_quiet(services: Services, mysql_url: str, tmp_path: Path) -> None:
    """G7, G9: after max_retry_count, with the others that had it remembered and its reason written down."""
    with relaying(
        tmp_path, mysql_url, services.publishers, publish_mode="dual", direct=["activity"], mq="bus", max_retry_count=3
    ) as (table, daemon):
        table.insert([row("RoomGiftSent", number) for number in range(20)])
        table.insert([row("RoomGiftSent", 99, answer="INTERNAL")])
        daemon.wait_until(table.is_done, "all of them", timeout_s=30)
        found = table.row("e-99")
        lines = [line for line in daemon.lines() if line.get("event_id") == "e-99"]
    assert (found["status"], found["retry_count"], found["published_to"]) == ("failed", 3, "bus")
    assert "INTERNAL" in str(found["last_error"])
    assert [line["event"] for line in lines] == ["outbox_publish_retryable"] * 2 + ["outbox_dead_letter"]
    assert services.got("bus") == Counter({f"e-{number}": 1 for number in (*range(20), 99)})
    assert services.got("activity")["e-99"] == 3


def consume(url: str, stream: str, database_url: str, group: str, until: Callable[[], bool]) -> None:
    """One of a group's consumers: effect and memory in one transaction. It acknowledges only now and then, so that
    most messages are delivered again and again."""
    redis, connection = client(url), connect(database_url)
    connection.autocommit(False)
    start = "0"
    with contextlib.closing(connection):
        while not until():
            answer: Any = redis.xreadgroup(group, "one", {stream: start}, count=7, block=50)
            entries = streams_of(answer).get(stream.encode(), []) if answer else []
            start = ">" if start == "0" else "0"
            for number, (entry_id, fields) in enumerate(entries):
                message = decode(fields[b"m"])
                cursor = connection.cursor()
                if first_time(cursor, group, message.event_id, message.app_code):
                    cursor.execute(f"INSERT INTO effect VALUES ('{group}', '{message.event_id}')")
                connection.commit()
                if number % 7 == 0:
                    redis.xack(stream, group, entry_id)


def test_three_groups_that_read_an_event_again_and_again_have_one_effect_each(
    services: Services, mysql_url: str, tmp_path: Path
) -> None:
    """What consumers do, and that one is slow, changes nothing in the outbox."""
    groups = ("billing", "ranking", "push")
    execute(mysql_url, table_sql("mysql"), "CREATE TABLE effect (consumer VARCHAR(20), event_id VARCHAR(64))")
    redis = client(services.queue.server.url)
    for group in groups:
        redis.xgroup_create(services.queue.stream, group, id="0", mkstream=True)
    url, stream = services.queue.server.url, services.queue.stream
    ends = threading.Event()
    threads = [
        threading.Thread(target=consume, args=(url, stream, mysql_url, group, ends.is_set)) for group in groups
    ]
    with relaying(tmp_path, mysql_url, services.publishers, publish_mode="mq", direct=[], mq="bus") as (table, daemon):
        for thread in threads:
            thread.start()
        table.insert([row("RoomGiftSent", number) for number in range(40)])
        daemon.wait_until(table.is_done, "the outbox")
        with contextlib.closing(connect(mysql_url)) as connection:

            def count() -> int:
                cursor = connection.cursor()
                cursor.execute("SELECT COUNT(*) FROM effect")
                return int(cursor.fetchone()[0])

            daemon.wait_until(lambda: count() >= 120, "every group to have had its effects")
            ends.set()
            for thread in threads:
                thread.join(30)
            assert count() == 120
        assert table.by_status() == {"delivered": 40}


@contextmanager
def redis_rockets(request: pytest.FixtureRequest) -> Iterator[tuple[dict[str, Any], dict[str, Any], Wakeups]]:
    """What publishers and sections of the configuration say, and the room service's side."""
    url = request.getfixturevalue("own_redis").url
    with RedisWakeups(url) as wakeups:
        yield {"rockets": {"type": "rocket_launch", "url": url}}, {}, wakeups


@contextmanager
def rocketmq_rockets(request: pytest.FixtureRequest) -> Iterator[tuple[dict[str, Any], dict[str, Any], Wakeups]]:
    """The same with RocketMQ."""
    server = request.getfixturevalue("rocketmq")
    queue = RocketMqQueue(server, "DELAY")
    launch = {"enabled": True, "topic": queue.topic}
    with RocketMqWakeups(server.endpoints, topic=queue.topic, group=queue.group("rooms")) as wakeups:
        yield {}, {"rocketmq": {"enabled": True, "endpoints": server.endpoints, "rocket_launch": launch}}, wakeups


@pytest.mark.parametrize("carrier", [redis_rockets, rocketmq_rockets])
def test_an_ignited_rocket_wakes_the_room_at_its_time_and_repeats_have_no_effect(
    request: pytest.FixtureRequest, services: Services, mysql_url: str, tmp_path: Path, carrier: Any
) -> None:
    """Within a second. Then the rocket is ignited again, as by a command that is repeated: the room wakes with the same
    command_id, and knows that it has launched."""
    with carrier(request) as (rockets, sections, wakeups):
        publishers = {**services.publishers, **rockets}
        with relaying(
            tmp_path, mysql_url, publishers, sections, direct=["activity", *rockets], publish_timeout="3s"
        ) as (table, daemon):
            at_ms = time.time_ns() // 1_000_000 + 3000
            table.insert([row("RoomRocketIgnited", 1, rocket_id="rk", level=2, launch_at_ms=at_ms)])
            daemon.wait_until(table.is_done, "the event to be relayed")
            assert services.got("activity") == Counter({"e-1": 1})
            launched: list[str] = []
            late_ms = -1

            def serve() -> bool:
                nonlocal late_ms
                for taken in wakeups.receive(0.5):
                    late_ms = max(late_ms, time.time_ns() // 1_000_000 - at_ms)
                    launched.append(taken.wakeup.command_id)
                    wakeups.done(taken)
                return bool(launched)

            daemon.wait_until(serve, "the room to be woken")
            print(f"{late_ms} ms late")
            assert 0 <= late_ms <= 3000  # a second, and what a busy machine makes of it
            table.insert([row("RoomRocketIgnited", 2, rocket_id="rk", level=2, launch_at_ms=at_ms)])
            daemon.wait_until(lambda: serve() and len(launched) > 1, "the repeat", timeout_s=30)
            assert set(launched) == {"rocket:app:room-1:rk:2"}
