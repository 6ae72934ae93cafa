"""A worker beats before every statement: one whose database is slow, statement after statement, does not hang."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outboxd.cli import run
from outboxd.cli.run import HEARTBEAT_MARGIN_S, relay_roles
from outboxd.config.schema import Config
from outboxd.store import connect
from outboxd.store.api import Store
from outboxd.supervisor.scoreboard import Scoreboard
from tests.services.daemon import write_config
from tests.services.lanes import table_of

NOTHING = {"nothing": {"type": "null"}}


def test_every_call_of_a_session_beats(database_url: str, tmp_path: Path) -> None:
    """G10: each may take as long as a statement may, and so does the sum of a few."""
    config = write_config(tmp_path / "outbox.yaml", database_url, NOTHING)
    beats: list[None] = []
    with closing(connect(config.database, lambda: beats.append(None))) as connection:
        assert beats, "setting the session up"
        calls: tuple[Callable[[], object], ...] = (
            lambda: connection.query("SELECT 1"),
            connection.begin,
            lambda: connection.execute("SELECT 1"),
            connection.commit,
            connection.ping,
        )
        for call in calls:
            before = len(beats)
            call()
            assert len(beats) > before


def open_store_of_the_worker(config: Config, slot: object, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store as a worker of the daemon would open it."""
    taken: list[Any] = []
    monkeypatch.setattr(run, "run_worker", lambda *arguments: taken.extend(arguments))
    relay_roles(config, list(config.lanes.values()))[0].run(SimpleNamespace(slot=slot))  # type: ignore[arg-type]
    store: Store = taken[2]()
    return store


def test_a_worker_s_session_beats_in_its_slot(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G10: where the supervisor looks for it."""
    config = write_config(tmp_path / "outbox.yaml", database_url, NOTHING)
    slot = Scoreboard(1).take("room_outbox-01")
    with table_of(config), closing(open_store_of_the_worker(config, slot, monkeypatch)) as store:
        assert 0.0 < slot.read().heartbeat_s <= time.monotonic()
        slot.beat(0.0)
        store.unfinished()
        assert 0.0 < slot.read().heartbeat_s <= time.monotonic()


@pytest.mark.parametrize("longest", ["connect_timeout", "statement_timeout", "publish_timeout"])
def test_a_worker_is_not_missed_while_it_waits_for_what_may_take_long(
    sqlite_url: str, tmp_path: Path, longest: str
) -> None:
    """G10: a worker that connects to an address which does not answer would be killed again and again."""
    times = {"connect_timeout": "1s", "statement_timeout": "1s", "publish_timeout": "1s", longest: "40s"}
    publish_timeout = times.pop("publish_timeout")
    config = write_config(
        tmp_path / "outbox.yaml", sqlite_url, NOTHING, database=times, publish_timeout=publish_timeout
    )
    (role, *_) = relay_roles(config, list(config.lanes.values()))
    assert role.heartbeat_limit_s == 40.0 + HEARTBEAT_MARGIN_S
