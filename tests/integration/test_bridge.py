"""The bridge: from the outbox through a queue to Tencent IM, by the real daemon."""

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from outboxd.message import encode
from tests.services.cli import Cli
from tests.services.daemon import Daemon, is_running, write_config
from tests.services.lanes import event, table_of
from tests.services.publishing import make_event
from tests.services.queues import BRIDGED, BridgedQueue, RedisQueue
from tests.services.redis_server import client, private_redis
from tests.services.scrape import scrape, total
from tests.services.tencent import TencentServer
from tests.services.tencent_rooms import APP, KEYS
from tests.services.tencent_state import ADMIN

GROUP = "hyapp-room-im-bridge"
WORKER = "im_bridge-01"


@pytest.fixture(params=sorted(BRIDGED))
def queue(request: pytest.FixtureRequest) -> Iterator[BridgedQueue]:
    """One of each kind that the bridge reads, empty."""
    with BRIDGED[request.param](request) as made:
        yield made


@contextmanager
def redis_queue() -> Iterator[RedisQueue]:
    """An empty stream, at a server of its own."""
    with private_redis() as server:
        yield RedisQueue(server)


@pytest.fixture
def im() -> Iterator[TencentServer]:
    """Tencent IM. Whatever happens, nobody speaks to it against its protocol."""
    with TencentServer(KEYS) as server:
        yield server
        assert server.mistakes == []


def row(event_type: str, number: int, room: str = "room-1", app: str = "app", **body: object) -> dict[str, object]:
    """As the room service writes it."""
    event_id = f"e-{number}"
    envelope = {"event_id": event_id, "event_type": event_type, "room_id": room, "app_code": app, "body": body}
    return event(
        event_id=event_id, event_type=event_type, room_id=room, app_code=app, envelope=json.dumps(envelope).encode()
    )


@contextmanager
def running(
    queue: BridgedQueue, im: TencentServer, url: str, folder: Path, im_keys: Any = None, **bridge: object
) -> Iterator[Any]:
    """The daemon, and its lane's table: mode mq, with a bridge."""
    app = {"sdk_app_id": APP, "identifier": ADMIN, "secret_key": KEYS[APP]}
    tencent: dict[str, Any] = {"type": "tencent_im", "base_url": im.url, "apps": {"app": app}, "connections": 4}
    tencent |= {"silent_events": ["RoomHeatChanged"], "breaker": {"initial_probe": "100ms", "max_probe": "500ms"}}
    tencent |= im_keys or {}
    sections = {**queue.sections(), "bridge": {**queue.bridge(), "enabled": True, **bridge}}
    config = write_config(
        folder / "outbox.yaml", url, {**queue.publishers(), "im": tencent}, sections=sections,
        publish_mode="mq", mq=queue.name, direct=[], concurrency=1, publish_timeout="2s",
    )  # fmt: skip
    with table_of(config) as table, Daemon(folder / "outbox.yaml", folder / "daemon.log") as daemon:
        yield table, daemon
        daemon.drain(2.0)


def said(im: TencentServer, room: str = "room-1") -> Counter[str]:
    """The event ids of a group's messages."""
    return Counter(str(data["event_id"]) for data in im.apps[APP].data(room))


def bridged(folder: Path) -> dict[str, int]:
    """What has become of messages so far, as /metrics says."""
    samples = scrape(folder / "outbox.sock")
    results = ("done", "repeated", "again", "dead")
    totals = {result: int(total(samples, "outboxd_bridge_messages_total", result=result)) for result in results}
    return {result: count for result, count in totals.items() if count}


def test_rooms_become_groups_events_messages_and_who_is_kicked_leaves(
    queue: BridgedQueue, im: TencentServer, mysql_url: str, tmp_path: Path
) -> None:
    with running(queue, im, mysql_url, tmp_path) as (table, daemon):
        table.insert([row("RoomCreated", 1, name="A room")])
        daemon.wait_until(lambda: "room-1" in im.apps[APP].groups, "the group")
        im.apps[APP].groups["room-1"].members |= {"u1", "u2"}
        table.insert([row("RoomGiftSent", n) for n in range(10, 60)])
        table.insert([row("RoomHeatChanged", 61), row("RoomUserKicked", 62, user_id="u1")])
        wanted = Counter({f"e-{n}": 1 for n in (*range(10, 60), 62)})
        daemon.wait_until(lambda: said(im) >= wanted, "all messages", timeout_s=30)
        assert said(im) - Counter({"e-1": 1}) == wanted
        assert im.apps[APP].groups["room-1"].members == {"u2"}
        daemon.wait_until(table.is_done, "the outbox to be done")
        assert table.by_status() == {"delivered": 53}
        said_of_it = Cli(tmp_path, tmp_path / "outbox.yaml")("status").ok()
        assert re.search(rf"^{WORKER} +running +[0-9]+ +0 +53 +0 +0$", said_of_it, re.MULTILINE), said_of_it


