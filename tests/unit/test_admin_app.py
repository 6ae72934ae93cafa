"""What the admin role's application makes of failures: an answer that helps who asked, and gives nothing away."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from outboxd import log
from outboxd.admin import app, desks
from outboxd.admin.exposition import Exposition
from outboxd.config.schema import Config, Database, Lane
from outboxd.schedule import book
from outboxd.store import connect, migrate
from outboxd.supervisor.scoreboard import Scoreboard
from outboxd.vitals import JOBS, State
from tests.services.admin import application, source_of

SECRET = "what-only-the-log-may-tell"


class Broken(Exposition):
    """Fails as nobody foresaw."""

    def page(self, accept: str) -> tuple[bytes, str]:
        raise RuntimeError(SECRET)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """An embedded database without a table."""
    return Config(node_id="node", database=Database(path=str(tmp_path / "o.db")), lanes={"x": Lane(name="x")})


@pytest.fixture
def client(config: Config) -> FlaskClient:
    source = source_of(config)
    broken = Broken(config.node_id, (), source.board, None, source.sampler.sample)
    return application(replace(source, exposition=broken), is_owner=True).test_client()


def test_a_failure_that_nobody_foresaw_is_told_to_the_log_and_not_to_who_asked(
    client: FlaskClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once in ten seconds, however often it is asked for (G9)."""
    for _ in range(20):
        answer = client.get("/metrics")
        assert (answer.status_code, SECRET in answer.text) == (500, False)
        assert answer.json == {
            "error": "this failed in a way that was not foreseen", "todo": "see the log of outboxd, and report it",
        }  # fmt: skip
    assert [(record.msg, record.levelname) for record in caplog.records] == [(log.ADMIN_FAILED, "ERROR")]
    monkeypatch.setattr(app, "SAID_EVERY_S", 0.0)
    client.get("/metrics")
    assert len(caplog.records) == 2


def test_a_database_that_refuses_is_told_with_its_remedy(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    """Who asked may mend it; the workers log it, not every request."""
    answer = client.get("/api/dead")
    assert answer.status_code == 500
    assert answer.json is not None
    assert "the database refuses: " in answer.json["error"]
    assert "run `outboxd init-db`" in answer.json["error"]
    assert caplog.records == []


def test_a_session_that_cannot_be_had_gives_its_seat_back(client: FlaskClient, tmp_path: Path) -> None:
    """Else the API would be gone for good after a few failures."""
    for _ in range(3 * (desks.AT_ONCE + desks.MOST_WAITING)):
        assert client.get("/api/dead").status_code == 500


def test_what_is_cut_off_in_the_middle_of_a_session_gives_its_seat_back(config: Config) -> None:
    """Whatever the exception is."""
    seats = desks.Desks()
    for _ in range(3 * desks.AT_ONCE):
        with pytest.raises(KeyError), seats.session(config.database):
            raise KeyError


def test_the_state_of_the_jobs_role_is_that_of_its_slot(config: Config) -> None:
    """While it does not run, nothing is mounted here and the database is not asked."""
    connection = connect(config.database)
    source = source_of(config)
    client = application(source, is_owner=True).test_client()
    nothing = {"running": False, "jobIds": [], "startTime": None}
    assert client.get("/api/job/daemonStatus").json == nothing
    assert isinstance(source.board, Scoreboard)
    slot = source.board.take(JOBS)
    slot.begin(time.monotonic() - 5)
    assert client.get("/api/job/daemonStatus").json == nothing
    slot.set_state(State.RUNNING)
    migrate.init_db(connection, list(config.lanes.values()))
    book.pause(connection, 1)
    found = client.get("/api/job/daemonStatus").json
    assert found is not None
    assert (found["running"], found["jobIds"]) == (True, [2])
    assert abs(found["startTime"] - (time.time() - 5) * 1000) < 5000
    slot.set_state(State.STOPPING)
    assert client.get("/api/job/daemonStatus").json == nothing
    connection.close()
