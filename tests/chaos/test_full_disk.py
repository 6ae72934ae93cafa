"""The disk of the database is full, under load: that is an outage like any other, and ends when there is room again."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from outboxd.config.schema import Config
from tests.services.chaos import FULL, scaled
from tests.services.daemon import write_config
from tests.services.find import require
from tests.services.load import DATABASE, LIMITS, WORKERS, each_said, let_pass, own_server, prepare, under_load
from tests.services.mariadb import PrivateServer

BACK_S = 90.0
"""A server that waits for room in its binary log looks again once a minute."""

Places = Callable[[Path, Path], AbstractContextManager[tuple[Config, PrivateServer | None]]]
FULL_S = scaled(20.0, 1.5)
BACKLOG = scaled(6000, 1000)


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A file system of its own, in memory."""
    directory = Path(tempfile.mkdtemp(prefix="outboxd-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(directory)]
    failed = subprocess.run(command, capture_output=True, check=False).returncode
    try:
        require("mount", None if failed else directory, "a small file system cannot be mounted here (root may)")
        yield directory
    finally:
        if not failed:
            subprocess.run(["umount", "--lazy", str(directory)], check=True)
        shutil.rmtree(directory)


class Ballast:
    """A file that takes what is left of a disk."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "ballast"

    def fill(self) -> None:
        """To the last byte; what was given back since, too."""
        with self._path.open("ab", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:  # no space left
                os.fsync(file.fileno())

    def remove(self) -> None:
        """There is room again."""
        self._path.unlink()


@contextmanager
def tables_on(disk: Path, tmp_path: Path) -> Iterator[tuple[Config, PrivateServer | None]]:
    """The tables alone: what makes them grow is refused, while the server goes on."""
    with own_server() as server:
        (disk / DATABASE).mkdir()
        (server.log.parent / "data" / DATABASE).symlink_to(disk / DATABASE)
        yield prepare(server, tmp_path), server


@contextmanager
def binary_log_on(disk: Path, tmp_path: Path) -> Iterator[tuple[Config, PrivateServer | None]]:
    """What replicas and backups read, written at each commit."""
    with own_server(log_bin=str(disk / "bin"), server_id=1) as server:
        yield prepare(server, tmp_path), server


@contextmanager
def server_on(disk: Path, tmp_path: Path) -> Iterator[tuple[Config, PrivateServer | None]]:
    """All that the server has; sooner or later it ends by itself."""
    with own_server(disk) as server:
        yield prepare(server, tmp_path), server


@contextmanager
def sqlite_on(disk: Path, tmp_path: Path) -> Iterator[tuple[Config, PrivateServer | None]]:
    """A file and its write-ahead log."""
    url = f"sqlite:///{disk / 'outbox.db'}"
    yield write_config(tmp_path / "admin.yaml", url, {"nothing": {"type": "null"}}, database=LIMITS), None


@pytest.mark.parametrize(
    ("place", "megabytes"),
    [(tables_on, 60), *([(server_on, 160), (binary_log_on, 8), (sqlite_on, 20)] if FULL else [])],
)
def test_a_full_disk_is_waited_for(place: Places, megabytes: int, tmp_path: Path) -> None:
    """G1, G8, G10: each worker says it once, nothing is lost, nothing arrives twice, no attempt is counted. Afterwards
    it goes on by itself; a server that ended is started again, as its service manager would.
    """
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(megabytes))
        config, server = stack.enter_context(place(disk, tmp_path))
        load = stack.enter_context(under_load(config, tmp_path, BACKLOG))
        ballast = Ballast(disk)

        def is_noticed() -> bool:
            ballast.fill()
            return len(load.daemon.lines("database_unavailable")) >= WORKERS

        load.daemon.wait_until(is_noticed, "every worker to meet the full disk")
        let_pass(FULL_S)
        ballast.remove()
        if server is not None:
            server.start()
        load.are_back(BACK_S)
        rows = load.finish()
        assert load.twice() == {}
        assert {row["retry_count"] for row in rows} == {0}
        assert load.changes() == each_said("unavailable", "available")
        assert len(load.daemon.lines("worker_batch_failed")) <= 2 * WORKERS, "one line, however long locks are kept"
        load.drain()
