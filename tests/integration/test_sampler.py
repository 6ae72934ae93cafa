"""What is known of the database when nobody waits for it: whether it answers is fresh, numbers are not dear."""

from functools import partial
from pathlib import Path

import pytest

from outboxd.admin import sampler
from outboxd.admin.sampler import Sampler
from outboxd.config.schema import Config
from outboxd.store import connect
from outboxd.store.connection import Connection
from tests.services.daemon import write_config
from tests.services.lanes import table_of
from tests.services.mariadb import Server, execute
from tests.services.wait import wait_for

NULL = {"nothing": {"type": "null"}}


def made(config: Config, opened: list[Connection]) -> Sampler:
    """One that runs; its sessions are told in `opened`."""

    def open_one() -> Connection:
        opened.append(connect(config.database))
        return opened[-1]

    asking = Sampler(list(config.lanes.values()), open_one)
    asking.start()
    return asking


def test_a_session_that_has_ended_is_no_database_that_is_away(
    mysql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends one that was silent for 30 s, an administrator any: readiness must not see an outage in it."""
    monkeypatch.setattr(sampler, "EVERY_S", 0.4)
    config = write_config(tmp_path / "outbox.yaml", mysql_url, NULL)
    with table_of(config):
        opened: list[Connection] = []
        asking = made(config, opened)
        assert asking.sample().is_up
        seen: list[bool] = []

        def is_replaced(number: int) -> bool:
            seen.append(asking.sample().is_up)
            return len(opened) > number

        for number in range(1, 4):
            execute(mysql_url, *(f"KILL {session}" for session in sessions_of(config)))
            wait_for(partial(is_replaced, number), 10, "another session")
        assert all(seen)


def test_whether_it_answers_is_not_put_off_by_a_slow_look(
    mysql_server: Server, mysql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G10: numbers of a large table rest for twenty times as long as they took; readiness cannot wait so long,
    neither for the end of an outage nor for its beginning."""
    monkeypatch.setattr(sampler, "EVERY_S", 0.05)
    monkeypatch.setattr(sampler, "SHARE", 1e9)
    config = write_config(tmp_path / "outbox.yaml", mysql_url, NULL)
    with table_of(config):
        asking = made(config, [])
        first = asking.sample()
        assert (first.is_up, set(first.lanes)) == (True, set(config.lanes))
        wait_for(lambda: asking.sample().at_s > first.at_s, 10, "another look")
        assert asking.sample().numbers_at_s == first.numbers_at_s, "numbers rest, and are still shown"
        mysql_server.stop()
        wait_for(lambda: not asking.sample().is_up, 10, "the outage to be seen")
        assert asking.sample().lanes == {}
        mysql_server.start()
        wait_for(lambda: asking.sample().is_up and asking.sample().lanes, 10, "the end of the outage to be seen")


def sessions_of(config: Config) -> list[int]:
    """Sessions of the lane's database beside our own."""
    onlooker = connect(config.database)
    try:
        rows = onlooker.query(
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        )
        return [int(row[0]) for row in rows]
    finally:
        onlooker.close()
