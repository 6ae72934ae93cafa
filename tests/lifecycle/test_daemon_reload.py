"""SIGHUP to the real daemon: events flow on, settings change, and what cannot be used is refused with its reason."""

import os
import signal
import time
from pathlib import Path

from outboxd.config.schema import Config
from tests.services.daemon import LANE, Daemon, write_config
from tests.services.find import require
from tests.services.lanes import lanes_of, published_more_than_once, table_of
from tests.services.mariadb import Server
from tests.services.receiver import Receiver
from tests.services.slow_receiver import SlowReceiver

SEED = 20_240_601
SECRET = "correct-horse-battery"


class Setting:
    """A daemon's configuration file and how it is changed."""

    def __init__(self, tmp_path: Path, url: str, receiver: Receiver) -> None:
        self.path = tmp_path / "outbox.yaml"
        self._url = url
        self.web = {"type": "http", "url": receiver.url, "connections": 8}

    def write(self, url: str | None = None, **changes: object) -> Config:
        """The file, with these keys of write_config; a publish_timeout of 1 s and two workers unless given."""
        usual: dict[str, object] = {"publish_timeout": "1s", "concurrency": 2, "batch_size": 20}
        return write_config(self.path, url or self._url, {"web": self.web}, **usual | changes)  # type: ignore[arg-type]

    def start(self) -> Daemon:
        """A run of the daemon."""
        return Daemon(self.path, self.path.with_suffix(".log"))


def reload(daemon: Daemon, outcome: str = "reload_finished", count: int = 1) -> list[str]:
    """SIGHUP, and what came of it: the errors, where there are any."""
    before = len(daemon.lines(outcome))
    daemon.signal(signal.SIGHUP)
    return [line.get("error", "") for line in daemon.wait_for(outcome, before + count)[before:]]


def running(daemon: Daemon) -> set[str]:
    """The names of the workers that run."""
    left = set(daemon.left_behind())
    return {line["worker"] for line in daemon.lines("worker_started") if line["pid"] in left}


def test_reloads_under_load_lose_nothing_and_repeat_nothing(database_url: str, tmp_path: Path) -> None:
    """G1, G5: each worker drains, what it released is claimed by the others; no attempt counts, none is made twice."""
    count = 80 if "sqlite" in database_url else 200
    with SlowReceiver(SEED, 0.3) as receiver:
        setting = Setting(tmp_path, database_url, receiver)
        with table_of(setting.write()) as table, setting.start() as daemon:
            for concurrency in (4, 1):
                table.fill(count)
                seen = len(receiver.requests)
                daemon.wait_until(lambda n=seen: len(receiver.requests) > n + 20, "the flow")  # type: ignore[misc]
                setting.write(concurrency=concurrency)
                reload(daemon)
                assert running(daemon) == {f"{LANE}-{number:02d}" for number in range(1, concurrency + 1)}
            daemon.wait_until(table.is_done, "the events to be delivered")
            daemon.drain(1.0)
            rows = table.rows()
            assert {(row["status"], row["retry_count"], row["last_error"]) for row in rows} == {("delivered", 0, None)}
            assert published_more_than_once(receiver.event_ids()) == {}
            assert len(receiver.event_ids()) == len(rows) == 2 * count
            assert {line["how"] for line in daemon.lines("worker_exited")} == {"exit status 0"}


def test_what_needs_a_restart_is_refused_by_name(sqlite_url: str, tmp_path: Path) -> None:
    """A worker with another node_id, or on another database, would not be this daemon's any more."""
    with Receiver() as receiver:
        setting = Setting(tmp_path, sqlite_url, receiver)
        with table_of(setting.write()) as table, setting.start() as daemon:
            before = daemon.workers(2)
            setting.write(url=f"mysql://relay:{SECRET}@127.0.0.1:1/app", node_id="other")
            errors = reload(daemon, "reload_refused", 2)
            assert [error.split(":")[0] for error in errors] == ["node_id", "database"]
            assert all("restart" in error for error in errors)
            assert daemon.workers(2) == before
            table.fill(5)
            daemon.wait_until(table.is_done, "the old settings to hold")
            assert SECRET not in daemon.text()


def test_a_bad_file_is_refused_with_every_problem_and_no_secret(sqlite_url: str, tmp_path: Path) -> None:
    """G11: the same lines as at the start, in the log."""
    with Receiver() as receiver:
        setting = Setting(tmp_path, sqlite_url, receiver)
        with table_of(setting.write()) as table, setting.start() as daemon:
            before = daemon.workers(2)
            text = setting.path.read_text(encoding="utf-8")
            bad = text.replace("batch_size", "batch_sise").replace(sqlite_url, f"mysql://relay:{SECRET}@:x:/app")
            setting.path.write_text(bad, encoding="utf-8")
            errors = reload(daemon, "reload_refused", 2)
            assert any("batch_sise: unknown key, did you mean batch_size?" in error for error in errors)
            assert any(error.startswith("database.url") for error in errors)
            setting.path.unlink()
            assert "outbox.yaml" in reload(daemon, "reload_refused")[0]
            assert daemon.workers(2) == before
            table.fill(5)
            daemon.wait_until(table.is_done, "the old settings to hold")
            assert SECRET not in daemon.text()


