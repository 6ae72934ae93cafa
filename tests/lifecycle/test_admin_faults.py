"""Clients and databases that hang: neither relay nor drain nor health wait for them."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.services.admin import JSON, Answer, Client, open_connection
from tests.services.daemon import Daemon, write_config
from tests.services.find import free_port
from tests.services.lanes import table_of
from tests.services.silent import silent_server
from tests.services.slow_receiver import SlowReceiver

IDLE = 1000
EVENTS = 400
PIPELINED = 150
"""Requests that fit into what is read of a connection at once."""
PAYLOAD_BYTES = 9 * 1024 * 1024
"""Two of them are more than waitress keeps of one connection."""
PILING_UP_S = 3.0
"""Long enough for several answers to each."""
BLOCKED_S = 6.0
"""For how long a request for the database hangs."""
QUICK_S = 4.0
"""An answer that has not waited for the database, on a machine that does other things too."""


@pytest.fixture
def crowd() -> Iterator[ExitStack]:
    """Connections, closed when the test ends."""
    with ExitStack() as stack:
        yield stack


def test_connections_that_hang_hold_up_neither_relay_nor_drain(
    tmp_path: Path, sqlite_url: str, crowd: ExitStack
) -> None:
    """G5, G9: a thousand idle ones, scrapes that are never read, requests that come byte by byte."""
    address = ("127.0.0.1", free_port())
    admin = {"listen": "{}:{}".format(*address)}
    with SlowReceiver(3, 0.05) as receiver:
        publishers = {"web": {"type": "http", "url": receiver.url, "connections": 4}}
        config = write_config(
            tmp_path / "o.yaml", sqlite_url, publishers, admin=admin, concurrency=1, batch_size=20, publish_timeout="1s"
        )
        owner = Client(Path(config.admin.socket))
        with table_of(config) as table, Daemon(tmp_path / "o.yaml", tmp_path / "log") as daemon:
            daemon.admin_pid()
            for number in range(IDLE):
                connection = crowd.enter_context(open_connection(address))
                if number % 20 == 0:
                    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                elif number % 20 == 1:
                    connection.sendall(b"POST /api/dead/purge HTTP/1.1\r\nHost: loc")
            table.fill(EVENTS)
            daemon.wait_until(table.is_done, "everything to be delivered")
            assert [owner.get(target).status for target in ("/healthz", "/readyz", "/metrics")] == [200] * 3
            table.fill(EVENTS)
            daemon.wait_until(lambda: len(receiver.requests) > EVENTS, "the second lot to be under way")
            daemon.drain(1.0)
            assert [line for line in daemon.lines() if line["level"] == "error"] == []
            assert [line for line in daemon.lines() if line["event"] == "library_message"] == []


def test_a_client_that_asks_much_and_reads_nothing_blocks_no_thread(
    tmp_path: Path, sqlite_url: str, crowd: ExitStack
) -> None:
    """Answers that pile up for it are dropped with its connection, not waited for."""
    address = ("127.0.0.1", free_port())
    admin = {"listen": "{}:{}".format(*address)}
    config = write_config(tmp_path / "o.yaml", sqlite_url, {"n": {"type": "null"}}, admin=admin, concurrency=1)
    with table_of(config) as table, Daemon(tmp_path / "o.yaml", tmp_path / "log") as daemon:
        daemon.admin_pid()
        table.fill(1, event_id="x", status="failed", envelope=b"x" * PAYLOAD_BYTES)
        request = b"GET /api/dead/x HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for _ in range(10):
            crowd.enter_context(open_connection(address)).sendall(request * PIPELINED)
        client, until_s = Client(address), time.monotonic() + PILING_UP_S
        while time.monotonic() < until_s:
            assert client.get("/healthz").body == b"alive\n"
            assert client.get("/metrics").status == 200


def test_a_database_that_hangs_leaves_health_and_metrics_alone(tmp_path: Path) -> None:
    """Two requests at once wait for it, two more for their turn; the others are told at once to come again."""
    port = free_port()
    config = write_config(
        tmp_path / "o.yaml",
        f"mysql://app@127.0.0.1:{port}/app",
        {"n": {"type": "null"}},
        concurrency=1,
        publish_timeout="1s",
        database={"connect_timeout": f"{BLOCKED_S:g}s", "statement_timeout": "1s"},
    )
    owner = Client(Path(config.admin.socket))
    with Daemon(tmp_path / "o.yaml", tmp_path / "log") as daemon:
        daemon.admin_pid()
        daemon.wait_for("database_unavailable")
        away = owner.get("/api/dead")
        assert (away.status, away.headers["Retry-After"]) == (503, "5")
        assert "the database does not answer" in away.error
        with silent_server(port):
            answers: list[Answer] = []

            def ask() -> None:
                answers.append(owner.get("/api/dead/x1"))

            threads = [threading.Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            daemon.wait_until(lambda: len(answers) >= 4, "those that are too many to be told", timeout_s=QUICK_S)
            for target, status in (("/healthz", 200), ("/metrics", 200), ("/readyz", 503), ("/api/lanes", 200)):
                since_s = time.monotonic()
                assert owner.get(target).status == status
                assert time.monotonic() - since_s < QUICK_S
            assert owner.get("/readyz").json["reasons"] == ["the database does not answer"]
            for thread in threads:
                thread.join()
            assert {answer.status for answer in answers} == {503}
            assert sum("too many questions" in answer.error for answer in answers) >= 4
        told = owner.get("/api/lanes").json
        assert (told["database_up"], told["lanes"][0]["workers"][0]["state"]) == (False, "running")
        refusal = owner.ask("POST", "/api/dead/replay", b'{"all": true}', JSON)
        assert (refusal.status, "does not answer" in refusal.error) == (503, True)
        daemon.drain(1.0)
