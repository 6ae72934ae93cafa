"""MySQL or MariaDB for the tests: an address in the environment, a container, or a private server.

A private server can be stopped, killed and started again by the test that uses it; one at an address cannot.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import MySQLdb
from MySQLdb.connections import Connection

from tests.services import children
from tests.services.find import free_port, program, require
from tests.services.wait import wait_for

STARTUP_TIMEOUT_S = 60


class Server(Protocol):
    """A running server; `url` has no database name. It comes back with the same address and what it had committed."""

    @property
    def url(self) -> str: ...

    def start(self) -> None:
        """Start it if it is down, and wait until it answers."""

    def stop(self) -> None:
        """Shut it down in order."""

    def kill(self) -> None:
        """End it at once, as a crash would."""

    def restart(self) -> None:
        """Stop and start."""


def connect(url: str, timeout_s: int = 5) -> Connection:
    """A new connection, in autocommit, to the server and database of a `mysql://` URL."""
    parts = urlsplit(url)
    connection = MySQLdb.connect(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        database=parts.path.strip("/"),
        charset="utf8mb4",
        connect_timeout=timeout_s,
    )
    connection.autocommit(True)
    return connection


def execute(url: str, *statements: str) -> None:
    """Run statements on a connection of their own."""
    with closing(connect(url)) as connection:
        for statement in statements:
            connection.cursor().execute(statement)


def answers(url: str) -> bool:
    """Can one log in there now?"""
    try:
        with closing(connect(url)):
            return True
    except MySQLdb.OperationalError:
        return False


class PrivateServer:
    """A server of our own on a directory of its own. Made by start_mariadb.

    Not even temporary tables are in /tmp: a server that starts deletes all that it finds there, also another one's.
    """

    def __init__(
        self, directory: Path, port: int, binary: str, options: Mapping[str, str | int], environ: Mapping[str, str]
    ) -> None:
        self.url = f"mysql://root@127.0.0.1:{port}"
        self.log = directory / "server.log"
        data = directory / "data"
        self._command = [
            "env", *(f"{name}={value}" for name, value in environ.items()),
            binary, "--no-defaults", f"--datadir={data}", f"--port={port}", "--bind-address=127.0.0.1",
            f"--tmpdir={data}",  # a server that starts deletes what others have in a directory that they share
            # Relative to the data directory: the path of a socket may have 107 characters at the most.
            "--socket=server.sock", f"--pid-file={directory / 'server.pid'}",
            f"--tmpdir={directory}", *flags(options),
        ]  # fmt: skip
        if os.geteuid() == 0:
            self._command.append("--user=root")
        self._process: subprocess.Popen[bytes] | None = None
        if not data.exists():
            directory.mkdir(parents=True, exist_ok=True)
            _initialise(binary, data, self.log)

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def start(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self._process = children.start(self._command, self.log)
        process = self._process

        def is_up() -> bool:
            assert process.poll() is None, (
                f"the database server ended with {process.returncode}:\n{children.tail(self.log)}"
            )
            return answers(self.url)

        wait_for(is_up, STARTUP_TIMEOUT_S, f"the database server to answer (its log is {self.log})")

    def stop(self) -> None:
        if self._process is not None:
            children.stop(self._process)

    def kill(self) -> None:
        if self._process is not None:
            children.stop(self._process, signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()


def start_mariadb(
    directory: Path, port: int | None = None, environ: Mapping[str, str] | None = None, **options: str | int
) -> PrivateServer:
    """Start a private server with all its files under `directory`, on a free port unless one is given.

    Options are the server's own with underscores, `innodb_buffer_pool_size="1G"`; what is not given has the server's
    default, so every commit is durable. A directory that holds a server's data already is started as it is. The user
    is root without a password. environ: added to the test's own, for the server alone.
    """
    binary = program("mariadbd", "mysqld")
    assert binary, "there is no mariadbd or mysqld to start: install mariadb-server-core"
    server = PrivateServer(directory, port or free_port(), binary, options, environ or {})
    server.start()
    return server


def flags(options: Mapping[str, str | int]) -> list[str]:
    """A server's options as its command line has them."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


def _initialise(binary: str, data: Path, log: Path) -> None:
    """Make the system tables, with a root user that needs no password."""
    user = ["--user=root"] if os.geteuid() == 0 else []
    installer = program("mariadb-install-db")
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    if installer and "MariaDB" in version:
        command = [
            installer, "--no-defaults", f"--datadir={data}", *user,
            "--auth-root-authentication-method=normal", "--skip-name-resolve", "--skip-test-db",
            f"--tmpdir={data.parent}",
        ]  # fmt: skip
    else:
        command = [binary, "--no-defaults", "--initialize-insecure", f"--datadir={data}", *user]
    with log.open("ab") as output:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False).returncode
    if status != 0:
        shutil.rmtree(data, ignore_errors=True)  # half a data directory would be taken for a whole one
        raise AssertionError(f"{command[0]} ended with {status}:\n{children.tail(log)}")


class GivenServer:
    """The server that OUTBOXD_TEST_MYSQL_URL names: somebody else's, so a test that would end it is skipped."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def start(self) -> None:
        assert answers(self.url), "nothing answers at OUTBOXD_TEST_MYSQL_URL"

    def stop(self) -> None:
        self._refuse()

    def kill(self) -> None:
        self._refuse()

    def restart(self) -> None:
        self._refuse()

    def _refuse(self) -> None:
        require("private-mysql", None, "this test ends the server, and OUTBOXD_TEST_MYSQL_URL names one of yours")
