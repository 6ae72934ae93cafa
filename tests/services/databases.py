"""Fixtures: a database server for the whole run, a fresh database for each test."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.container import ContainerServer, engine_runs
from tests.services.find import program, require
from tests.services.mariadb import GivenServer, Server, execute, start_mariadb

OPTIONS: dict[str, str | int] = {
    "innodb_buffer_pool_size": "512M",
    # A commit survives every crash of the server, not one of the machine: that no test brings about.
    "innodb_flush_log_at_trx_commit": 2,
    # G12: whatever the server's time zone is, nothing may depend on it.
    "default_time_zone": "-08:00",
}


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[Server]:
    """The server at OUTBOXD_TEST_MYSQL_URL, else one in a container, else a private one.

    A test may stop, kill and restart it, and leaves it running or not: `mysql_url` starts it again.
    """
    address = os.environ.get("OUTBOXD_TEST_MYSQL_URL")
    if address:
        yield GivenServer(address)
    elif engine_runs():
        container = ContainerServer(OPTIONS)
        yield container
        container.remove()
    else:
        found = program("mariadbd", "mysqld")
        require("mysql", found, "there is no OUTBOXD_TEST_MYSQL_URL, no Docker engine, and no mariadbd installed")
        directory = Path(tempfile.mkdtemp(prefix="outboxd-mariadb-"))
        server = start_mariadb(directory, None, None, **OPTIONS)
        yield server
        server.stop()
        shutil.rmtree(directory)


@pytest.fixture
def mysql_url(mysql_server: Server) -> Iterator[str]:
    """`mysql://...` of an empty database, dropped when the test ends. The server is started if a test ended it."""
    name = f"test_{secrets.token_hex(6)}"
    mysql_server.start()
    execute(mysql_server.url, f"CREATE DATABASE {name}")
    yield f"{mysql_server.url}/{name}"
    mysql_server.start()
    # What a failed test left connected may hold a lock on a table; the server's own limit is a day.
    execute(mysql_server.url, "SET SESSION lock_wait_timeout = 10", f"DROP DATABASE {name}")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """`sqlite:///...` of a file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'outbox.db'}"


@pytest.fixture(params=["mysql", "sqlite"])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database: the test runs on each kind."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
