"""outboxd.testing, as an application's own tests use it: on MariaDB and SQLite, with the tables and the store of the
daemon."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from outboxd.errors import Reject
from outboxd.event import Event as Relayed
from outboxd.producer import Event, publish_now, record, record_held
from outboxd.testing import FAIL, HANG, LOSE_ANSWER, Faulty, OutboxRecorder, Relay, make_tables, relay_all
from outboxd.testing.faults import Fault
from tests.services.callers import WAYS, caller, connector, engine_of
from tests.services.daemon import ROOT


@pytest.fixture(params=["mysqlclient", "pymysql", "sqlite3"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(driver: str, request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("sqlite_url" if driver == "sqlite3" else "mysql_url")
    make_tables(found)
    return found


@pytest.fixture
def connection(driver: str, url: str) -> Iterator[Any]:
    with closing(connector(driver, url)()) as made:
        yield made


both = pytest.mark.parametrize("driver", ["mysqlclient", "sqlite3"], indirect=True)


def event(event_id: str = "e1", **fields: Any) -> Event:
    usual = {"event_type": "RoomCreated", "room_id": "room-42", "envelope": {"room": 42}}
    return Event(event_id=event_id, **{**usual, **fields})


@pytest.mark.parametrize("way", WAYS)
def test_a_recorder_sees_what_its_transaction_has_recorded(driver: str, url: str, way: str) -> None:
    """What was there before is not told, what is rolled back is gone; it leaves no transaction open."""
    with caller(driver, way, url) as app:
        record(app.where, event("before"))
        app.commit()
        with OutboxRecorder(app.where) as outbox:
            record(app.where, [event("e1", headers={"a": "b"}), event("e2", event_type="RoomClosed", app_code="shop")])
        assert outbox.types == ["RoomCreated", "RoomClosed"]
        first = outbox.only("RoomCreated")
        assert (first.event_id, first.room_id, first.json, first.headers) == ("e1", "room-42", {"room": 42}, {"a": "b"})
        assert [one.app_code for one in outbox.of_type("RoomClosed")] == ["shop"]
        assert [one.status for one in outbox.events] == ["pending", "pending"]
        with pytest.raises(AssertionError, match="0 events of type RoomOpened were recorded; all types: "):
            outbox.only("RoomOpened")
        app.rollback()
        assert outbox.events == []
        record(app.where, event("e3"))
        app.commit()
        assert [one.event_id for one in outbox.events] == ["e3"]


@both
def test_a_recorder_on_a_connection_of_its_own_sees_what_others_commit(driver: str, url: str, connection: Any) -> None:
    """Look after look: no snapshot of its first one stays."""
    outbox = OutboxRecorder(connection)
    assert outbox.events == []
    with closing(connector(driver, url)()) as application:
        record(application, event())
        assert outbox.events == []
        application.commit()
    assert outbox.types == ["RoomCreated"]


def test_everything_that_is_due_is_relayed_in_order(driver: str, url: str, connection: Any) -> None:
    """More than a claim takes, with what had waited before what is new; delivered once."""
    record(connection, [event(f"a{number}", delay=timedelta(hours=1)) for number in range(3)])
    record(connection, [event(f"b{number}") for number in range(1201)])
    connection.commit()
    relay = Relay(url)
    assert relay.hasten() == 3
    seen: list[Relayed] = []
    done = relay(seen.append)
    assert [one.event_id for one in seen] == [f"a{n}" for n in range(3)] + [f"b{n}" for n in range(1201)]
    assert [one.event_id for one in done.delivered] == [one.event_id for one in seen]
    assert (done.failures, relay(seen.append).delivered) == ({}, [])
    assert (seen[0].envelope, seen[0].lane, seen[0].retry_count) == (b'{"room":42}', "room_outbox", 0)


@both
def test_what_is_delayed_or_held_waits_unless_time_passes(driver: str, url: str, connection: Any) -> None:
    record(connection, event("later", delay=timedelta(days=30)))
    held = record_held(connection, event("held"))
    connection.commit()
    relay = Relay(url)
    assert relay(print).delivered == []
    assert publish_now(connection, held, lambda held: None).marked
    assert relay.hasten() == 1
    assert [one.event_id for one in relay(lambda event: None).delivered] == ["later"]


@both
def test_a_failure_is_tried_again_with_the_same_id(driver: str, url: str, connection: Any) -> None:
    """As the daemon does it: retry_count rises, the text of the failure stands in the row."""
    record(connection, [event("e1"), event("e2"), event("e3")])
    connection.commit()
    received: list[str] = []
    publish = Faulty(lambda event: received.append(event.event_id), {2: FAIL})
    relay = Relay(url)
    assert relay(publish).failures == {"e2": "Fault: call 2 was made to fail"}
    assert (received, relay(publish).delivered) == (["e1", "e3"], []), "it waits for its next try"
    relay.hasten()
    (second,) = relay(publish).delivered
    assert (second.event_id, second.retry_count, second.last_error) == ("e2", 1, "Fault: call 2 was made to fail")
    assert received == ["e1", "e3", "e2"]


@both
def test_a_lost_answer_makes_a_duplicate(driver: str, url: str, connection: Any) -> None:
    """What a consumer has to bear."""
    record(connection, event("e1"))
    connection.commit()
    received: list[str] = []
    publish = Faulty(lambda event: received.append(event.event_id), {1: LOSE_ANSWER})
    relay = Relay(url)
    assert list(relay(publish).failures) == ["e1"]
    relay.hasten()
    assert relay(publish).failures == {}
    assert received == publish.calls == ["e1", "e1"]


@both
def test_a_publish_that_hangs_is_given_up(driver: str, url: str, connection: Any) -> None:
    record(connection, [event("e1"), event("e2")])
    connection.commit()
    received: list[str] = []
    publish = Faulty(lambda event: received.append(event.event_id), {1: HANG})
    done = relay_all(url, publish, publish_timeout_s=0.2)
    publish.release()
    assert list(done.failures) == ["e1"]
    assert "did not return within 0.2 s" in done.failures["e1"]
    assert received == ["e2"]


@both
def test_what_is_rejected_or_too_large_is_dead(driver: str, url: str, connection: Any) -> None:
    record(connection, [event("no"), event("big", envelope=b"x" * 9_000_000)], max_event_bytes=10_000_000)
    connection.commit()

    def reject(event: Relayed) -> None:
        raise Reject("no such room")

    done = relay_all(url, reject)
    assert done.failures["no"] == "rejected: no such room"
    assert "larger than max_event_bytes" in done.failures["big"]
    assert sorted(done.dead) == ["big", "no"]


@both
def test_what_is_recorded_while_it_relays_is_relayed_too(driver: str, url: str, connection: Any) -> None:
    """A receiver that answers with an event of its own."""
    record(connection, event("first"))
    connection.commit()

    def answer(got: Relayed) -> None:
        if got.event_id == "first":
            with closing(connector(driver, url)()) as own:
                record(own, event("second"))
                own.commit()

    assert [one.event_id for one in relay_all(url, answer).delivered] == ["first", "second"]


@both
def test_another_lane_is_relayed_by_its_name(driver: str, url: str, connection: Any) -> None:
    make_tables(url, "audit_outbox")
    record(connection, event("e1"), lane="audit_outbox")
    connection.commit()
    assert relay_all(url, print).delivered == []
    assert len(relay_all(url, lambda event: None, lane="audit_outbox").delivered) == 1


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="is no fault: choose among fail, hang, lose_answer"):
        Faulty(print, {1: "explode"})
    with pytest.raises(Fault):
        Faulty(print, {1: FAIL})(event())


CONFTEST = """
import pytest
pytest_plugins = ["outboxd.testing.plugin"]

