"""A lane over a table that names its columns otherwise (`columns`): every statement of the relay works on it."""

from collections.abc import Iterator

import pytest

from outboxd.config.load import parse
from outboxd.config.schema import COLUMNS, Config
from outboxd.store import connect, open_store
from outboxd.store.api import DELIVERED, FAILED, RELEASED, RETRYABLE, ZERO, Settlement, Store, Want
from outboxd.store.connection import Connection
from outboxd.store.migrate import init_db, patient

NAMES = {name: f"their_{name}" for name in COLUMNS} | {"id": "event_id", "event_id": "uuid"}
"""Even a name of ours may stand for another column of theirs."""

CONFIG = """
database: {{url: "{url}"}}
outbox_worker: {{direct: [nothing], columns: {columns}}}
publishers: {{nothing: {{type: "null"}}}}
"""


@pytest.fixture
def config(database_url: str) -> Config:
    """With every column renamed."""
    columns = "{" + ", ".join(f"{ours}: {theirs}" for ours, theirs in NAMES.items()) + "}"
    return parse(CONFIG.format(url=database_url, columns=columns), {}, "the test")


@pytest.fixture
def connection(config: Config) -> Iterator[Connection]:
    """To the lane's table, made by init-db."""
    connection = connect(patient(config.database))
    init_db(connection, [config.lanes["room_outbox"]])
    yield connection
    connection.close()


def insert(connection: Connection, count: int, next_retry_at_ms: int = 0) -> None:
    """As its producer does."""
    for number in range(count):
        connection.execute(
            "INSERT INTO room_outbox (uuid, their_event_type, their_room_id, their_envelope, their_next_retry_at_ms) "
            "VALUES (:uuid, 'T', 'r', '{}', :at)",
            {"uuid": f"u{next_retry_at_ms}-{number}", "at": next_retry_at_ms},
        )


def statuses(connection: Connection) -> dict[str, str]:
    """By event id."""
    return {str(row[0]): str(row[1]) for row in connection.query("SELECT uuid, their_status FROM room_outbox")}


def want(**changed: int) -> Want:
    """Everything there is."""
    return Want(changed.get("token", 7), "n/room_outbox-01", 15_000, 100, 2**20, 2**20, idle=True)


def test_a_whole_life_on_renamed_columns(connection: Connection, config: Config) -> None:
    """Claim, renew, look up, settle each way, pull forward, claim again."""
    insert(connection, 4)
    insert(connection, 1, next_retry_at_ms=5)
    store: Store = open_store(config.database, config.lanes["room_outbox"])
    try:
        seen = store.peek(ZERO)
        assert (seen.fresh, seen.due, seen.paused) == (True, True, False)
        _, claim = store.exchange((), want(), ZERO)
        by_name = {event.event_id: event for event in claim.events}
        assert set(by_name) == {"u0-0", "u0-1", "u0-2", "u0-3", "u5-0"}
        assert {(event.event_type, event.room_id, event.envelope) for event in claim.events} == {("T", "r", b"{}")}
        ids = [event.id for event in claim.events]
        assert store.renew(7, ids, 15_000) == 5
        assert store.held(7, ids) == frozenset(ids)
        assert sorted(store.fetch(7, ids), key=lambda event: event.id) == sorted(claim.events, key=lambda e: e.id)
        ends = {"u0-0": DELIVERED, "u0-1": RETRYABLE, "u0-2": FAILED, "u0-3": RELEASED, "u5-0": DELIVERED}
        settled, _ = store.exchange(
            [Settlement(by_name[name].id, 7, end, end == RETRYABLE, 60_000, "why") for name, end in ends.items()],
            None,
            ZERO,
        )
        assert (settled.done, settled.lost, settled.gone) == (5, (), ())
        assert statuses(connection) == ends | {"u0-3": "pending"}
        assert store.hurry([(by_name["u0-1"].id, 7)]) == 1
        assert store.unfinished()
        _, again = store.exchange((), want(token=9), ZERO)
        assert {(event.event_id, event.retry_count) for event in again.events} == {("u0-1", 1), ("u0-3", 0)}
    finally:
        store.close()
