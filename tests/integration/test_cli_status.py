"""`outboxd status` and `outboxd check` beside a daemon, and without one."""

import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.cli import Cli
from tests.services.daemon import Daemon, write_config
from tests.services.find import free_port
from tests.services.lanes import table_of

ADMIN_ITEMS = ("admin.listen", "admin.socket", "admin tokens", "metrics")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "o.yaml"


@pytest.fixture
def cli(tmp_path: Path, config: Path) -> Cli:
    return Cli(tmp_path, config)


def checked(cli: Cli) -> dict[str, list[str]]:
    """Item -> results and texts of the lines of `check` about the admin role."""
    found: dict[str, list[str]] = {item: [] for item in ADMIN_ITEMS}
    for line in cli("check").out.splitlines():
        for item in ADMIN_ITEMS:
            if line[9:].startswith(f"{item}  "):
                found[item].append(f"{line[:7].strip()} {line[33:]}")
    return found


def test_status_shows_workers_and_breakers_as_the_daemon_tells_them(
    cli: Cli, config: Path, tmp_path: Path, sqlite_url: str
) -> None:
    """Who works, what they did, and why nothing goes out."""
    publishers = {"web": {"type": "http", "url": f"http://127.0.0.1:{free_port()}/"}, "bus": {"type": "null"}}
    settings = write_config(config, sqlite_url, publishers, concurrency=2)
    with table_of(settings) as table, Daemon(config, tmp_path / "log") as daemon:
        daemon.admin_pid()
        workers = daemon.workers(2)
        table.fill(40)
        daemon.wait_for("breaker_opened", 2)
        lane = cli("status", "--json").json["lanes"][0]
        assert lane["breakers"] == {"web": 2, "bus": 0}
        assert {worker["worker"]: worker["pid"] for worker in lane["workers"]} == workers
        shown = cli("status").ok().splitlines()
        titles = next(line for line in shown if line.startswith("worker"))
        assert titles.split() == ["worker", "state", "pid", "in", "flight", "delivered", "dead", "restarts"]
        rows = [line.split() for line in shown[shown.index(titles) + 1 :] if line.startswith("room_outbox-")]
        assert [row[:3] for row in rows] == [[name, "running", str(pid)] for name, pid in sorted(workers.items())]
        assert "web rests, since it kept failing: in 2 of 2 workers of room_outbox" in shown
        document = cli("status", "--json").json
        assert (document["daemon"]["node_id"], document["daemon"]["draining"]) == ("node", False)
        assert document["daemon_problem"] is None
        daemon.drain(3.0)


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[socket.socket]:
    """A listener at the daemon's socket that is no daemon."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "o.sock"))
        listener.listen()
        yield listener


def test_without_a_daemon_status_says_so_in_one_line_and_shows_the_tables(
    cli: Cli, config: Path, tmp_path: Path, sqlite_url: str
) -> None:
    """On another machine than the daemon's, or while it is down: no failure."""
    with table_of(write_config(config, sqlite_url, {"n": {"type": "null"}})) as table:
        table.fill(3)
        shown = cli("status").ok().splitlines()
        assert shown[2].split()[:2] == ["room_outbox", "3"]
        said = f"the daemon does not answer at {tmp_path}/o.sock (no such file or directory): numbers from the tables"
        assert shown[3:] == [said]
        document = cli("status", "--json").json
        assert (document["daemon"], document["daemon_problem"]) == (None, "no such file or directory")
        assert (document["lanes"][0]["workers"], document["lanes"][0]["breakers"]) == (None, None)
        assert document["lanes"][0]["fresh"] == 3


def test_a_daemon_that_does_not_answer_is_not_waited_for_long(
    cli: Cli, config: Path, sqlite_url: str, answering: socket.socket
) -> None:
    """It hangs, or something else has its socket; and then nobody listens there any more."""
    with table_of(write_config(config, sqlite_url, {"n": {"type": "null"}})):
        assert "(no answer within 2 s): numbers from the tables" in cli("status").ok()
        answering.close()
        assert "(connection refused): numbers from the tables" in cli("status").ok()


def test_status_shows_the_workers_while_the_database_is_away(cli: Cli, config: Path, tmp_path: Path) -> None:
    """Then they are all that can be seen. The failure is told as ever."""
    write_config(config, f"mysql://app@127.0.0.1:{free_port()}/app", {"n": {"type": "null"}}, concurrency=1)
    with Daemon(config, tmp_path / "log") as daemon:
        daemon.admin_pid()
        daemon.wait_for("database_unavailable")
        shown = cli("status")
        assert "is it up" in shown.failed()
        assert "room_outbox-01  running" in shown.out
        assert "the daemon does not reach the database" in shown.out


# check


def test_check_tells_whether_the_admin_role_could_start(
    cli: Cli, config: Path, tmp_path: Path, sqlite_url: str
) -> None:
    """Before the start, and while it runs."""
    port = free_port()
    (tmp_path / "token").write_text("the-token-of-this-test")
    admin = {"listen": f"127.0.0.1:{port}", "token_file": str(tmp_path / "token")}
    settings = write_config(config, sqlite_url, {"n": {"type": "null"}}, admin=admin, concurrency=1)
    with table_of(settings):
        assert checked(cli) == {
            "admin.listen": [f"ok 127.0.0.1:{port} is free"],
            "admin.socket": [f"ok {tmp_path}/o.sock can be made; no daemon answers"],
            "admin tokens": ["ok the API takes tokens: token_file"],
            "metrics": [f"ok a private folder in {tmp_path}"],
        }
        with Daemon(config, tmp_path / "log") as daemon:
            daemon.admin_pid()
            found = checked(cli)
            assert found["admin.listen"] == [f"ok 127.0.0.1:{port} is taken, by a daemon that answers"]
            assert found["admin.socket"] == [f"ok {tmp_path}/o.sock: a daemon answers"]
            daemon.drain(3.0)
        with socket.create_server(("127.0.0.1", port)):
            (failed,) = checked(cli)["admin.listen"]
            assert failed.startswith(f"failed 127.0.0.1:{port}: address already in use: set admin.listen")
            assert cli("check").status == 1


def test_check_warns_of_a_listener_for_others_that_has_no_token(cli: Cli, config: Path, sqlite_url: str) -> None:
    admin = {"listen": f"0.0.0.0:{free_port()}"}
    with table_of(write_config(config, sqlite_url, {"n": {"type": "null"}}, admin=admin)):
        free, warned = checked(cli)["admin.listen"]
    assert free.endswith("is free")
    assert warned.startswith("warning other machines can reach it and no token is configured")


def test_check_names_folders_that_cannot_be_written(
    cli: Cli, config: Path, tmp_path: Path, sqlite_url: str
) -> None:
    """A file in the way: root would be let in to any folder."""
    (tmp_path / "file").write_text("")
    admin = {"socket": f"{tmp_path}/file/deep/o.sock"}
    with table_of(write_config(config, sqlite_url, {"n": {"type": "null"}}, admin=admin)):
        found = checked(cli)
    said = f"failed {tmp_path}/file is no folder that can be written: set "
    assert found["admin.socket"] == [said + "admin.socket to another, or correct its rights"]
    assert found["metrics"] == [said + "admin.socket or metrics_dir to another, or correct its rights"]
    assert found["admin.listen"] == ["ok no TCP listener"]
    assert found["admin tokens"] == ["ok none: changes are taken over admin.socket only"]
    assert stat.S_ISREG((tmp_path / "file").stat().st_mode), "nothing is changed"
