"""The admin role as a process: its addresses are there from the start to the end, whatever becomes of it."""

import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from outboxd.admin.sockets import WITHIN_S
from tests.services.admin import Client
from tests.services.cli import Cli, Done
from tests.services.daemon import ROOT, Daemon, is_running, write_config
from tests.services.find import free_port
from tests.services.lanes import table_of
from tests.services.receiver import Receiver
from tests.services.slow_receiver import SlowReceiver

NULL = {"n": {"type": "null"}}


@pytest.fixture
def address() -> tuple[str, int]:
    return ("127.0.0.1", free_port())


def listening_at(address: tuple[str, int]) -> dict[str, object]:
    return {"listen": "{}:{}".format(*address)}


def test_an_admin_role_that_dies_is_replaced_and_the_relay_goes_on(
    tmp_path: Path, sqlite_url: str, address: tuple[str, int]
) -> None:
    """Its listeners are the supervisor's: who connects meanwhile waits for the next one, and is not refused."""
    with SlowReceiver(5, 0.05) as receiver:
        publishers = {"web": {"type": "http", "url": receiver.url, "connections": 4}}
        config = write_config(
            tmp_path / "o.yaml", sqlite_url, publishers, admin=listening_at(address), concurrency=1, batch_size=20
        )
        with table_of(config) as table, Daemon(tmp_path / "o.yaml", tmp_path / "log") as daemon:
            first = daemon.admin_pid()
            workers = daemon.workers()
            ids = table.fill(300)
            daemon.wait_until(lambda: len(receiver.requests) > 20, "some load")
            os.kill(first, signal.SIGKILL)
            assert Client(address).get("/healthz").status == 200
            assert Client(Path(config.admin.socket)).get("/healthz").status == 200
            assert daemon.admin_pid(2) != first
            daemon.wait_until(table.is_done, "everything to be delivered")
            assert daemon.workers() == workers
            assert sorted(receiver.event_ids()) == sorted(ids), "each once"
            assert "killed" in daemon.admin_lines("worker_exited")[0]["how"]
            daemon.drain(3.0)


def test_an_orphan_lets_go_of_its_addresses_and_the_next_daemon_takes_them(
    tmp_path: Path, sqlite_url: str, address: tuple[str, int]
) -> None:
    """A supervisor that was killed leaves nothing that keeps another one from starting."""
    config = write_config(tmp_path / "o.yaml", sqlite_url, NULL, admin=listening_at(address), concurrency=1)
    with table_of(config), Daemon(tmp_path / "o.yaml", tmp_path / "log") as killed:
        orphan = killed.admin_pid()
        os.kill(killed.pid, signal.SIGKILL)
        killed.process.wait()
        with Daemon(tmp_path / "o.yaml", tmp_path / "log-2") as daemon:
            assert daemon.admin_pid() != orphan
            killed.wait_until(lambda: not is_running(orphan), "the orphan to end")
            lanes = Client(address).get("/api/lanes").json["lanes"]
            assert {one["pid"] for one in lanes[0]["workers"]} == set(daemon.workers().values())
            assert Client(Path(config.admin.socket)).get("/healthz").status == 200
            daemon.drain(3.0)
    assert not Path(config.admin.socket).exists()


