"""outboxd.producer.record: events and the change they tell of are committed together or not at all, by every driver."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from outboxd.errors import EventRefused, ProducerMisused
from outboxd.producer import Event, record
from tests.services.callers import CALLERS, DBAPI, Caller, application, caller, connector, engine_of, rooms
from tests.services.daemon import LANE, ROOT, write_config
from tests.services.lanes import Table

PUBLISHERS = {"null": {"type": "null"}}


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> str:
    """Set by a parameter."""
    return str(request.param)


@pytest.fixture
def url(driver: str, request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("sqlite_url" if driver == "sqlite3" else "mysql_url")
    return found


@pytest.fixture
def table(url: str, tmp_path: Path) -> Iterator[Table]:
    with application(write_config(tmp_path / "outbox.yaml", url, PUBLISHERS)) as made:
        yield made


@pytest.fixture
def app(driver: str, way: str, url: str, table: Table) -> Iterator[Caller]:
    with caller(driver, way, url) as made:
        yield made


def event(**fields: Any) -> Event:
    return Event(**{"event_type": "RoomCreated", "room_id": "room-42", "envelope": {"room": 42}, **fields})


every_caller = pytest.mark.parametrize(("driver", "way"), CALLERS, indirect=["driver"])
every_driver = pytest.mark.parametrize("driver", DBAPI, indirect=True)


@every_caller
def test_an_event_is_there_if_the_transaction_commits(app: Caller, table: Table) -> None:
    """And not before."""
    app.change("room-42")
    event_id = record(app.where, event(app_code="shop", headers={"a": "b"}))
    assert table.rows() == []
    app.commit()
    (row,) = table.rows()
    assert (row["event_id"], row["app_code"], row["event_type"], row["room_id"]) == (
        event_id, "shop", "RoomCreated", "room-42",
    )  # fmt: skip
    assert (row["envelope"], row["content_type"]) == (b'{"room":42}', "application/json")
    assert json.loads(str(row["headers"])) == {"a": "b"}
    assert (row["status"], row["retry_count"], row["claim_token"], row["next_retry_at_ms"]) == ("pending", 0, 0, 0)
    assert abs(int(str(row["created_at_ms"])) - table.now_ms()) < 60_000
    assert rooms(table) == 1


@every_caller
def test_an_event_never_was_if_the_transaction_is_rolled_back(app: Caller, table: Table) -> None:
    app.change("room-42")
    record(app.where, event())
    app.rollback()
    assert (table.rows(), rooms(table)) == ([], 0)


@every_caller
def test_what_is_refused_leaves_the_transaction_as_it_was(app: Caller, table: Table) -> None:
    """The third of three does not fit: none of them is written, and the caller goes on with what it had."""
    app.change("room-42")
    kept = record(app.where, event())
    with pytest.raises(EventRefused, match="event_type has 65 characters, 64 is the most"):
        record(app.where, [event(), event(), event(event_type="T" * 65)])
    app.commit()
    assert [row["event_id"] for row in table.rows()] == [kept]
    assert rooms(table) == 1


@every_caller
def test_many_events_are_recorded_in_their_order(app: Caller, table: Table) -> None:
    """More than one INSERT holds, by number and by size; some of them delayed."""
    events = [event(room_id=f"room-{number}") for number in range(1201)]
    events += [event(envelope=bytes(300_000), content_type="application/octet-stream") for _ in range(9)]
    events += [event(delay=timedelta(hours=1)), event()]
    ids = record(app.where, events)
    assert record(app.where, []) == []
    app.commit()
    assert ids == [one.event_id for one in events]
    assert [row["event_id"] for row in table.rows()] == ids
    late = [row["event_id"] for row in table.rows("next_retry_at_ms > 0")]
    assert late == [ids[-2]]


@every_driver
@pytest.mark.parametrize("way", ["connection", "Session"])
def test_every_character_and_byte_arrives_as_it_was(app: Caller, table: Table) -> None:
    """Quotes, percent signs, zeros, emoji: nothing is escaped twice, or not at all."""
    odd = "%s ? :a 房 \N{PARTY POPPER} ' \" \\ \x00 %(b)s"
    raw = bytes(range(256)) * 5
    record(app.where, event(event_type=odd, room_id=odd, app_code=odd[:30], headers={odd: odd}, envelope=odd))
    record(app.where, event(envelope=memoryview(raw), content_type="application/octet-stream"))
    app.commit()
    text, binary = table.rows()
    assert (text["event_type"], text["room_id"], text["app_code"]) == (odd, odd, odd[:30])
    assert (text["envelope"], json.loads(str(text["headers"]))) == (odd.encode(), {odd: odd})
    assert binary["envelope"] == raw


@every_driver
@pytest.mark.parametrize("way", ["connection", "Session"])
def test_a_delayed_event_waits_by_the_databases_clock(app: Caller, table: Table) -> None:
    """Whatever the time zone of the server (here eight hours behind), of the session, or of the datetime."""
    moment = datetime.now(UTC) + timedelta(hours=2)
    elsewhere = moment.astimezone(timezone(timedelta(hours=5, minutes=45)))
    at_ms = -(-(moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))
    record(app.where, [event(deliver_at=moment), event(deliver_at=elsewhere), event(deliver_at=at_ms)])
    before_ms = table.now_ms()
    record(app.where, [event(delay=timedelta(minutes=10)), event(delay=timedelta(0))])
    after_ms = table.now_ms()
    app.commit()
    *at, later, at_once = [int(str(row["next_retry_at_ms"])) for row in table.rows()]
    assert at == [at_ms] * 3
    assert before_ms + 600_000 <= later <= after_ms + 600_000
    assert at_once == 0


@every_driver
@pytest.mark.parametrize("begun", [False, True])
def test_outside_a_transaction_nothing_is_recorded(driver: str, url: str, table: Table, begun: bool) -> None:
    """In autocommit the event would stay when the change that it tells of does not; unless a transaction was begun."""
    with closing(connector(driver, url)()) as connection:
        if driver == "sqlite3":
            connection.isolation_level = None
        else:
            connection.autocommit(True)
        cursor = connection.cursor()
        if begun:
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO room (room_id, title) VALUES ('r', 't')")
            record(cursor, event())
            cursor.execute("ROLLBACK")
            cursor.execute("BEGIN")
            record(connection, event(event_id="kept"))
            cursor.execute("COMMIT")
            assert [row["event_id"] for row in table.rows()] == ["kept"]
            assert rooms(table) == 0
        else:
            for where in (connection, cursor):
                with pytest.raises(ProducerMisused, match="no transaction is open"):
                    record(where, event())
            assert table.rows() == []


@pytest.mark.parametrize("driver", ["mysqlclient", "pymysql"], indirect=True)
def test_an_engine_in_autocommit_is_outside_a_transaction(driver: str, url: str, table: Table) -> None:
    engine = engine_of(driver, url)
    connection = engine.execution_options(isolation_level="AUTOCOMMIT").connect()
    with closing(connection), pytest.raises(ProducerMisused, match="no transaction is open"):
        record(connection, event())
    engine.dispose()
    assert table.rows() == []


@every_driver
def test_another_table_that_init_db_made_is_a_lane_of_its_own(url: str, driver: str, tmp_path: Path) -> None:
    config = write_config(tmp_path / "outbox.yaml", url, PUBLISHERS, lanes={LANE: {}, "room_robot_outbox": {}})
    with application(config) as table, closing(connector(driver, url)()) as connection:
        record(connection, event(), lane="room_robot_outbox")
        connection.commit()
        assert table.rows() == []
        assert len(Table(table.connection, "room_robot_outbox").rows()) == 1


@pytest.mark.parametrize("driver", ["pymysql"], indirect=True)
def test_rows_that_a_callers_cursors_give_as_dicts_do_not_matter(driver: str, url: str, table: Table) -> None:
    import pymysql.cursors  # noqa: PLC0415  here alone

    with closing(connector(driver, url)()) as connection:
        connection.cursorclass = pymysql.cursors.DictCursor
        event_id = record(connection, event())
        connection.commit()
    assert [row["event_id"] for row in table.rows()] == [event_id]


@pytest.mark.parametrize(
    ("driver", "scheme"), [("pymysql", "mysql+asyncmy"), ("sqlite3", "sqlite+aiosqlite")], indirect=["driver"]
)
def test_an_asynchronous_session_records_within_run_sync(url: str, driver: str, scheme: str, table: Table) -> None:
    """And says so if it is handed in by itself."""

    async def main() -> str:
        engine = create_async_engine(scheme + url[url.index(":") :])
        async with AsyncSession(engine) as session:
            with pytest.raises(TypeError, match="run_sync"):
                record(session, event())
            await session.execute(sqlalchemy.text("INSERT INTO room (room_id, title) VALUES ('r', 't')"))
            event_id = await session.run_sync(record, event())
            await session.commit()
            await session.run_sync(record, event())
            await session.rollback()
        await engine.dispose()
        return event_id

    event_id = asyncio.run(main())
    assert [row["event_id"] for row in table.rows()] == [event_id]


DJANGO = """
import json, sys
import django
from django.conf import settings
settings.configure(DATABASES={"default": json.loads(sys.argv[1])})
django.setup()
from django.db import connection, transaction
from outboxd.errors import ProducerMisused
from outboxd.producer import Event, publish_now, record, record_held
def event(event_id): return Event(event_id=event_id, event_type="T", room_id="r", envelope="{}")
try:
    record(connection, event("outside"))