@pytest.fixture
def outboxd_url():
    return {url!r}
"""
TEST = """
import sqlite3
from outboxd.producer import Event, record

def test_it(outboxd_relay, outboxd_url):
    connection = sqlite3.connect(outboxd_url.removeprefix("sqlite:///"))
    record(connection, Event(event_type="T", room_id="r", envelope="{}"))
    connection.commit()
    connection.close()
    seen = []
    assert outboxd_relay(seen.append).failures == {}
    assert [event.event_type for event in seen] == ["T"]
"""


@pytest.mark.parametrize("is_configured", [True, False])
def test_the_plugin_gives_its_fixtures_to_whoever_asks(tmp_path: Path, sqlite_url: str, is_configured: bool) -> None:
    """And says what is missing where nobody has said which database."""
    conftest = CONFTEST.format(url=sqlite_url) if is_configured else 'pytest_plugins = ["outboxd.testing.plugin"]\n'
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_it.py").write_text(TEST)
    command = [
        "env",
        f"PYTHONPATH={ROOT}",
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (run.returncode == 0) == is_configured, run.stdout
    if not is_configured:
        assert "define a fixture outboxd_url in your conftest.py" in run.stdout


@both
def test_sqlalchemys_sessions_are_looked_at_without_a_transaction_left_open(driver: str, url: str) -> None:
    engine = engine_of(driver, url)
    session = scoped_session(sessionmaker(engine))
    outbox = OutboxRecorder(session)
    assert not session.registry().in_transaction()
    record(session, event())
    assert outbox.types == ["RoomCreated"]
    assert session.registry().in_transaction()
    session.commit()
    with Session(engine) as another:
        assert len(OutboxRecorder(another).events) == 0
        assert not another.in_transaction()
    session.remove()
    engine.dispose()
