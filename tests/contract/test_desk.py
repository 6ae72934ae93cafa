"""What operators do with a lane, on every kind of database."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from outboxd.config.schema import Lane
from outboxd.errors import StoreRefused
from outboxd.store import desk
from outboxd.store.api import FRESH, PARTITIONS, ZERO, Settlement, Store, Want
from outboxd.store.desk import NewEvent, enqueue, find, kill, overview, pause, resume
from outboxd.store.desk_dead import DeadFilter, dead_count, dead_list, replay
from outboxd.store.desk_find import Desk
from tests.contract.conftest import LANE, Table

ANY = DeadFilter()
HOUR_MS = 3_600_000


@pytest.fixture(params=["none", "room"])
def lane(request: pytest.FixtureRequest) -> Lane:
    """Settings of the lane; the index of an ordered one begins with the partition on MySQL."""
    return Lane(name=LANE, direct=("console",), ordering=request.param)


def new_event(**changes: object) -> NewEvent:
    usual: dict[str, object] = {"event_id": "e1", "event_type": "RoomCreated", "room_id": "r1", "envelope": b'{"a":1}'}
    return NewEvent(**{**usual, **changes})  # type: ignore[arg-type]  # each test's words are NewEvent's own


# enqueue


def test_an_event_is_enqueued_as_a_producer_would(table: Table, lane: Lane) -> None:
    """`outboxd enqueue` is for trying things out: what it writes is relayed like anything else, byte for byte."""
    headers = '{"traceparent": "00-ab-cd-01"}'
    event = new_event(app_code="tencent", envelope=b"\x00\xff", content_type="application/protobuf", headers=headers)
    row = table.row(enqueue(table.connection, lane, event))
    assert (row["app_code"], row["envelope"], row["content_type"]) == ("tencent", b"\x00\xff", "application/protobuf")
    assert (row["status"], row["due_at_ms"], row["headers"]) == ("pending", FRESH, headers)
    assert abs(table.now_ms() - int(str(row["created_at_ms"]))) < 60_000


def test_a_delayed_event_is_due_that_much_later_by_the_databases_clock(table: Table, lane: Lane) -> None:
    """G12: the clock of the machine that enqueues does not matter."""
    before = table.now_ms()
    row = table.row(enqueue(table.connection, lane, new_event(), delay_ms=600_000))
    assert before + 600_000 <= int(str(row["due_at_ms"])) <= table.now_ms() + 600_000


def test_an_event_id_is_enqueued_once_per_app_code(table: Table, lane: Lane) -> None:
    """Receivers take an event_id for one event: a second one would be lost there, so it is said here."""
    first = enqueue(table.connection, lane, new_event())
    enqueue(table.connection, lane, new_event(app_code="other"))
    with pytest.raises(StoreRefused, match=rf"event_id 'e1' is in room_outbox already \(id {first}, pending\)"):
        enqueue(table.connection, lane, new_event())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"event_id": ""}, "event_id is empty"),
        ({"event_id": "x" * 65}, "event_id has 65 characters: 64 is the most"),
        ({"event_id": "ü"}, "is not ASCII"),
        ({"app_code": "x" * 33}, "app_code has 33 characters"),
        ({"headers": "[1]"}, "headers is not the text of a JSON object"),
        ({"headers": "{"}, "headers is not the text of a JSON object"),
    ],
)
def test_an_event_that_does_not_fit_is_refused(
    table: Table, lane: Lane, changes: dict[str, object], message: str
) -> None:
    """SQLite would take it, and MySQL in a lax mode would cut it."""
    with pytest.raises(StoreRefused, match=message):
        enqueue(table.connection, lane, new_event(**changes))


# pause


@pytest.mark.parametrize("lane", ["none"], indirect=True)
def test_a_paused_lane_is_paused_for_all_until_it_is_resumed(table: Table, lane: Lane, store: Store) -> None:
    """The mark is in the table that every worker on every node looks at."""
    pause(table.connection, lane, "ops@example.org: receiver is migrating")
    assert store.peek(ZERO).paused
    shown = overview(table.connection, lane)
    assert (shown.paused, shown.paused_by) == (True, "ops@example.org: receiver is migrating")
    pause(table.connection, lane, "x" * 500)
    resume(table.connection, lane)
    assert not store.peek(ZERO).paused
    assert (overview(table.connection, lane).paused, overview(table.connection, lane).paused_by) == (False, "")


def test_a_lane_that_names_its_columns_otherwise_can_be_paused(table: Table, lane: Lane) -> None:
    """`columns` is of the lane's own table: outboxd_lane has an updated_at_ms, too, which keeps its name."""
    renamed = replace(lane, columns={"updated_at_ms": "changed_ms"})
    pause(table.connection, renamed, "ops")
    assert overview(table.connection, lane).paused_by == "ops"


