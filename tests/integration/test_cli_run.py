"""`outboxd run`: what stops it before it starts, what does not, and how it ends."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from outboxd.cli.shared import EXIT_DONE
from tests.services.cli import Cli
from tests.services.daemon import Daemon, write_config
from tests.services.find import free_port
from tests.services.lanes import table_of
from tests.services.mariadb import execute

PUBLISHERS = {"null": {"type": "null"}}
LIBRARIES = ("_mysql", "libmariadb", "libmysqlclient", "pycurl", "libcurl")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "outbox.yaml"


@pytest.fixture
def cli(tmp_path: Path, config: Path) -> Cli:
    return Cli(tmp_path, config)


def test_it_creates_an_embedded_database_and_ends_when_it_is_empty(cli: Cli, config: Path, sqlite_url: str) -> None:
    """A newcomer needs no init-db; --until-empty is for scripts and cron."""
    settings = write_config(config, sqlite_url, PUBLISHERS)
    with table_of(settings) as table:
        table.fill(300)
        assert cli("run", "--until-empty").status == EXIT_DONE
        assert table.by_status() == {"delivered": 300}


def test_a_delayed_event_is_not_waited_for(cli: Cli, config: Path, sqlite_url: str) -> None:
    """Else a script would hang for as long as any producer wished."""
    write_config(config, sqlite_url, PUBLISHERS)
    cli("enqueue", "--type", "T", "--room", "r", "--delay", "1h", "{}").ok()
    assert cli("run", "--until-empty").status == EXIT_DONE


def test_a_missing_table_stops_it_with_the_remedy(cli: Cli, config: Path, mysql_url: str) -> None:
    """G10: on MySQL the daemon creates nothing, and says who does, without forking a worker."""
    write_config(config, mysql_url, PUBLISHERS)
    said = cli("run").failed()
    assert "the table room_outbox does not exist: run `outboxd init-db`" in said
    assert mysql_url.rpartition("/")[2] in said


def test_an_older_table_stops_it_with_the_remedy(cli: Cli, config: Path, mysql_url: str) -> None:
    """G10: it would fail at every claim."""
    write_config(config, mysql_url, PUBLISHERS)
    cli("init-db").ok()
    execute(mysql_url, "ALTER TABLE room_outbox DROP COLUMN published_to")
    assert "has no column published_to: run `outboxd init-db`" in cli("run").failed()


def test_refused_credentials_stop_it_with_the_remedy(cli: Cli, config: Path, mysql_url: str) -> None:
    """G10, G11: a restart mends nothing; the password is not told."""
    address = mysql_url.replace("root@", "nobody:wrong-secret@")
    assert address != mysql_url
    write_config(config, address, PUBLISHERS)
    said = cli("run").failed()
    assert "Access denied" in said
    assert "check the user and password of database.url" in said
    assert "wrong-secret" not in said


@pytest.mark.parametrize(
    ("publisher", "message"),
    [
        ({"type": "python", "target": "no_such_module:publish"}, "cannot be imported"),
        ({"type": "python", "target": "os:no_such_function"}, "cannot be imported"),
        ({"type": "http", "url": "https://127.0.0.1/", "ca_file": "ca.pem"}, "ca_file: cannot use ca.pem"),
    ],
)
def test_a_publisher_that_cannot_be_set_up_stops_it(
    cli: Cli,
    config: Path,
    sqlite_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    publisher: dict[str, str],
    message: str,
) -> None:
    """Workers that crash for ever would hide it in the log."""
    (tmp_path / "ca.pem").write_text("no certificate")
    monkeypatch.chdir(tmp_path)
    write_config(config, sqlite_url, {"broken": publisher})
    assert message in cli("run").failed()


def test_everything_that_is_wrong_stands_in_the_one_line(cli: Cli, config: Path, mysql_url: str) -> None:
    """Who has to correct two things does not want to start it twice to learn of them."""
    write_config(config, mysql_url, {"broken": {"type": "python", "target": "no_such_module:publish"}})
    said = cli("run").failed()
    assert "run `outboxd init-db`" in said
    assert "no_such_module" in said


def test_a_module_that_ends_the_process_when_imported_does_not_end_the_daemon(
    cli: Cli, config: Path, sqlite_url: str, tmp_path: Path
) -> None:
    """Someone else's code runs in a child, never in the supervisor."""
    (tmp_path / "leaves.py").write_text("import sys; sys.exit(3)")
    write_config(config, sqlite_url, {"mine": {"type": "python", "target": "leaves:publish"}})
    assert "cannot be imported: SystemExit" in cli("run").failed()


def test_a_database_that_is_away_does_not_stop_it(config: Path, tmp_path: Path) -> None:
    """G10: away at the start is like away later: up, retried for ever, and drained with 0."""
    address = f"mysql://app@127.0.0.1:{free_port()}/app"
    write_config(config, address, PUBLISHERS, concurrency=2, publish_timeout="500ms")
    with Daemon(config, tmp_path / "log") as daemon:  # no command: it runs the daemon
        daemon.wait_for("database_unavailable", 2)
        daemon.drain(0.5)


def test_it_ends_in_time_when_asked_while_it_still_looks_at_the_database(config: Path, tmp_path: Path) -> None:
    """G5: SIGTERM in the middle of a start is no failure, and the look is not waited for."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"mysql://app@127.0.0.1:{silent.getsockname()[1]}/app"
        write_config(config, address, PUBLISHERS, database={"connect_timeout": "30s"})
        with Daemon(config, tmp_path / "log") as daemon:
            silent.settimeout(20)
            link, _ = silent.accept()
            since_s = time.monotonic()
            daemon.signal(signal.SIGTERM)
            assert daemon.end()[0] == EXIT_DONE
            assert time.monotonic() - since_s < 2
            assert daemon.text() == ""
            link.close()


def test_nothing_is_relayed_where_no_lane_is_enabled(cli: Cli, config: Path, sqlite_url: str) -> None:
    """A daemon that does nothing is a mistake in the configuration."""
    write_config(config, sqlite_url, PUBLISHERS, lanes={"room_outbox": {"enabled": False}})
    said = cli("run")
    assert said.status == 2
    assert "lanes: none is enabled" in said.err.splitlines()[-1]


def test_the_supervisor_holds_no_client_library_and_no_database(
    config: Path, tmp_path: Path, database_url: str
) -> None:
    """A handle that crosses a fork belongs to nobody; a library's threads would be lost in the child."""
    settings = write_config(config, database_url, {"null": {"type": "null"}}, concurrency=1)
    with table_of(settings), Daemon(config, tmp_path / "log") as daemon:
        daemon.workers(1)
        maps = Path(f"/proc/{daemon.pid}/maps").read_text()
        assert [name for name in LIBRARIES if name in maps] == []
        links = [os.readlink(path) for path in Path(f"/proc/{daemon.pid}/fd").iterdir()]
        bound = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
        listeners = {f"socket:[{words[6]}]" for words in bound if words[-1] == settings.admin.socket}
        assert {link for link in links if link.startswith("socket:") or ".db" in link} == listeners
        daemon.drain(3)