except ProducerMisused as error:
    print(error)
with transaction.atomic():
    record(connection, event("kept"))
try:
    with transaction.atomic():
        record(connection, event("gone"))
        raise ZeroDivisionError
except ZeroDivisionError:
    pass
with transaction.atomic(), connection.cursor() as cursor:
    record(cursor, [event("cursor"), event("cursor-2")])
with transaction.atomic():
    held = record_held(connection, event("now"))
    try:
        publish_now(connection, held, print)
    except ProducerMisused as error:
        print(error)
    transaction.on_commit(lambda: print(publish_now(connection, held, lambda event: print("published", event.id))))
"""


@pytest.mark.parametrize("driver", ["mysqlclient", "sqlite3"], indirect=True)
def test_djangos_connection_serves_within_atomic(driver: str, url: str, table: Table) -> None:
    """Outside it Django commits every statement, which is the mistake that is made most."""
    if driver == "sqlite3":
        database: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    else:
        port, name = url.rpartition(":")[2].split("/")
        database = {"ENGINE": "django.db.backends.mysql", "NAME": name, "USER": "root", "HOST": "127.0.0.1"}
        database["PORT"] = int(port)
    run = subprocess.run(
        [sys.executable, "-c", DJANGO, json.dumps(database)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert run.returncode == 0, run.stderr
    outside, inside, published, tried = run.stdout.splitlines()
    assert "transaction.atomic()" in outside
    assert "commit before publish_now" in inside
    assert published.startswith("published ")
    assert tried == "Tried(published=True, marked=True, error='')"
    found = {row["event_id"]: row["status"] for row in table.rows()}
    assert found == {"kept": "pending", "cursor": "pending", "cursor-2": "pending", "now": "delivered"}


def test_what_is_no_connection_is_told_apart() -> None:
    for where in (None, object(), "mysql://", 7):
        with pytest.raises(TypeError, match="is no connection, cursor or session"):
            record(where, event())


def test_recording_takes_no_time_of_its_own(tmp_path: Path, sqlite_url: str) -> None:
    """The bound is generous, the machine may be busy: the benchmark measures it."""
    config = write_config(tmp_path / "outbox.yaml", sqlite_url, PUBLISHERS)
    with application(config), closing(connector("sqlite3", sqlite_url)()) as connection:
        record(connection, event())
        since_s = time.process_time()
        for _ in range(500):
            record(connection, event())
        assert (time.process_time() - since_s) / 500 < 0.002
