"""Workers with a client of every kind in them, killed and replaced again and again: clients are made after the fork, so
that no child hangs in what a library thinks it still has, and none leaves anything behind."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.services.chaos import scaled
from tests.services.daemon import Daemon, most_memory_bytes, write_config
from tests.services.grpc_server import start_grpc_server
from tests.services.lanes import Table, table_of
from tests.services.processes import connections_to
from tests.services.queues import QUEUES
from tests.services.tencent import TencentServer
from tests.services.tencent_rooms import APP, KEYS
from tests.services.tencent_state import ADMIN

KILLS = scaled(200, 8)
MB = 1_000_000
MOST_CONNECTIONS = 24
"""Of one worker, whatever its client, and of the test itself."""
ENVELOPE = b'{"event_id": "e", "event_type": "RoomGiftSent"}'


class Client(NamedTuple):
    """What the configuration says: publishers, sections, the worker's own keys. port: of the server."""

    publishers: dict[str, Any]
    sections: dict[str, Any]
    worker: dict[str, Any]
    port: int


@contextmanager
def queue_client(request: pytest.FixtureRequest, name: str) -> Iterator[Client]:
    """One of the queues."""
    with QUEUES[name](request) as queue:
        worker = {"publish_mode": "mq", "mq": queue.name, "direct": []}
        yield Client(queue.publishers(), queue.sections(), worker, queue.port)


@contextmanager
def grpc_client(request: pytest.FixtureRequest, name: str) -> Iterator[Client]:
    """The activity service."""
    server = start_grpc_server(request.getfixturevalue("tmp_path"))
    yield Client({"activity": {"type": name, "target": server.target}}, {}, {}, server.port)
    server.stop()


@contextmanager
def tencent_client(_: pytest.FixtureRequest, name: str) -> Iterator[Client]:
    """Tencent IM."""
    with TencentServer(KEYS) as server:
        apps = {"app": {"sdk_app_id": APP, "identifier": ADMIN, "secret_key": KEYS[APP]}}
        settings = {"type": name, "base_url": server.url, "apps": apps}
        yield Client({"im": settings}, {}, {}, server.receiver.port)


KINDS = {**dict.fromkeys(QUEUES, queue_client), "activity_grpc": grpc_client, "tencent_im": tencent_client}


def is_delivered(table: Table, event_id: str) -> bool:
    """Is it?"""
    return table.row(event_id)["status"] == "delivered"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_worker_that_is_killed_again_and_again_always_comes_back_and_leaks_nothing(
    request: pytest.FixtureRequest, mysql_url: str, tmp_path: Path, kind: str
) -> None:
    """G1, G9: every child publishes; in the end everything has arrived, and nothing is left but the connections of one
    worker and the memory that the supervisor had in the beginning."""
    with ExitStack() as stack:
        client = stack.enter_context(KINDS[kind](request, kind))
        config = write_config(
            tmp_path / "outbox.yaml", mysql_url, client.publishers, sections=client.sections, concurrency=1,
            publish_timeout="1s", lease="5s", initial_backoff="100ms", max_backoff="200ms", max_retry_count=1000,
            supervisor={"restart_backoff": "10ms", "restart_backoff_max": "10ms"}, **client.worker,
        )  # fmt: skip
        table = stack.enter_context(table_of(config))
        daemon = stack.enter_context(Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log"))
        memory_bytes = 0
        for number in range(1, KILLS + 1):
            pid = daemon.wait_for("worker_started", number)[-1]["pid"]
            fresh = table.fill(3, envelope=ENVELOPE)[0]
            there = partial(is_delivered, table, fresh)
            daemon.wait_until(there, f"worker number {number} to publish", timeout_s=40)
            table.fill(10, envelope=ENVELOPE)  # something to be in the middle of
            os.kill(pid, signal.SIGKILL)
            if number == 3:
                memory_bytes = most_memory_bytes(daemon.pid)
        daemon.wait_for("worker_started", KILLS + 1)
        daemon.wait_until(table.is_done, "everything to be relayed", timeout_s=60)
        assert table.by_status() == {"delivered": 13 * KILLS}
        assert most_memory_bytes(daemon.pid) < memory_bytes + 5 * MB
        assert connections_to(client.port) <= MOST_CONNECTIONS
        daemon.drain(1.0)