@pytest.mark.parametrize("how", [{}, {"status": 500}, {"hang": True}])
def test_while_tencent_is_down_nothing_is_given_up_and_the_outbox_goes_on(
    queue: BridgedQueue, im: TencentServer, mysql_url: str, tmp_path: Path, how: dict[str, Any]
) -> None:
    """G6: two attempts are all a message has here, and the outage lasts for more tries than that, whichever way it
    fails: refuses, says that it is broken, or nothing. The bridge takes no more than it needs for probes."""
    with running(queue, im, mysql_url, tmp_path, max_reconsume_times=2) as (table, daemon):
        table.insert([row("RoomGiftSent", 1000)])
        daemon.wait_until(lambda: said(im) == {"e-1000": 1}, "the bridge to work")
        im.receiver.refuse() if not how else im.behave(None, **how)
        im.receiver.cut()
        table.insert([row("RoomGiftSent", n) for n in range(100)])
        daemon.wait_until(table.is_done, "the outbox to be done")
        daemon.wait_for("bridge_stopped")
        tried = len(im.asked)
        daemon.wait_until(lambda: how == {} or len(im.asked) >= tried + 3, "some probes", timeout_s=60)
        im.receiver.listen_again() if not how else im.forget_rules()
        daemon.wait_until(lambda: len(said(im)) == 101, "all messages", timeout_s=90)
        daemon.wait_for("bridge_resumed")
        assert said(im) == Counter({f"e-{n}": 1 for n in (*range(100), 1000)})
        assert daemon.lines("bridge_dead_letter") == []
        assert all(line["in_hand"] <= 2 * 32 for line in daemon.lines("bridge_stopped"))
    assert queue.dead(GROUP) == []


def test_restarts_and_reloads_in_an_outage_use_up_nothing(
    im: TencentServer, mysql_url: str, tmp_path: Path
) -> None:
    """G6: what is only held was not tried. (RocketMQ counts how often it hands a message out, whatever it is told.)"""
    with redis_queue() as queue, running(queue, im, mysql_url, tmp_path, max_reconsume_times=2) as (table, daemon):
        im.receiver.refuse()
        im.receiver.cut()
        table.insert([row("RoomGiftSent", n) for n in range(20)])
        daemon.wait_for("bridge_held")
        config = tmp_path / "outbox.yaml"
        for number in range(4):
            config.write_text(re.sub("connections: [0-9]+", f"connections: {5 + number}", config.read_text()))
            daemon.signal(signal.SIGHUP)
            daemon.wait_for("reload_finished", number + 1)
        im.receiver.listen_again()
        daemon.wait_until(lambda: len(said(im)) == 20, "all messages", timeout_s=60)
        assert daemon.lines("bridge_dead_letter") == []


def test_what_can_never_be_done_goes_to_the_dead_letters_and_holds_up_nobody(
    queue: BridgedQueue, im: TencentServer, mysql_url: str, tmp_path: Path
) -> None:
    """G7: too large for Tencent, no message at all, an id that no producer of ours can have written."""
    with running(queue, im, mysql_url, tmp_path, max_reconsume_times=1) as (table, daemon):
        queue.put(b"no message")
        queue.put(encode(make_event(id=999, event_id="\u00e9", event_type="RoomGiftSent")))
        table.insert([row("RoomGiftSent", 1, text="x" * 13_000)])
        table.insert([row("RoomGiftSent", n) for n in range(10, 40)])
        daemon.wait_until(lambda: len(said(im)) == 30, "the others", timeout_s=30)
        lines = daemon.wait_for("bridge_dead_letter", 3)
        daemon.wait_until(lambda: bridged(tmp_path) == {"done": 30, "dead": 3}, "all to be settled")
    assert Counter(line.get("event_id") for line in lines) == {None: 2, "e-1": 1}
    assert len(queue.dead(GROUP)) == 3


def test_a_tenant_that_is_not_configured_is_held_and_holds_up_nobody(
    queue: BridgedQueue, im: TencentServer, mysql_url: str, tmp_path: Path
) -> None:
    """G6: someone must change something; until then its messages wait, without an attempt; after a reload they go.
    (RocketMQ counts the reload, and may have handed them to the process that ended: they come again later.)
    """
    with running(queue, im, mysql_url, tmp_path, max_reconsume_times=5) as (table, daemon):
        table.insert([row("RoomGiftSent", n, app="later") for n in range(3)])
        table.insert([row("RoomGiftSent", n) for n in range(10, 40)])
        daemon.wait_until(lambda: len(said(im)) == 30, "the others", timeout_s=30)
        assert "later" in daemon.wait_for("bridge_held")[0]["error"]
        config = tmp_path / "outbox.yaml"
        document = yaml.safe_load(config.read_text())
        apps = document["publishers"]["im"]["apps"]
        apps["later"] = apps["app"]
        config.write_text(yaml.safe_dump(document))
        daemon.signal(signal.SIGHUP)
        daemon.wait_until(lambda: len(said(im)) == 33, "those of the new tenant", timeout_s=120)
        assert daemon.lines("bridge_dead_letter") == []


