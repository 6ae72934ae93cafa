"""Idempotent consumption: an event has one effect per consumer, however often and by however many it is delivered."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from outboxd.inbox import Busy, RedisInbox, check_names, first_time, forget, table_sql
from tests.services.mariadb import connect, execute
from tests.services.redis_server import client
from tests.services.wait import wait_for

Open = Callable[[], Any]


@pytest.fixture(params=["mysql", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Open]:
    """Opens connections of a consumer's own driver, to a database with the inbox and a table of effects."""
    effects = "CREATE TABLE effect (event_id VARCHAR(64) NOT NULL)"
    if request.param == "sqlite":
        path = tmp_path / "consumer.db"
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(table_sql("sqlite"))
            connection.execute(effects)
        yield lambda: sqlite3.connect(path, timeout=10, check_same_thread=False)
        return
    url = request.getfixturevalue("mysql_url")
    execute(url, table_sql("mysql"), effects)

    def open_mysql() -> Any:
        connection = connect(url)
        connection.autocommit(False)
        return connection

    yield open_mysql


def consume(connection: Any, consumer: str, event_id: str, app_code: str = "") -> bool:
    """As a consumer does it: memory and effect in one transaction."""
    cursor = connection.cursor()
    first = first_time(cursor, consumer, event_id, app_code)
    if first:
        cursor.execute(f"INSERT INTO effect (event_id) VALUES ('{event_id}')")
    connection.commit()
    return first


def effects(database: Open) -> int:
    """How many there have been."""
    with contextlib.closing(database()) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*) FROM effect")
        return int(cursor.fetchone()[0])


def test_an_event_has_one_effect_for_each_consumer_and_tenant(database: Open) -> None:
    with contextlib.closing(database()) as connection:
        assert [consume(connection, "billing", "e1") for _ in range(3)] == [True, False, False]
        assert consume(connection, "ranking", "e1")
        assert consume(connection, "billing", "e1", "another")
        assert consume(connection, "billing", "e2")
    assert effects(database) == 4


def test_a_transaction_that_is_rolled_back_has_done_nothing(database: Open) -> None:
    """Memory and effect go together: else an effect that failed would never be made good."""
    with contextlib.closing(database()) as connection:
        assert first_time(connection.cursor(), "billing", "e1")
        connection.rollback()
        assert consume(connection, "billing", "e1")
        assert not consume(connection, "billing", "e1")


def test_many_consumers_at_once_have_one_effect_for_each_event(database: Open) -> None:
    """The same event, delivered to all of them at the same moment."""
    firsts: list[str] = []

    def work() -> None:
        with contextlib.closing(database()) as connection:
            firsts.extend(f"e{number}" for number in range(50) if consume(connection, "billing", f"e{number}"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(firsts) == sorted(f"e{number}" for number in range(50))
    assert effects(database) == 50


@pytest.mark.parametrize(
    ("consumer", "event_id", "app_code"),
    [("", "e", ""), ("c" * 65, "e", ""), ("c", "", ""), ("c", "e" * 65, ""), ("c", "房", ""), ("c", "e", "a" * 33)],
)
def test_what_does_not_fit_is_refused(database: Open, consumer: str, event_id: str, app_code: str) -> None:
    """Cut off by the database, two events might look like one, and the second would be lost."""
    with contextlib.closing(database()) as connection:
        with pytest.raises(ValueError, match="does not fit"):
            first_time(connection.cursor(), consumer, event_id, app_code)
        assert consume(connection, "c" * 64, "e" * 64, "房" * 32)


def test_what_is_old_is_forgotten_a_part_at_a_time(database: Open) -> None:
    with contextlib.closing(database()) as connection:
        for number in range(7):
            consume(connection, "billing", f"e{number}")
        consume(connection, "ranking", "e1")
        time.sleep(0.01)  # so that they are older than now
        cursor = connection.cursor()
        assert forget(cursor, "billing", older_than_s=3600) == 0
        assert [forget(cursor, "billing", older_than_s=0, limit=5) for _ in range(3)] == [5, 2, 0]
        connection.commit()
        assert consume(connection, "billing", "e1")
        assert not consume(connection, "ranking", "e1")


def test_in_redis_an_event_is_done_once(redis_server: str) -> None:
    inbox = RedisInbox(client(redis_server), "test-once")
    seen = []
    for _ in range(3):
        with inbox.once("e1", "app") as first:
            seen.append(first)
    assert seen == [True, False, False]
    assert inbox.is_done("e1", "app")
    assert not inbox.is_done("e1", "another")


def test_in_redis_an_effect_that_failed_is_done_again(redis_server: str) -> None:
    inbox = RedisInbox(client(redis_server), "test-failed")
    with pytest.raises(RuntimeError), inbox.once("e1"):
        raise RuntimeError
    with inbox.once("e1") as first:
        assert first


def test_in_redis_one_that_is_being_done_is_left_to_whoever_does_it(redis_server: str) -> None:
    """It is not known yet whether it succeeds, so the message may not be acknowledged."""
    inbox = RedisInbox(client(redis_server), "test-busy")
    with inbox.once("e1"), pytest.raises(Busy), inbox.once("e1"):
        pass
    assert inbox.is_done("e1")


def test_in_redis_the_reservation_of_a_process_that_died_runs_out(redis_server: str) -> None:
    redis = client(redis_server)
    dead = RedisInbox(redis, "test-died", busy_s=0.2).once("e1")
    dead.__enter__()
    wait_for(lambda: not list(redis.scan_iter("*test-died*")), 10, "the reservation to run out")
    with RedisInbox(redis, "test-died").once("e1") as first:
        assert first


def test_in_redis_a_client_that_answers_with_text_serves_as_well(redis_server: str) -> None:
    """It is the client's own setting (decode_responses), and how many have it."""
    with contextlib.closing(Redis.from_url(redis_server, decode_responses=True)) as redis:
        inbox = RedisInbox(redis, "test-text")
        seen = []
        for _ in range(3):
            with inbox.once("e1") as first:
                seen.append(first)
        assert seen == [True, False, False]
        with pytest.raises(RuntimeError), inbox.once("e2"):
            raise RuntimeError
        assert inbox.is_done("e1")
        assert not inbox.is_done("e2")
        with inbox.once("e2") as first, pytest.raises(Busy), inbox.once("e2"):
            pass
        assert first


def test_in_redis_names_with_colons_do_not_run_into_each_other(redis_server: str) -> None:
    """Else an event that nobody has done would be passed over."""
    with contextlib.closing(client(redis_server)) as redis:
        RedisInbox(redis, "test-colon").remember("b:c", "a")
        RedisInbox(redis, "test-colon:4").remember("d")
        assert not RedisInbox(redis, "test-colon").is_done("c", "a:b")
        assert not RedisInbox(redis, "test-colon").is_done("d", "4")
        assert RedisInbox(redis, "test-colon").is_done("b:c", "a")


def test_names_can_be_looked_at_before_there_is_a_memory() -> None:
    """Whoever takes messages from a queue buries those that no memory can hold."""
    check_names("c", "e", "房")
    for names in (("", "e", ""), ("c", "房", ""), ("c", "e", "a" * 33)):
        with pytest.raises(ValueError, match="does not fit"):
            check_names(*names)
