"""A database that is away, read-only or full of others' sessions, for long, under load: nothing is lost, nothing is
charged to an event, and every worker says each change of state once.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import MySQLdb
import pytest

from outboxd.config.schema import Config
from tests.services.chaos import FULL, scaled
from tests.services.cli import Cli
from tests.services.daemon import Daemon, write_config
from tests.services.lanes import table_of
from tests.services.load import DATABASE, WORKERS, Load, each_said, let_pass, own_server, prepare, under_load
from tests.services.mariadb import PrivateServer, connect, execute

AWAY_S = scaled(30.0, 5.5)
READ_ONLY_S = scaled(20.0, 2.5)
FULL_S = scaled(12.0, 1.5)
BACKLOG = scaled(3000, 600)
ROOM = 500
"""For sessions, where a test leaves it."""
SEATS = 10
"""The least that a server takes for max_connections."""


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    """One that a test may stop, kill and reconfigure."""
    with own_server(max_user_connections=ROOM) as found:
        yield found


@pytest.fixture
def config(server: PrivateServer, tmp_path: Path) -> Iterator[Config]:
    """Its administrator's, over a new database. Afterwards the server is as it was."""
    yield prepare(server, tmp_path)
    server.start()
    for name, value in {"read_only": 0, "max_connections": ROOM, "max_user_connections": ROOM}.items():
        execute(server.url, f"SET GLOBAL {name} = {value}")
    execute(server.url, f"DROP DATABASE {DATABASE}", "DROP USER 'outboxd'@'%'")


def check(load: Load) -> None:
    """G1, G8, G10: all arrived once, no attempt was counted, one line for each change of state and worker."""
    rows = load.finish()
    assert load.twice() == {}
    assert {row["retry_count"] for row in rows} == {0}
    assert load.changes() == each_said("unavailable", "available")
    load.drain()


@pytest.mark.parametrize("how", ["killed", *(["stopped"] if FULL else [])])
def test_an_outage_that_outlives_the_leases_costs_no_attempt(
    server: PrivateServer, config: Config, tmp_path: Path, how: str
) -> None:
    """G1, G8, G10: what workers held when the database went away they settle when it is back, though its lease has run
    out; whoever is back first leaves it to those who still pause.
    """
    with under_load(config, tmp_path, BACKLOG) as load:
        (server.kill if how == "killed" else server.stop)()
        load.daemon.wait_for("database_unavailable", WORKERS)
        let_pass(AWAY_S)
        server.start()
        load.are_back()
        check(load)


def test_a_server_that_turns_read_only_is_waited_for_quietly(
    server: PrivateServer, config: Config, tmp_path: Path
) -> None:
    """G1, G8, G10: sessions open, every write fails, for longer than leases last; events that an administrator adds
    meanwhile tempt every worker at each of its tries.
    """
    with under_load(config, tmp_path, BACKLOG) as load:
        execute(server.url, "SET GLOBAL read_only = 1")
        load.daemon.wait_for("database_unavailable", WORKERS)
        arrived = len(load.receiver.requests)
        load.producer.more()
        let_pass(READ_ONLY_S)
        assert load.changes() == each_said("unavailable")
        assert len(load.receiver.requests) <= arrived + 2 * WORKERS * 50, "what was claimed before, and no more"
        execute(server.url, "SET GLOBAL read_only = 0")
        load.are_back()
        check(load)


LIMITS_OF_SESSIONS = {
    1040: f"SET GLOBAL max_connections = {SEATS}",
    1203: f"SET GLOBAL max_user_connections = {SEATS}",
    1226: f"GRANT USAGE ON *.* TO 'outboxd'@'%' WITH MAX_USER_CONNECTIONS {SEATS}",
}
"""The error that a user meets who is not let in, and what makes him meet it."""


class Crowd:
    """Sessions of the daemon's own user that take up all the room there is; root is let in all the same."""

    def __init__(self, server: PrivateServer, number: int, stack: ExitStack) -> None:
        self._root = stack.enter_context(closing(connect(server.url))).cursor()
        self._url = server.url.replace("root@", "outboxd@")
        self._number = number
        self._stack = stack
        self._sessions: set[int] = set()
        self._root.execute(LIMITS_OF_SESSIONS[number])

    def fill(self) -> None:
        """Until one is refused."""
        while len(self._sessions) <= SEATS:
            try:
                session = self._stack.enter_context(closing(connect(self._url)))
            except MySQLdb.Error as error:
                if error.args[0] == self._number:
                    return
                raise
            self._sessions.add(session.thread_id())
        raise AssertionError(f"{len(self._sessions)} sessions were let in")

    def drives_out(self) -> bool:
        """End the sessions of all others and take their places: is nobody else left?"""
        self._root.execute("SELECT id FROM information_schema.processlist WHERE user = 'outboxd'")
        others = {int(row[0]) for row in self._root.fetchall()} - self._sessions
        for session in others:
            with suppress(MySQLdb.Error):  # it has ended by itself
                self._root.execute(f"KILL {session}")
        self.fill()
        return not others


@pytest.mark.parametrize("number", scaled([1040, 1203, 1226], [1040]))
def test_a_server_without_room_is_waited_for(
    server: PrivateServer, config: Config, tmp_path: Path, number: int
) -> None:
    """G1, G8, G10: too many connections, of all or of this user, are an outage like any other."""
    with under_load(config, tmp_path, BACKLOG) as load, ExitStack() as stack:
        crowd = Crowd(server, number, stack)
        load.daemon.wait_until(crowd.drives_out, "the workers to find the server full")
        load.daemon.wait_for("database_unavailable", WORKERS)
        let_pass(FULL_S)
        stack.close()
        load.are_back()
        check(load)


def test_a_server_without_room_at_the_start_is_waited_for(
    server: PrivateServer, config: Config, tmp_path: Path
) -> None:
    """G10: up, not refused, one line for each worker, and at work when there is room. Commands say it in a line."""
    with table_of(config) as table, ExitStack() as stack:
        table.fill(100)
        url = config.database.url.replace("root@", "outboxd@")
        write_config(tmp_path / "outbox.yaml", url, {"nothing": {"type": "null"}}, concurrency=WORKERS)
        Crowd(server, 1040, stack).fill()
        assert "Too many connections (1040)" in Cli(tmp_path, tmp_path / "outbox.yaml")("status").failed()
        with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            daemon.wait_for("database_unavailable", WORKERS)
            let_pass(FULL_S)
            assert len(daemon.lines("database_unavailable")) == WORKERS
            stack.close()

            def are_back() -> bool:
                table.fill(5)  # so that there is something to write
                return len(daemon.lines("database_available")) == WORKERS

            daemon.wait_until(are_back, "the workers to find room")
            daemon.wait_until(table.is_done, "everything to be delivered")
            daemon.drain(3.0)
            assert len(daemon.lines("database_unavailable")) == WORKERS