def test_an_address_that_stays_taken_ends_the_start_with_one_line(
    tmp_path: Path, sqlite_url: str, address: tuple[str, int]
) -> None:
    """By a stranger, or by another outboxd: after ten seconds, with 1 and what to change."""
    config = write_config(tmp_path / "o.yaml", sqlite_url, NULL, admin=listening_at(address), concurrency=1)
    (tmp_path / "second").mkdir()
    same = {"socket": config.admin.socket}
    write_config(tmp_path / "second" / "o.yaml", sqlite_url, NULL, admin=same, concurrency=1)
    write_config(tmp_path / "second" / "p.yaml", sqlite_url, NULL, admin=listening_at(address), concurrency=1)
    ended: dict[str, tuple[Done, float]] = {}

    def start(name: str) -> None:
        since_s = time.monotonic()
        ended[name] = Cli(tmp_path, tmp_path / "second" / name)("run"), time.monotonic() - since_s

    with table_of(config), Daemon(tmp_path / "o.yaml", tmp_path / "log") as daemon:
        daemon.admin_pid()
        threads = [threading.Thread(target=start, args=(name,)) for name in ("o.yaml", "p.yaml")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Client(Path(config.admin.socket)).get("/healthz").status == 200, "the first one is undisturbed"
        daemon.drain(3.0)
    told = {name: done.failed().removeprefix("outboxd: ") for name, (done, _) in ended.items()}
    assert told["o.yaml"].startswith(f"admin.socket: another outboxd holds {config.admin.socket}: stop it, or give")
    taken = "admin.listen: {}:{}: Address already in use; set admin.listen to an address that is free"
    assert told["p.yaml"].startswith(taken.format(*address))
    assert all(WITHIN_S <= took_s < 2 * WITHIN_S for _, took_s in ended.values()), ended


def test_a_taken_address_is_waited_for_and_a_signal_ends_the_wait(
    tmp_path: Path, sqlite_url: str, address: tuple[str, int]
) -> None:
    """Whoever holds it may let go; who wants to end does not want to wait."""
    config = write_config(tmp_path / "o.yaml", sqlite_url, NULL, admin=listening_at(address), concurrency=1)
    with table_of(config), Daemon(tmp_path / "o.yaml", tmp_path / "log") as daemon:
        with socket.create_server(address):
            started_s = time.monotonic()
            daemon.wait_until(lambda: Path(config.admin.socket).exists(), "its turn at the addresses")
        daemon.admin_pid()
        assert time.monotonic() - started_s < WITHIN_S
        assert daemon.end_after(signal.SIGTERM) == 0
    with socket.create_server(address), Daemon(tmp_path / "o.yaml", tmp_path / "log-2") as daemon:
        daemon.wait_until(lambda: Path(config.admin.socket).exists(), "its turn at the addresses")
        assert daemon.end_after(signal.SIGTERM) == 0
        assert daemon.text() == ""


def test_a_reload_refuses_a_change_of_the_admin_role_by_name(
    tmp_path: Path, sqlite_url: str, address: tuple[str, int]
) -> None:
    """Listeners are bound once; what runs goes on as it was."""
    path = tmp_path / "o.yaml"
    config = write_config(path, sqlite_url, NULL, concurrency=1)
    with table_of(config), Daemon(path, tmp_path / "log") as daemon:
        admin = daemon.admin_pid()
        write_config(path, sqlite_url, NULL, admin=listening_at(address), concurrency=1)
        daemon.signal(signal.SIGHUP)
        told = [line["error"] for line in daemon.wait_for("reload_refused")]
        assert told == ["admin: changed, which needs a restart; put the old value back, or restart outboxd"]
        assert daemon.admin_pid() == admin
        assert Client(Path(config.admin.socket)).get("/healthz").status == 200
        daemon.drain(3.0)


def test_told_to_end_while_it_still_loads_its_libraries_it_ends_at_once(tmp_path: Path, sqlite_url: str) -> None:
    """G5: on a busy machine that takes longer than the supervisor waits; to be killed would make the status 1."""
    (tmp_path / "flask.py").write_text("import time\ntime.sleep(60)\n")
    config = write_config(tmp_path / "o.yaml", sqlite_url, NULL, concurrency=1)
    path = f"{tmp_path}:{ROOT}"
    with table_of(config), Daemon(tmp_path / "o.yaml", tmp_path / "log", PYTHONPATH=path) as daemon:
        daemon.workers()
        daemon.wait_until(lambda: daemon.admin_lines("worker_started"), "the admin role to begin")
        daemon.drain(3.0)
        assert daemon.admin_lines("admin_listens") == []
        assert daemon.admin_lines("worker_exited")[0]["how"] == "exit status 0"


def test_readiness_says_that_the_daemon_ends_until_its_workers_have(tmp_path: Path, sqlite_url: str) -> None:
    """G5: a load balancer or a person sees it, as long as there is something to see. Health stays as it is."""
    with Receiver() as receiver:
        receiver.answer(hang=True)
        publishers = {"web": {"type": "http", "url": receiver.url}}
        config = write_config(tmp_path / "o.yaml", sqlite_url, publishers, concurrency=1, publish_timeout="3s")
        owner = Client(Path(config.admin.socket))
        with table_of(config) as table, Daemon(tmp_path / "o.yaml", tmp_path / "log") as daemon:
            daemon.admin_pid()
            daemon.wait_until(lambda: owner.get("/readyz").status == 200, "it to be ready")
            assert owner.get("/readyz").json == {"ready": True, "reasons": []}
            table.fill(1)
            daemon.wait_until(lambda: receiver.requests, "a publish in flight")
            since_s = time.monotonic()
            daemon.signal()
            daemon.wait_for("drain_started")
            draining = owner.get("/readyz")
            assert draining.status == 503
            assert "everything ends: the daemon was told to stop" in draining.json["reasons"]
            assert owner.get("/healthz").status == 200
            assert owner.get("/api/lanes").json["draining"] is True
            status, _ = daemon.end()
            assert (status, daemon.left_behind()) == (0, [])
            assert time.monotonic() - since_s < 5.0
