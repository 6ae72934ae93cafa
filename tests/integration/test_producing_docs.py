"""docs/producing.md says what the kit does: its code runs as it stands, and every public name and field is in it."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import sessionmaker

import outboxd.producer
import outboxd.testing
from outboxd.producer import Event, doorbell, record
from outboxd.testing import make_tables
from tests.services.callers import connector, engine_of
from tests.services.redis_server import RedisServer
from tests.services.ringing import heard, hearing

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "producing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)
REDIS = "redis://redis.internal:6379/0"


@pytest.fixture(params=["mysqlclient", "sqlite3"])
def reader(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """What a reader has before the first line: a database, a connection, a session, a receiver."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite3" else "mysql_url")
    make_tables(url)
    engine = engine_of(request.param, url)
    connection = connector(request.param, url)()
    sessions = sessionmaker(engine)
    seen: list[Any] = []

    def create_room(connection: Any, room_id: str) -> None:
        record(connection, Event(event_type="RoomCreated", room_id=room_id, envelope={"room": 42}))

    yield {
        "url": url, "engine": engine, "connection": connection, "SessionLocal": sessions, "session": sessions(),
        "create_room": create_room, "receiver": seen.append, "publish": seen.append, "seen": seen, "event": None,
    }  # fmt: skip
    connection.close()
    engine.dispose()


def test_its_code_runs_as_it_stands_from_the_first_block_to_the_last(
    reader: dict[str, Any], own_redis: RedisServer
) -> None:
    """What a reader does between the blocks, by hand: commit. The last block is a conftest.py's."""
    assert len(BLOCKS) == 8
    doorbell._bells.clear()
    session, connection = reader["session"], reader["connection"]
    with hearing(own_redis.url) as subscription:
        for block in BLOCKS[:-1]:
            exec(block.replace(REDIS, own_redis.url), reader)  # the document's own code
            connection.commit()
            if "ring_after_commit" in block:
                record(session, Event(event_type="RoomCreated", room_id="room-42", envelope={}))
                session.commit()
                heard(subscription, 1)
    session.close()
    relay, publish = reader["relay"], reader["publish"]
    relay.hasten()
    relay(publish)
    assert len(publish.calls) == 2, "the reminder of the document, which was made to fail at first"
    assert reader["tried"] == outboxd.producer.Tried(True, True)
    types = [event.event_type for event in reader["seen"]]
    assert types.count("RoomCreated") >= 4
    assert types.count("RoomReminder") == 1
    doorbell._bells.clear()


def test_the_conftest_that_it_shows_names_the_plugin() -> None:
    """tests/integration/test_testing_kit.py runs one like it."""
    compile(BLOCKS[-1], "conftest.py", "exec")
    assert 'pytest_plugins = ["outboxd.testing.plugin"]' in BLOCKS[-1]


@pytest.mark.parametrize("package", [outboxd.producer, outboxd.testing])
def test_every_public_name_is_in_it(package: Any) -> None:
    """Types of what is returned, constants of the ring, and those whose use shows them are left out."""
    shown = {"REST_S", "TIMEOUT_S", "URL_VARIABLE", "Client", "Held", "Tried", "channel", "new_event_id"}
    shown |= {"Recorded", "Relayed"}
    assert [name for name in package.__all__ if name not in shown and name not in DOCUMENT] == []


def test_every_field_of_an_event_is_in_it() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| ", DOCUMENT, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    assert {field.name for field in dataclasses.fields(Event)} <= documented


def test_what_it_links_to_is_there() -> None:
    for name, anchor in re.findall(r"\]\(([a-z-]+\.md)(?:#([^)]+))?\)", DOCUMENT):
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        headings = {re.sub(r"[^a-z0-9_ -]", "", line.lower()).replace(" ", "-")
                    for line in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}  # fmt: skip
        assert not anchor or anchor in headings