def test_a_lane_that_init_db_never_saw_cannot_be_paused(table: Table, lane: Lane) -> None:
    """Otherwise the command would claim success and nothing would stop."""
    table.connection.execute("DELETE FROM outboxd_lane")
    with pytest.raises(StoreRefused, match="room_outbox is not in outboxd_lane: run `outboxd init-db`"):
        pause(table.connection, lane, "ops")


# overview


def test_the_overview_counts_every_class(table: Table, lane: Lane) -> None:
    """Each row is in one class; delivered ones are in none."""
    now = table.now_ms()
    for columns in (
        {"status": "pending"}, {"status": "pending", "next_retry_at_ms": now - 5},  # fresh: never failed, due now
        {"status": "pending", "next_retry_at_ms": now + HOUR_MS},  # scheduled
        {"status": "retryable"}, {"status": "retryable", "next_retry_at_ms": now - 5},
        {"status": "retryable", "next_retry_at_ms": now + 2 * HOUR_MS},  # retrying, due or not
        {"status": "delivering", "lock_until_ms": now + HOUR_MS},
        {"status": "delivering", "lock_until_ms": now - 5, "next_retry_at_ms": now - 5},
        {"status": "failed"}, {"status": "delivered"}, {"status": "delivered"},
    ):  # fmt: skip
        table.insert(**columns)
    shown = overview(table.connection, lane)
    assert (shown.fresh, shown.scheduled, shown.retrying, shown.delivering, shown.failed) == (2, 1, 3, 2, 1)
    assert shown.capped == frozenset()
    assert shown.next_due_ms == now + HOUR_MS
    assert abs(shown.now_ms - now) < 60_000


def test_the_oldest_age_is_that_of_what_could_have_been_published(table: Table, lane: Lane) -> None:
    """It is what alerts look at: a delayed event waits since its time came, an unknown creation says nothing."""
    now = table.now_ms()
    table.insert(created_at_ms=0)
    table.insert(created_at_ms=now - 9 * HOUR_MS, next_retry_at_ms=now + HOUR_MS)  # not due yet
    table.insert(created_at_ms=now - 9 * HOUR_MS, status="delivered")
    table.insert(created_at_ms=now - 9 * HOUR_MS, status="failed")
    assert overview(table.connection, lane).oldest_age_ms is None
    table.insert(created_at_ms=now - 9 * HOUR_MS, next_retry_at_ms=now - 60_000)  # delayed until a minute ago
    age_ms = overview(table.connection, lane).oldest_age_ms
    assert age_ms is not None
    assert 60_000 <= age_ms < 120_000
    table.insert(created_at_ms=now - 2 * HOUR_MS, status="retryable", next_retry_at_ms=now + HOUR_MS)
    age_ms = overview(table.connection, lane).oldest_age_ms
    assert age_ms is not None
    assert 2 * HOUR_MS <= age_ms < 3 * HOUR_MS