def test_the_publishers_filter_and_rate_hold_for_the_bridge_too(
    queue: BridgedQueue, im: TencentServer, mysql_url: str, tmp_path: Path
) -> None:
    """Tencent's limits are for the app, whoever calls."""
    keys = {"max_rate": 20, "events": ["RoomGiftSent"]}
    with running(queue, im, mysql_url, tmp_path, im_keys=keys) as (table, daemon):
        table.insert([row("RoomCreated", 1), *(row("RoomGiftSent", n) for n in range(10, 50))])
        daemon.wait_until(lambda: len(said(im)) == 40, "the messages", timeout_s=30)
        times = [asked.received_s for asked in im.asked if asked.command == "send_group_msg"]
        assert times[-1] - times[0] > 40 / 20 * 0.8
        assert said(im).keys() == {f"e-{n}" for n in range(10, 50)}


def test_a_full_redis_costs_no_message_an_attempt(im: TencentServer, mysql_url: str, tmp_path: Path) -> None:
    """G6: what is garbage cannot be put aside meanwhile, and the others of its batch go on."""
    with redis_queue() as queue, running(queue, im, mysql_url, tmp_path, max_reconsume_times=1) as (table, daemon):
        table.insert([row("RoomGiftSent", 1)])
        daemon.wait_until(lambda: said(im) == {"e-1": 1}, "the bridge to work")
        pid = daemon.workers(2)[WORKER]
        os.kill(pid, signal.SIGSTOP)
        queue.put(b"garbage")
        for n in (2, 3):
            queue.put(encode(make_event(**{**row("RoomGiftSent", n), "id": n, "headers": None})))
        redis = client(queue.server.url)
        redis.config_set("maxmemory", 1)
        os.kill(pid, signal.SIGCONT)
        daemon.wait_until(lambda: len(said(im)) == 3, "the others", timeout_s=60)
        daemon.wait_for("subscription_unavailable")
        redis.config_set("maxmemory", 0)
        daemon.wait_until(lambda: len(queue.dead(GROUP)) == 1, "the garbage to be put aside", timeout_s=60)
        daemon.wait_for("subscription_available")
        assert len(daemon.lines("bridge_dead_letter")) == 1
        assert said(im) == Counter({"e-1": 1, "e-2": 1, "e-3": 1})


def test_the_same_id_in_two_lanes_is_two_events(
    queue: BridgedQueue, im: TencentServer, mysql_url: str, tmp_path: Path
) -> None:
    """An id is unique within its lane; and their rows may have the same number, too."""
    with running(queue, im, mysql_url, tmp_path) as (_, daemon):
        for lane in ("room_outbox", "another_outbox"):
            queue.put(encode(make_event(**{**row("RoomGiftSent", 1), "id": 7, "lane": lane})))
        daemon.wait_until(lambda: said(im) == {"e-1": 2}, "both messages", timeout_s=30)


def test_a_message_that_comes_again_is_not_done_again(
    queue: BridgedQueue, im: TencentServer, mysql_url: str, tmp_path: Path
) -> None:
    """At least once is what queues promise, and relays too; a receiver sees an event once."""
    with running(queue, im, mysql_url, tmp_path) as (table, daemon):
        table.insert([row("RoomGiftSent", 1)])
        daemon.wait_until(lambda: len(said(im)) == 1, "the message")
        again = make_event(id=999, event_id="e-1", event_type="RoomGiftSent", envelope=table.row("e-1")["envelope"])
        for _ in range(3):
            queue.put(encode(again))
        table.insert([row("RoomGiftSent", 2)])
        daemon.wait_until(lambda: len(said(im)) == 2, "the next message")
        wanted = {"done": 2, "repeated": 3}
        daemon.wait_until(lambda: bridged(tmp_path) == wanted, "all of them to be done", timeout_s=30)
        assert said(im) == Counter({"e-1": 1, "e-2": 1})


def test_a_bridge_that_is_killed_loses_nothing(
    queue: BridgedQueue, im: TencentServer, mysql_url: str, tmp_path: Path
) -> None:
    """G1: what it had in hand comes again, to the next one."""
    with running(queue, im, mysql_url, tmp_path) as (table, daemon):
        im.behave("send_group_msg", hang=True)
        table.insert([row("RoomGiftSent", n) for n in range(50)])
        daemon.wait_until(lambda: "send_group_msg" in im.commands(), "a message on its way")
        os.kill(daemon.workers(2)[WORKER], signal.SIGKILL)
        im.forget_rules()
        daemon.wait_until(lambda: len(said(im)) == 50, "all messages", timeout_s=120)
        daemon.wait_until(lambda: bridged(tmp_path) == {"done": 50}, "all to be acknowledged", timeout_s=60)
        assert said(im) == Counter({f"e-{n}": 1 for n in range(50)})


def test_a_bridge_drains_in_time_while_tencent_hangs(
    queue: BridgedQueue, im: TencentServer, mysql_url: str, tmp_path: Path
) -> None:
    """G5: as a worker does."""
    with running(queue, im, mysql_url, tmp_path) as (table, daemon):
        im.behave(None, hang=True)
        table.insert([row("RoomGiftSent", n) for n in range(5)])
        daemon.wait_until(lambda: len(im.asked) >= 1, "a call")
        pid = daemon.workers(2)[WORKER]
    assert not is_running(pid)
