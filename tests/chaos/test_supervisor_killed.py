"""kill -9 of the supervisor, whatever it and its children are doing: nobody goes on without it."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.services.daemon import Daemon, is_running, write_config
from tests.services.find import require
from tests.services.hanging import VARIABLE, has_hung
from tests.services.lanes import Table, table_of
from tests.services.mariadb import Server
from tests.services.processes import children_of, descendants_of
from tests.services.receiver import Receiver
from tests.services.sessions import sessions
from tests.services.wait import let_pass, wait_for

WORKERS = 2
PUBLISH_TIMEOUT_S = 0.5
GONE_WITHIN_S = 5.0


@dataclass
class Scene:
    """What a daemon is brought into a state with. before, after: what is to be undone before its children are looked
    for, once the supervisor is dead, and what after that.
    """

    directory: Path
    url: str
    server: Server
    receiver: Receiver
    before: ExitStack = field(default_factory=ExitStack)
    after: ExitStack = field(default_factory=ExitStack)

    def start(self, publisher: dict[str, object] | None = None, url: str | None = None) -> Daemon:
        """The daemon of this scene, over HTTP unless another publisher is given."""
        web = {"type": "http", "url": self.receiver.url, "connections": 4}
        config = write_config(
            self.directory / "outbox.yaml",
            url or self.url,
            {"web": publisher or web},
            concurrency=WORKERS,
            publish_timeout=f"{int(PUBLISH_TIMEOUT_S * 1000)}ms",
            lease="30s",
            database={"connect_timeout": "30s", "statement_timeout": "20s"},
        )
        if url is None:
            with table_of(config):
                pass
        hang = self.directory / "hang"
        hang.mkdir()
        daemon = Daemon(self.directory / "outbox.yaml", self.directory / "daemon.log", **{VARIABLE: str(hang)})
        return self.after.enter_context(daemon)

    @contextmanager
    def table(self) -> Iterator[Table]:
        """Its lane."""
        with table_of(write_config(self.directory / "other.yaml", self.url, {"n": {"type": "null"}})) as table:
            yield table

    def connected(self, daemon: Daemon) -> None:
        """Every worker has its session."""
        daemon.wait_until(lambda: sessions(self.url) == WORKERS, "a session for each worker")

    def freeze_database(self) -> None:
        """It answers again when everything is over."""
        pid = getattr(self.server, "pid", None)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        self.after.callback(os.kill, pid, signal.SIGCONT)


def idle(scene: Scene) -> Daemon:
    """Connected, and nothing to do."""
    daemon = scene.start()
    scene.connected(daemon)
    return daemon


def publishing(scene: Scene) -> Daemon:
    """The receiver takes events and does not answer."""
    daemon = idle(scene)
    scene.receiver.answer(hang=True)
    with scene.table() as table:
        table.fill(20)
    daemon.wait_until(lambda: len(scene.receiver.requests) >= WORKERS, "publishes to hang")
    return daemon


def draining(scene: Scene) -> Daemon:
    """And it has been told to end."""
    daemon = publishing(scene)
    daemon.signal()
    daemon.wait_for("drain_started", 1 + WORKERS)
    return daemon


def without_a_database(scene: Scene) -> Daemon:
    """Every worker is in a statement that gets no answer."""
    daemon = idle(scene)
    scene.freeze_database()
    let_pass(0.5)  # more than a poll_interval
    return daemon


def reloading(scene: Scene) -> Daemon:
    """The check of the new settings waits for the database."""
    daemon = without_a_database(scene)
    daemon.signal(signal.SIGHUP)
    daemon.wait_until(lambda: len(children_of(daemon.pid)) == WORKERS + 2, "the check to run beside the rest")
    return daemon


def looking_before_the_start(scene: Scene) -> Daemon:
    """No worker is forked yet: a child looks at a database that does not answer."""
    silent = scene.after.enter_context(socket.create_server(("127.0.0.1", 0)))
    daemon = scene.start(url=f"mysql://app@127.0.0.1:{silent.getsockname()[1]}/app")
    silent.settimeout(20)
    scene.after.enter_context(silent.accept()[0])
    return daemon


def setting_up_a_publisher(scene: Scene) -> Daemon:
    """One worker hangs in it, and is not up yet."""
    daemon = scene.start({"type": "python", "target": "tests.services.hanging:HangingAtBoot"})
    daemon.wait_until(lambda: has_hung(scene.directory / "hang", "boot"), "a worker to hang")
    return daemon


def with_a_stopped_worker(scene: Scene) -> Daemon:
    """It goes on when the supervisor is gone."""
    daemon = idle(scene)
    victim = min(daemon.workers(WORKERS).values())
    os.kill(victim, signal.SIGSTOP)
    scene.before.callback(os.kill, victim, signal.SIGCONT)
    return daemon


STATES = (
    idle, publishing, draining, without_a_database, reloading, looking_before_the_start, setting_up_a_publisher,
    with_a_stopped_worker,
)  # fmt: skip


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_nobody_outlives_a_supervisor_that_is_killed(
    mysql_server: Server, mysql_url: str, tmp_path: Path, state: Callable[[Scene], Daemon]
) -> None:
    """G2, G5: its children end by themselves within seconds, and none of them keeps a session of the database, which
    might hold locks.
    """
    require("private-mysql", getattr(mysql_server, "pid", None), "the database server is not a process of ours")
    with Receiver() as receiver:
        scene = Scene(tmp_path, mysql_url, mysql_server, receiver)
        with scene.after, scene.before:
            daemon = state(scene)
            family = descendants_of(daemon.pid)
            assert family, "nobody to outlive it"
            daemon.signal(signal.SIGKILL)
            daemon.end()
            scene.before.close()
            wait_for(lambda: not any(map(is_running, family)), GONE_WITHIN_S, f"{family} to end")
        wait_for(lambda: sessions(mysql_url) == 0, GONE_WITHIN_S, "their sessions to end")