def test_a_lane_without_a_table_is_refused_and_with_one_is_relayed(mysql_url: str, tmp_path: Path) -> None:
    """The check sees it before a worker is asked to go; the remedy is named, and then it works."""
    lanes = {LANE: {}, "other_outbox": {"concurrency": 1}}
    with Receiver() as receiver:
        setting = Setting(tmp_path, mysql_url, receiver)
        with table_of(setting.write()), setting.start() as daemon:
            before = daemon.workers(2)
            config = setting.write(lanes=lanes)
            assert "init-db" in reload(daemon, "reload_refused")[0]
            assert daemon.workers(2) == before
            with lanes_of(config) as tables:
                reload(daemon)
                tables["other_outbox"].fill(5)
                daemon.wait_until(tables["other_outbox"].is_done, "the new lane's events to be delivered")
                setting.write()
                reload(daemon)
                assert running(daemon) == {f"{LANE}-01", f"{LANE}-02"}
            daemon.drain(1.0)


def test_what_starts_with_a_reload_is_made_ready_as_at_the_start(sqlite_url: str, tmp_path: Path) -> None:
    """An embedded database gets the new lane's table; a publisher that cannot be set up is refused."""
    with Receiver() as receiver:
        setting = Setting(tmp_path, sqlite_url, receiver)
        with table_of(setting.write()), setting.start() as daemon:
            daemon.workers(2)
            config = setting.write(lanes={LANE: {}, "other_outbox": {}})
            reload(daemon)
            with table_of(config, "other_outbox") as table:
                table.fill(5)
                daemon.wait_until(table.is_done, "the new lane's events to be delivered")
            setting.web = {"type": "python", "target": "no.such:thing"}
            setting.write()
            assert "no.such" in reload(daemon, "reload_refused")[0]
            daemon.drain(1.0)


def test_the_drain_budget_follows_the_new_publish_timeout(sqlite_url: str, tmp_path: Path) -> None:
    """G5: within the new publish_timeout + 2 s, and not cut off after the old one."""
    with Receiver() as receiver:
        receiver.answer(delay_s=2.3)
        setting = Setting(tmp_path, sqlite_url, receiver)
        with table_of(setting.write(publish_timeout="10ms", concurrency=1)) as table, setting.start() as daemon:
            daemon.workers(1)
            setting.write(publish_timeout="4s", concurrency=1)
            reload(daemon)
            table.fill(1)
            daemon.wait_until(lambda: receiver.requests, "the publish")
            assert daemon.drain(4.0) > 2.1
            assert table.by_status() == {"delivered": 1}


def test_the_log_changes_and_no_descriptor_is_lost(sqlite_url: str, tmp_path: Path) -> None:
    """Level and format take effect with the first worker; so does a warning about the new file."""
    with Receiver() as receiver:
        setting = Setting(tmp_path, sqlite_url, receiver)
        with table_of(setting.write()) as table, setting.start() as daemon:
            daemon.workers(2)
            descriptors = sorted(os.listdir(f"/proc/{daemon.pid}/fd"))
            for level in ("info", "debug"):
                setting.write(log_level=level, batch_size=0)
                reload(daemon)
            table.fill(1)
            daemon.wait_for("outbox_delivered")
            assert any("batch_size" in line["message"] for line in daemon.lines("config_warning"))
            assert sorted(os.listdir(f"/proc/{daemon.pid}/fd")) == descriptors


def test_a_reload_while_the_database_is_away_succeeds(mysql_server: Server, mysql_url: str, tmp_path: Path) -> None:
    """G10: as at the start; the new workers wait for it as the old ones did."""
    with Receiver() as receiver:
        setting = Setting(tmp_path, mysql_url, receiver)
        with table_of(setting.write()) as table, setting.start() as daemon:
            daemon.workers(2)
            table.fill(5)
            daemon.wait_until(table.is_done, "the events to be delivered")
            mysql_server.kill()
            try:
                setting.write(concurrency=3)
                reload(daemon)
                assert len(running(daemon)) == 3
            finally:
                mysql_server.start()
            with table_of(setting.write()) as again:
                again.fill(5)
                daemon.wait_until(again.is_done, "the events to be delivered")
            daemon.drain(1.0)


def test_a_database_that_hangs_holds_up_the_reload_but_not_the_end(
    mysql_server: Server, mysql_url: str, tmp_path: Path
) -> None:
    """G5: the check waits for it, and is not worth waiting for."""
    pid = require("private-mysql", getattr(mysql_server, "pid", None), "the database server is not a process of ours")
    with Receiver() as receiver:
        setting = Setting(tmp_path, mysql_url, receiver)
        with table_of(setting.write()), setting.start() as daemon:
            daemon.workers(2)
            text = setting.path.read_text(encoding="utf-8")
            setting.path.write_text(text.replace("supervisor:", "supervisor:\n  startup_timeout: 1s"), encoding="utf-8")
            os.kill(pid, signal.SIGSTOP)
            try:
                daemon.signal(signal.SIGHUP)
                daemon.wait_for("reload_started")
                children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children")
                daemon.wait_until(lambda: len(children.read_text("ascii").split()) == 4, "the check beside the rest")
                patience_s = time.monotonic() + 1.3
                daemon.wait_until(lambda: time.monotonic() > patience_s, "it to wait longer than a worker may")
                daemon.drain(1.0)
            finally:
                os.kill(pid, signal.SIGCONT)
            assert daemon.lines("reload_finished") + daemon.lines("worker_hung") == []
