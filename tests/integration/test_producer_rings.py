"""ring_after_commit: SQLAlchemy's commits ring the doorbell by themselves, once each, and nothing else does."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from outboxd.producer import Event, doorbell, record, record_held, ring_after_commit
from tests.services.callers import application, engine_of, rooms
from tests.services.daemon import LANE, Daemon, write_config
from tests.services.lanes import Table
from tests.services.redis_server import RedisServer, client
from tests.services.ringing import await_listeners, heard, hearing
from tests.services.wait import wait_for

PUBLISHERS = {"null": {"type": "null"}}
ROBOT = "room_robot_outbox"


@pytest.fixture(params=["mysqlclient", "sqlite3"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(driver: str, request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("sqlite_url" if driver == "sqlite3" else "mysql_url")
    return found


@pytest.fixture
def table(url: str, tmp_path: Path) -> Iterator[Table]:
    config = write_config(tmp_path / "outbox.yaml", url, PUBLISHERS, lanes={LANE: {}, ROBOT: {}})
    doorbell._bells.clear()
    with application(config) as made:
        yield made
    doorbell._bells.clear()


@pytest.fixture
def sessions(driver: str, url: str, table: Table) -> "Iterator[sessionmaker[Session]]":
    engine = engine_of(driver, url)
    yield sessionmaker(engine)
    engine.dispose()


def event(**fields: Any) -> Event:
    return Event(**{"event_type": "RoomCreated", "room_id": "room-42", "envelope": {"room": 42}, **fields})


def change(session: Any) -> None:
    session.execute(sqlalchemy.text("INSERT INTO room (room_id, title) VALUES ('r', 't')"))


def fail(sessions: "sessionmaker[Session]") -> None:
    """A command that breaks off after it has recorded."""
    with sessions.begin() as session:
        record(session, event())
        raise ZeroDivisionError


def test_a_commit_rings_once_after_it(sessions: "sessionmaker[Session]", table: Table, own_redis: RedisServer) -> None:
    """However much was recorded; and again for the next transaction."""
    ring_after_commit(sessions, own_redis.url)
    with hearing(own_redis.url) as subscription, sessions() as session:
        change(session)
        record(session, [event() for _ in range(3)])
        record(session, event())
        heard(subscription, 0)
        session.commit()
        heard(subscription, 1)
        session.commit()
        heard(subscription, 0)
        record(session, event())
        session.commit()
        heard(subscription, 1)
    assert len(table.rows()) == 5


def test_nothing_rings_for_what_was_rolled_back(sessions: "sessionmaker[Session]", own_redis: RedisServer) -> None:
    """Nor for a change without an event, or one that nobody is to look for yet."""
    ring_after_commit(sessions, own_redis.url)
    with hearing(own_redis.url) as subscription, sessions() as session:
        record(session, event())
        session.rollback()
        session.commit()
        change(session)
        session.commit()
        record(session, event(delay=timedelta(hours=1)))
        record_held(session, event())
        session.commit()
        with pytest.raises(ZeroDivisionError):
            fail(sessions)
        heard(subscription, 0)


def test_savepoints_ring_with_their_transaction_if_they_were_released(
    driver: str, sessions: "sessionmaker[Session]", table: Table, own_redis: RedisServer
) -> None:
    """Not at their release, when nobody sees the event yet, and not after their rollback."""
    ring_after_commit(sessions, own_redis.url)
    with hearing(own_redis.url) as subscription, sessions() as session:
        change(session)
        nested = session.begin_nested()
        record(session, event())
        nested.rollback()
        session.commit()
        heard(subscription, 0)
        with session.begin_nested(), session.begin_nested():
            record(session, event())
        heard(subscription, 0)
        session.commit()
        heard(subscription, 1)
        outer = session.begin_nested()
        with session.begin_nested():
            record(session, event())
        outer.rollback()
        session.commit()
        heard(subscription, 0)
    assert len(table.rows()) == 1


def test_every_lane_that_was_written_is_rung(sessions: "sessionmaker[Session]", own_redis: RedisServer) -> None:
    ring_after_commit(sessions, own_redis.url)
    with hearing(own_redis.url) as usual, hearing(own_redis.url, ROBOT) as robot, sessions() as session:
        record(session, event(), lane=ROBOT)
        session.commit()
        heard(usual, 0)
        heard(robot, 1)
        record(session, event(), lane=ROBOT)
        record(session, event())
        session.commit()
        heard(usual, 1)
        heard(robot, 1)


@pytest.mark.parametrize("kind", ["scoped_session", "Session", "class"])
@pytest.mark.parametrize("driver", ["sqlite3"], indirect=True)
def test_whatever_makes_sessions_may_be_listened_to(
    sessions: "sessionmaker[Session]", own_redis: RedisServer, kind: str
) -> None:
    """With a client of the application's own, too."""

    class OwnSession(Session):
        """So that the listener dies with the test."""

    made: Any = sessions()
    target: Any = made
    if kind == "scoped_session":
        made = target = scoped_session(sessions)
    elif kind == "class":
        made, target = OwnSession(sessions.kw["bind"]), OwnSession
    with closing(client(own_redis.url)) as redis:
        ring_after_commit(target, client=redis)
        with hearing(own_redis.url) as subscription:
            record(made, event())
            made.commit()
            heard(subscription, 1)
            made.close()


def test_a_redis_that_is_away_does_not_fail_a_commit(
    sessions: "sessionmaker[Session]", table: Table, own_redis: RedisServer
) -> None:
    ring_after_commit(sessions, own_redis.url)
    own_redis.kill()
    with sessions.begin() as session:
        change(session)
        record(session, event())
    assert (len(table.rows()), rooms(table)) == (1, 1)


def test_an_event_leaves_when_its_session_commits(
    driver: str, url: str, sessions: "sessionmaker[Session]", table: Table, own_redis: RedisServer, tmp_path: Path
) -> None:
    """The whole way: no poll would have found it in time."""
    write_config(
        tmp_path / "outbox.yaml", url, PUBLISHERS, poll_interval="60s", concurrency=1,
        sections={"redis": {"url": own_redis.url}}
    )  # fmt: skip
    ring_after_commit(sessions, own_redis.url)
    with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
        daemon.workers()
        await_listeners(own_redis.url, 1)
        with sessions.begin() as session:
            change(session)
            record(session, event())
        wait_for(table.is_done, 10, "what was rung for")
    assert table.by_status() == {"delivered": 1}
