"""The example's room service and a relay: what is published at once, and what later."""

import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from room_service.audit import audit
from room_service.database import Database
from tests.services.daemon import Daemon, write_config
from tests.services.lanes import Table, table_of
from tests.services.mariadb import connect
from tests.services.receiver import Receiver
from tests.services.receiver_answers import Behaviour, Request
from tests.services.redis_server import RedisServer
from tests.services.room_service import Service, services
from tests.services.tencent import TencentServer
from tests.services.tencent_rooms import APP, KEYS

ROOM = "room-1"
GIFT = {"user_id": "u-1", "to_user_id": "u-2", "gift_id": "rose", "coins": 10, "count": 3}


@contextmanager
def outbox(folder: Path, url: str, receiver: Receiver, **worker: object) -> Iterator[tuple[Table, Path]]:
    """The lane's table, and the configuration of a relay to the receiver that is not started yet."""
    path = folder / "outbox.yaml"
    usual: dict[str, Any] = {"concurrency": 1, "publish_timeout": "1s", "initial_backoff": "1s"}
    config = write_config(path, url, {"web": {"type": "http", "url": receiver.url}}, **{**usual, **worker})
    with table_of(config) as table:
        yield table, path


@contextmanager
def publishing(folder: Path, url: str, redis: RedisServer, receiver: Receiver, **environ: object) -> Iterator[Service]:
    """A node that publishes at once, to the receiver, and in which a room was made while that accepted everything."""
    with services(folder, url, redis.url, "a", ACTIVITY_URL=receiver.url, **environ) as (node,):
        node.account("u-1")
        node.do(ROOM, "create", user_id="u-1", title="one")
        node.do(ROOM, "join", user_id="u-2")
        yield node


def relayed(table: Table, path: Path) -> Daemon:
    """A relay."""
    return Daemon(path, path.with_suffix(".log"))


def test_a_publish_at_once_that_fails_fails_no_command(mysql_url: str, own_redis: RedisServer, tmp_path: Path) -> None:
    """The command succeeds, the room is changed, the rows are `pending` with retry_count 0; the relay delivers them
    later, with the same event_id, and marks them delivered.
    """
    with (
        Receiver() as receiver,
        outbox(tmp_path, mysql_url, receiver) as (table, path),
        publishing(tmp_path, mysql_url, own_redis, receiver) as node,
    ):
        receiver.answer(status=500)
        before = len(receiver.requests)
        ids = node.do(ROOM, "send_gift", **GIFT)
        assert [request.event_id for request in receiver.requests[before:]] == ids
        assert (node.room(ROOM)["gifts"], node.room(ROOM)["heat"]) == (3, 30)
        for row in map(table.row, ids):
            assert (row["status"], row["retry_count"], row["last_error"]) == ("pending", 0, None)
        receiver.answer(status=200)
        with relayed(table, path) as daemon:
            daemon.wait_until(table.is_done, "the relay to deliver them")
        assert [request.event_id for request in receiver.requests[before + len(ids) :]] == ids
        for row in map(table.row, ids):
            assert (row["status"], row["retry_count"]) == ("delivered", 0)
            assert row["worker_id"]
        assert audit(Database(mysql_url)) == []


def test_a_relay_that_fails_tries_again(mysql_url: str, own_redis: RedisServer, tmp_path: Path) -> None:
    """`retryable`, retry_count + 1 and why; the next round delivers it."""
    with (
        Receiver() as receiver,
        outbox(tmp_path, mysql_url, receiver) as (table, path),
        services(tmp_path, mysql_url, own_redis.url, "a") as (node,),
        relayed(table, path) as daemon,
    ):
        node.do(ROOM, "create", user_id="u-1", title="one")
        daemon.wait_until(table.is_done, "a publisher that works")  # a failure of the first probe would not count
        receiver.answer(status=500, times=1)
        (event_id,) = node.do(ROOM, "join", user_id="u-2")
        daemon.wait_until(lambda: table.row(event_id)["status"] == "retryable", "the first try to fail")
        row = table.row(event_id)
        assert row["retry_count"] == 1
        assert "500" in str(row["last_error"])
        daemon.wait_until(table.is_done, "the next round")
        row = table.row(event_id)
        assert (row["status"], row["last_error"]) == ("delivered", None)
        assert receiver.event_ids()[1:] == [event_id] * 2