def test_a_count_stops_at_the_cap_and_says_so(table: Table, lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    """G9: a backlog of millions must not make `outboxd status` read them all."""
    monkeypatch.setattr(desk, "COUNT_CAP", 5)
    table.insert_many(9)
    table.insert_many(8, status="failed")
    shown = overview(table.connection, lane)
    assert shown.fresh == 6
    assert shown.failed == 5
    assert shown.capped == {"fresh", "retrying", "delivering", "failed"}


# find


def test_an_event_is_found_with_all_but_its_payload(table: Table, lane: Lane) -> None:
    """`outboxd explain` tells from it where the event is."""
    row_id = table.insert(event_id="e9", app_code="a", envelope=b"12345", published_to="bus,!im", last_error="ü" * 512)
    (found,) = find(table.connection, lane, "e9", "a")
    row = table.row(row_id)
    for name in ("id", "event_type", "room_id", "status", "due_at_ms", "created_at_ms", "worker_id", "headers"):
        assert getattr(found, name) == row[name]
    assert (found.envelope_bytes, found.published_to, found.last_error) == (5, "bus,!im", "ü" * 512)
    assert abs(found.now_ms - table.now_ms()) < 60_000
    assert find(table.connection, lane, "e9", "b") == find(table.connection, lane, "none", "a") == []


def test_without_an_app_code_every_one_is_looked_through(table: Table, lane: Lane) -> None:
    """There is no index of event_id alone; tenants are few, events many."""
    for app in ("", "a", "b", "Ä"):
        table.insert(event_id="same", app_code=app)
        table.insert_many(3, app_code=app)
    assert [found.app_code for found in find(table.connection, lane, "same")] == ["", "a", "b", "Ä"]
    assert find(table.connection, lane, "none") == []


def test_too_many_app_codes_are_not_searched_in_silence(
    table: Table, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "Not found" must mean that it is not there."""
    monkeypatch.setattr("outboxd.store.desk_find.MOST_APPS", 2)
    for app in ("a", "b", "c"):
        table.insert(app_code=app)
    with pytest.raises(StoreRefused, match="holds more than 2 app codes: say which one, with --app"):
        find(table.connection, lane, "e")


# kill


@pytest.mark.parametrize("status", ["pending", "retryable"])
def test_an_unpublished_event_can_be_killed(table: Table, lane: Lane, status: str) -> None:
    """A poisonous event is stopped now, not after ten attempts; what it failed of before stays readable."""
    row_id = table.insert(event_id="e", app_code="", status=status, last_error="500", next_retry_at_ms=5)
    killed = kill(table.connection, lane, find(table.connection, lane, "e", "")[0], "ops")
    assert (killed.done, killed.before, killed.worker_id) == (True, status, "")
    row = table.row(row_id)
    assert (row["status"], row["due_at_ms"], row["last_error"]) == ("failed", -2, "killed by ops: 500")


@pytest.mark.parametrize("lane", ["none"], indirect=True)
def test_the_settle_of_a_killed_event_is_lost(
    table: Table, lane: Lane, store: Store, want: Callable[..., Want]
) -> None:
    """G3: a worker that was publishing it must not turn the operator's dead letter into something else."""
    row_id = table.insert(event_id="e", app_code="")
    asked = want()
    store.exchange((), asked, ZERO)
    killed = kill(table.connection, lane, find(table.connection, lane, "e", "")[0], "ops")
    assert (killed.done, killed.before, killed.worker_id) == (True, "delivering", "node/room_outbox-01")
    settled, _ = store.exchange([Settlement(row_id, asked.token, "delivered")], None, ZERO)
    assert settled.lost == (row_id,)
    assert table.status(row_id) == "failed"


@pytest.mark.parametrize("status", ["delivered", "failed"])
def test_what_is_done_cannot_be_killed(table: Table, lane: Lane, status: str) -> None:
    """A delivered event cannot be called back, and a dead one keeps its reason."""
    row_id = table.insert(event_id="e", app_code="", status=status, last_error="why")
    found = find(table.connection, lane, "e", "")[0]
    assert kill(table.connection, lane, found, "ops").before == status
    assert (table.status(row_id), table.row(row_id)["last_error"]) == (status, "why")
    table.delete(row_id)
    assert kill(table.connection, lane, found, "ops") == desk.Killed(False, "gone")


# cost


def test_no_look_reads_what_was_delivered(table: Table, lane: Lane) -> None:
    """Delivered rows are kept for ever by default: with a hundred million of them `outboxd status` must answer."""
    table.insert_many(3000, status="delivered")
    for columns in ({"status": "failed"}, {"status": "pending"}, {"status": "retryable", "next_retry_at_ms": 5}):
        table.insert(**columns)
    table.insert_many(1000, status="delivered")
    looks: list[Callable[[], object]] = [
        lambda: overview(table.connection, lane),
        lambda: dead_list(table.connection, lane, ANY),
        lambda: dead_count(table.connection, lane, DeadFilter(room="r")),
        lambda: find(table.connection, lane, "none"),
        lambda: sum(replay(table.connection, lane, DeadFilter(room="r"))),
    ]
    if table.connection.dialect == "sqlite":
        _assert_searches_only(table, lane)
        return
    table.connection.query("ANALYZE TABLE room_outbox")
    most = 60 + 12 * PARTITIONS if lane.is_ordered else 60
    for number, look in enumerate(looks):
        before = _rows_read(table)
        look()
        assert _rows_read(table) - before < most, f"look {number} read too much"


def test_a_list_reads_what_it_shows_also_when_half_of_all_is_dead(table: Table, lane: Lane) -> None:
    """The primary key has the order wanted, too; but along it lies everything that was delivered since."""
    table.insert_many(1500, status="failed")
    table.insert_many(1500, status="delivered")
    if table.connection.dialect == "sqlite":
        _assert_searches_only(table, lane)
        return
    table.connection.query("ANALYZE TABLE room_outbox")
    before = _rows_read(table)
    assert len(Desk(table.connection, lane).query("failed_down", {"position": 2**63 - 1, "most": 10})) == 10
    assert _rows_read(table) - before < (30 + 2 * PARTITIONS if lane.is_ordered else 30)


def _rows_read(table: Table) -> int:
    rows = table.connection.query("SHOW SESSION STATUS LIKE 'Handler_read_%'")
    return sum(int(row[1]) for row in rows)


def _assert_searches_only(table: Table, lane: Lane) -> None:
    table.connection.execute("ANALYZE")
    names = "low high most position app event after type room since until error unskipped"
    params: dict[str, object] = dict.fromkeys(names.split(), 1)
    counters = Desk(table.connection, lane)
    for name in (
        "count_class",
        "count_failed",
        "next_due",
        "next_app",
        "find",
        "failed_up",
        "failed_down",
        "dead_rows",
    ):
        plan = table.connection.query(f"EXPLAIN QUERY PLAN {counters.sql(name, [1, 2])}", params)
        details = [row[-1] for row in plan]
        assert any("SEARCH" in detail for detail in details), (name, details)
        assert not any("SCAN room_outbox" in detail for detail in details), (name, details)
