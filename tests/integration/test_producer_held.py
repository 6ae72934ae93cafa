"""publish_now: a service publishes by itself. Whatever goes wrong with that, its command has succeeded, and the relay
delivers the event.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from outboxd.errors import EventRefused, ProducerMisused, Reject
from outboxd.producer import Event, Held, bounded, publish_now, record, record_held
from outboxd.producer.held import Tried
from tests.services.callers import caller, engine_of, rooms
from tests.services.daemon import Daemon
from tests.services.holding import DELIVERED, Service, event, serving
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


def test_what_was_published_is_delivered_and_the_relay_never_picks_it_up(service: Service) -> None:
    """Neither while it is held, nor afterwards."""
    held = service.command(publish_timeout_s=60.0)
    assert service.relay() == []
    assert publish_now(service.connect, held, service.publish) == DELIVERED
    assert service.published == ["e1"]
    assert service.row("status", "retry_count", "claim_token", "last_error") == ("delivered", 0, 0, None)
    assert abs(service.table.now_ms() - int(service.row("delivered_at_ms")[0])) < 10_000
    service.table.connection.execute("UPDATE room_outbox SET next_retry_at_ms = 1")  # as if the hold were over
    assert service.relay() == []
    assert rooms(service.table) == 1


def test_what_could_not_be_published_is_left_to_the_relay_as_if_nothing_had_been_tried(service: Service) -> None:
    """The command has succeeded; the hold is over at once; the relay delivers the same event_id."""

    def fail(held: Held) -> None:
        raise ConnectionError("away")

    held = service.command()
    tried = publish_now(service.connect, held, fail)
    assert tried == Tried(False, False, "ConnectionError: away")
    assert service.row("status", "retry_count", "claim_token", "last_error") == ("pending", 0, 0, None)
    assert service.left_ms() <= 0
    assert rooms(service.table) == 1
    assert service.relay() == ["e1"]
    assert service.row("status", "retry_count") == ("delivered", 0)


def test_a_held_event_is_not_claimed_before_the_hold_ends_by_a_relay_that_runs(
    service: Service, tmp_path: Path
) -> None:
    """With others before and behind it, which are relayed meanwhile."""
    with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
        daemon.workers()
        held = service.command(publish_timeout_s=2.0)
        (until_ms,) = service.row("next_retry_at_ms")
        for number in range(5):
            service.table.fill(2)
            wanted = 2 * number + 2
            daemon.wait_until(lambda wanted=wanted: len(service.receiver.requests) >= wanted, "others")  # type: ignore[misc]
        daemon.wait_until(service.table.is_done, "the end of the hold")
        assert service.row("status", "next_retry_at_ms") == ("delivered", until_ms)
        assert service.row("delivered_at_ms")[0] >= until_ms
        tried = publish_now(service.connect, held, service.publish)
    assert (tried.published, tried.marked) == (False, False)
    assert "left to the relay" in tried.error
    assert service.published == [], "the relay had it already"


def test_the_hold_is_as_long_as_the_publish_may_take_and_a_second(service: Service) -> None:
    before_ms = service.table.now_ms()
    service.command(publish_timeout_s=7.5)
    assert before_ms + 8500 <= int(service.row("next_retry_at_ms")[0]) <= service.table.now_ms() + 8500
    assert service.row("status", "claim_token") == ("pending", 0)


def test_a_publisher_that_hangs_costs_no_more_than_its_time_and_never_marks(service: Service) -> None:
    """What it does later is of no account: the relay has the event by then."""
    gate = threading.Event()
    late: list[str] = []

    def hang(held: Held) -> None:
        gate.wait(30)
        late.append(held.event_id)

    held = service.command(publish_timeout_s=0.5)
    since_s = time.monotonic()
    tried = publish_now(service.connect, held, hang)
    assert time.monotonic() - since_s < 3
    assert "did not return within 0.5 s" in tried.error
    assert service.row("status", "retry_count", "claim_token") == ("pending", 0, 0)
    gate.set()
    wait_for(lambda: late, 5, "the call that was given up")
    let_pass(0.1)
    assert service.row("status") == ("pending",)
    assert service.relay() == ["e1"]


def test_publishers_that_hang_do_not_fill_the_process_with_threads(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond a number none is begun: the relay has them."""
    monkeypatch.setattr(bounded, "MOST_LOST", 2)
    gate = threading.Event()
    try:
        for number in range(3):
            held = service.command(f"h{number}", publish_timeout_s=0.3)
            tried = publish_now(service.connect, held, lambda held: gate.wait(30))
        assert "2 earlier publishes have not returned yet" in tried.error
        assert service.row("status", event_id="h2") == ("pending",)
    finally:
        gate.set()
    wait_for(lambda: not any(thread.name == "outboxd-publish" for thread in threading.enumerate()), 5, "the threads")
    assert publish_now(service.connect, service.command("h3"), service.publish) == DELIVERED