def test_what_was_published_at_once_the_relay_never_touches(
    mysql_url: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    """Marked delivered by the service itself: no worker claims it, and it arrives once."""
    with Receiver() as receiver, outbox(tmp_path, mysql_url, receiver) as (table, path), relayed(table, path) as daemon:
        daemon.workers()
        with publishing(tmp_path, mysql_url, own_redis, receiver) as node:
            node.do(ROOM, "send_gift", **GIFT)
        marker = "marker"
        table.insert([{"event_id": marker, "event_type": "Marker", "room_id": ROOM, "envelope": b"{}"}])
        daemon.wait_until(lambda: table.row(marker)["status"] == "delivered", "the relay to have looked")
        rows = [row for row in table.rows() if row["event_id"] != marker]
        assert [row["status"] for row in rows] == ["delivered"] * 4
        assert {(row["worker_id"], row["claim_token"], row["retry_count"]) for row in rows} == {("", 0, 0)}
        assert receiver.event_ids() == [*(row["event_id"] for row in rows), marker]


def test_if_the_mark_fails_the_command_succeeds_and_the_duplicate_has_the_same_id(
    mysql_url: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    """While the row is locked by somebody it cannot be marked. The relay publishes it again; Tencent IM, to which the
    service and the relay send the same `Random`, shows it once.
    """
    with Receiver() as receiver, TencentServer(KEYS) as tencent, closing(connect(mysql_url)) as locking:
        im = {"TENCENT_URL": tencent.url, "TENCENT_APP": APP, "TENCENT_KEY": KEYS[APP]}
        app = {"sdk_app_id": APP, "identifier": "administrator", "secret_key": KEYS[APP]}
        publishers: dict[str, Any] = {
            "web": {"type": "http", "url": receiver.url},
            "im": {"type": "tencent_im", "base_url": tencent.url, "apps": {"hyapp": app}},
        }
        config = write_config(tmp_path / "outbox.yaml", mysql_url, publishers, concurrency=1)
        with table_of(config) as table, publishing(tmp_path, mysql_url, own_redis, receiver, **im) as node:
            locking.autocommit(False)

            def lock(request: Request) -> Behaviour | None:
                statement = "SELECT id FROM room_outbox WHERE event_id = %s FOR UPDATE"
                locking.cursor().execute(statement, (request.event_id,))
                return None

            receiver.choose(lock)
            began_s = time.monotonic()
            (event_id,) = node.do(ROOM, "mic_up", user_id="u-2", seat=1)
            assert time.monotonic() - began_s < 10
            receiver.rules.clear()
            assert table.row(event_id)["status"] == "pending"
            assert node.room(ROOM)["seats"][1] == "u-2"
            assert "could not be changed" in node.lines("publish_now_failed")[-1]["error"]
            locking.rollback()
            with relayed(table, tmp_path / "outbox.yaml") as daemon:
                daemon.wait_until(table.is_done, "the relay to deliver it")
            assert receiver.event_ids().count(event_id) == 2
            group = tencent.apps[APP].groups[ROOM]
            shown = [data["event_id"] for data in tencent.apps[APP].data(ROOM)]
            assert (shown.count(event_id), group.repeated) == (1, 1)
            assert tencent.mistakes == []


def test_a_relay_that_is_stopped_claims_nothing_more_and_ends_in_time(
    mysql_url: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    """What is being published is given up after publish_timeout; what the service writes meanwhile stays `pending`."""
    with (
        Receiver() as receiver,
        outbox(tmp_path, mysql_url, receiver) as (table, path),
        services(tmp_path, mysql_url, own_redis.url, "a") as (node,),
    ):
        receiver.answer(hang=True)
        with relayed(table, path) as daemon:
            (event_id,) = node.do(ROOM, "create", user_id="u-1", title="one")
            daemon.wait_until(lambda: receiver.requests, "the publish to begin")
            daemon.signal(signal.SIGTERM)
            daemon.wait_for("drain_started")
            later = node.do(ROOM, "join", user_id="u-2")
            status, took_s = daemon.end(10)
            assert (status, daemon.left_behind()) == (0, [])
            assert took_s <= 1 + 2
        rows = {row["event_id"]: row for row in table.rows()}
        assert rows[event_id]["status"] == "retryable"
        assert (rows[later[0]]["status"], rows[later[0]]["claim_token"]) == ("pending", 0)
        assert receiver.event_ids() == [event_id]
