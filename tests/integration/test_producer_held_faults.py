"""publish_now when something breaks: a claim in between, a crash, a database that goes away."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outboxd.producer import Held, publish_now
from outboxd.producer.held import HOLD_BEYOND_S
from tests.services.callers import connector, engine_of, rooms
from tests.services.daemon import ROOT, Daemon
from tests.services.holding import DELIVERED, Service, serving
from tests.services.proxy import Proxy
from tests.services.proxy_rules import CUT
from tests.services.wait import let_pass, wait_for


@pytest.fixture(params=["mysqlclient", "sqlite3"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(driver: str, request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("sqlite_url" if driver == "sqlite3" else "mysql_url")
    return found


@pytest.fixture
def service(driver: str, url: str, tmp_path: Path) -> Iterator[Service]:
    with serving(driver, url, tmp_path) as made:
        yield made


def test_a_row_that_the_relay_has_taken_is_not_marked(service: Service) -> None:
    """The fence: a claim during the publish (by a hold that ran out) keeps the row; the duplicate has the same id."""

    def claimed_meanwhile(held: Held) -> None:
        service.table.connection.execute(
            "UPDATE room_outbox SET status = 'delivering', claim_token = 7, lock_until_ms = 1 WHERE id = :id",
            {"id": held.id},
        )

    tried = publish_now(service.connect, service.command(), claimed_meanwhile)
    assert (tried.published, tried.marked) == (True, False)
    assert "the relay has taken it meanwhile" in tried.error
    assert service.row("status", "claim_token") == ("delivering", 7)


def test_a_row_that_a_claim_gave_back_is_not_marked_either(service: Service) -> None:
    """It is pending again, but somebody may have published it: its token tells."""

    def claimed_and_released(held: Held) -> None:
        service.table.connection.execute("UPDATE room_outbox SET claim_token = 7 WHERE id = :id", {"id": held.id})

    tried = publish_now(service.connect, service.command(), claimed_and_released)
    assert (tried.published, tried.marked) == (True, False)
    assert service.row("status") == ("pending",)


def test_what_a_hold_leaves_bounds_the_publish(service: Service) -> None:
    """A transaction that took long has used it up: nothing is published that the relay may have by then."""
    held = service.command(publish_timeout_s=0.4)
    let_pass(HOLD_BEYOND_S + 0.4)
    tried = publish_now(service.connect, held, service.publish)
    assert (tried.published, service.published) == (False, [])
    assert service.relay() == ["e1"]


CRASH = """
import os, signal, sys
from outboxd.producer import Event, publish_now, record_held
from tests.services.callers import connector
connect = connector(sys.argv[1], sys.argv[2])
connection = connect()
connection.cursor().execute("INSERT INTO room (room_id, title) VALUES ('e1', 't')")
held = record_held(connection, Event(event_id="e1", event_type="T", room_id="r", envelope="{}"), publish_timeout_s=5.0)
connection.commit()
kill = lambda held=None: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[3] == "before":
    kill()
publish_now(connect, held, kill)
"""


@pytest.mark.parametrize("moment", ["before", "during"])
def test_the_hold_of_a_process_that_was_killed_runs_out(service: Service, moment: str, tmp_path: Path) -> None:
    """Between its commit and the publish, or in the midst of it: the relay delivers, though not before."""
    run = subprocess.run(
        [sys.executable, "-c", CRASH, service.driver, service.url, moment],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT,
    )  # fmt: skip
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert rooms(service.table) == 1
    (until_ms,) = service.row("next_retry_at_ms")
    with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
        daemon.wait_until(service.table.is_done, "the end of the hold")
    assert service.receiver.event_ids() == ["e1"]
    assert service.row("status", "retry_count", "next_retry_at_ms") == ("delivered", 0, until_ms)
    assert service.row("delivered_at_ms")[0] >= until_ms


@pytest.mark.parametrize("driver", ["mysqlclient", "pymysql"], indirect=True)
@pytest.mark.parametrize("via", ["function", "engine"])
def test_a_mark_that_cannot_be_made_costs_a_duplicate_with_the_same_id(service: Service, via: str) -> None:
    """The database goes away in mid-publish: the command has succeeded, nothing is raised, and when the hold is over
    the relay sends the event a second time."""
    with Proxy(service.url) as proxy:
        connect = connector(service.driver, proxy.url)
        engine = engine_of(service.driver, proxy.url)

        def publish(held: Held) -> None:
            service.publish(held)
            proxy.refuse()
            proxy.cut()

        held = service.command(publish_timeout_s=1.0)
        tried = publish_now(connect if via == "function" else engine, held, publish)
        engine.dispose()
    assert (tried.published, tried.marked) == (True, False)
    assert "it is published again" in tried.error
    assert service.published == ["e1"]
    assert service.row("status", "retry_count") == ("pending", 0)
    wait_for(lambda: service.left_ms() <= 0, 10, "the hold to run out")
    assert service.relay() == ["e1"], "the duplicate carries the same event_id"


@pytest.mark.parametrize("driver", ["mysqlclient", "pymysql"], indirect=True)
def test_a_pooled_connection_that_went_away_meanwhile_is_replaced(service: Service) -> None:
    """Once: the mark is tried a second time over another one."""
    with Proxy(service.url) as proxy:
        engine = engine_of(service.driver, proxy.url)
        rule = proxy.rule(r"UPDATE `room_outbox` SET status = 'delivered'", CUT)
        assert publish_now(engine, service.command(), service.publish) == DELIVERED
        engine.dispose()
    assert rule.hits == 1
    assert service.row("status") == ("delivered",)


@pytest.mark.parametrize("driver", ["mysqlclient"], indirect=True)
def test_where_the_row_cannot_be_read_nothing_is_published(service: Service) -> None:
    """The database is away after the commit: the command has succeeded, the relay delivers when it can."""
    with Proxy(service.url) as proxy:
        proxy.refuse()
        held = service.command(publish_timeout_s=0.2)
        tried = publish_now(connector(service.driver, proxy.url), held, service.publish)
    assert (tried.published, service.published) == (False, [])
    assert "the row could not be read" in tried.error
    wait_for(lambda: service.left_ms() <= 0, 10, "the hold to run out")
    assert service.relay() == ["e1"]