@pytest.mark.parametrize("way", ["connection", "factory", "Connection", "Session", "scoped_session"])
def test_nothing_is_published_that_was_not_committed(service: Service, driver: str, url: str, way: str) -> None:
    """It is told at once, changes nothing, and the transaction goes on; also if it is read elsewhere."""
    with caller(driver, "connection" if way == "factory" else way, url) as app:
        app.change("r1")
        held = record_held(app.where, event())
        where = service.connect if way == "factory" else app.where
        with pytest.raises(ProducerMisused, match="commit before publish_now"):
            publish_now(where, held, service.publish)
        assert service.published == []
        app.commit()
        assert (service.row("status"), rooms(service.table)) == (("pending",), 1)
        assert publish_now(where, held, service.publish) == DELIVERED


def test_everything_that_opens_a_session_serves(service: Service, driver: str, url: str) -> None:
    engine = engine_of(driver, url)
    maker = sessionmaker(engine)
    reading = maker()
    for number, where in enumerate((engine, maker, scoped_session(maker), reading, engine.raw_connection)):
        held = service.command(f"w{number}")
        if where is reading:
            reading.connection()  # a transaction that began after the commit is not in the way
        assert publish_now(where, held, service.publish) == DELIVERED, where
    reading.close()
    engine.dispose()
    assert service.table.by_status() == {"delivered": 5}


def test_events_of_a_session_are_held_and_published(service: Service, driver: str, url: str) -> None:
    """SQLAlchemy's whole way, several events after one commit."""
    engine = engine_of(driver, url)
    with Session(engine) as session:
        helds = [record_held(session, event(f"s{number}")) for number in range(3)]
        record(session, event("relayed"))
        session.commit()
        assert [publish_now(session, held, service.publish) for held in helds] == [DELIVERED] * 3
    engine.dispose()
    assert service.relay() == ["relayed"]


@pytest.mark.parametrize(
    ("raised", "text"),
    [(Reject("never"), "Reject: never"), (SystemExit(3), "SystemExit: 3"), (ValueError(), "ValueError")],
)
def test_whatever_a_publisher_raises_the_command_has_succeeded(
    service: Service, raised: BaseException, text: str
) -> None:
    """Only the relay buries events."""

    def fail(held: Held) -> None:
        raise raised

    assert publish_now(service.connect, service.command(), fail) == Tried(False, False, text)
    assert service.row("status", "retry_count") == ("pending", 0)


def test_a_coroutine_has_published_nothing(service: Service) -> None:
    async def publish(held: Held) -> None:
        raise AssertionError("it is never awaited")

    tried = publish_now(service.connect, service.command(), publish)
    assert not tried.published
    assert "returned a coroutine" in tried.error


def test_a_publisher_gets_what_the_relays_would(service: Service) -> None:
    """So that one function serves both."""
    seen: list[Held] = []
    publish_now(service.connect, service.command(), seen.append)
    (got,) = seen
    assert (got.event_id, got.event_type, got.room_id, got.app_code, got.lane) == (
        "e1", "RoomCreated", "room-42", "", "room_outbox",
    )  # fmt: skip
    assert (got.envelope, got.headers, got.content_type) == (b'{"room":42}', '{"a":"b"}', "application/json")
    assert got.id == service.row("id")[0]


def test_what_cannot_be_held_is_refused(service: Service) -> None:
    with closing(service.connect()) as connection:
        for wrong in (0, -1, 301):
            with pytest.raises(EventRefused, match="publish_timeout_s"):
                record_held(connection, event(), publish_timeout_s=wrong)
        with pytest.raises(EventRefused, match="record it with `record`"):
            record_held(connection, Event(event_type="T", room_id="r", envelope="", deliver_at=10**12))
        with pytest.raises(TypeError, match="is not held"):
            publish_now(connection, event(), service.publish)  # type: ignore[arg-type]  # what a caller may do
        connection.rollback()
    assert service.table.rows() == []
