"""What the relay costs its database: statements, rows read and locked, idle and busy, and the plans behind them.

The numbers are what the design allows for. They may fall; a change that raises one has to say why.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from outboxd.config.schema import Config
from outboxd.store import open_store
from outboxd.store.api import DELIVERED, FRESH, RETRYABLE, ZERO, Settlement, Want
from outboxd.store.lists import among
from outboxd.store.mysql import MysqlStore
from outboxd.store.mysql_connection import MysqlConnection
from tests.services.costs import COUNTERS, counters
from tests.services.daemon import LANE, Daemon, write_config
from tests.services.lanes import Table, table_of
from tests.services.wait import wait_for

WORKERS = 4
IDLE_S = 5.0

@pytest.fixture
def config(mysql_url: str, tmp_path: Path) -> Config:
    """A lane whose events are accepted at once, with everything else as it is by default."""
    return write_config(
        tmp_path / "outbox.yaml", mysql_url, {"nothing": {"type": "null"}}, concurrency=WORKERS, poll_interval="1s"
    )


@pytest.fixture
def table(config: Config) -> Iterator[Table]:
    """Its table."""
    with table_of(config) as found:
        yield found


def test_an_idle_worker_asks_the_database_twice_a_second_at_the_most(
    config: Config, table: Table, tmp_path: Path
) -> None:
    """Speed: four workers with nothing to do, over five seconds; the history is of no account."""
    table.fill(50)
    with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
        daemon.wait_until(table.is_done, "the events to be delivered")
        daemon.wait_until(lambda: sessions(config, table) == WORKERS + 1, "every worker's session")
        up_s = time.monotonic()
        daemon.wait_until(lambda: time.monotonic() >= up_s + 1.5, "their first looks")
        before, since_s, own = counters(table), time.monotonic(), 1
        wait_for(lambda: time.monotonic() - since_s >= IDLE_S, 2 * IDLE_S, "some idle time")
        after, elapsed_s = counters(table), time.monotonic() - since_s
    assert after["Questions"] - before["Questions"] - own <= 2 * WORKERS * elapsed_s
    assert after["Questions"] - before["Questions"] - own >= WORKERS * (IDLE_S - 2), "they look at all"
    assert after["Com_update"] == before["Com_update"], "an idle worker writes nothing"
    assert after["Com_begin"] == before["Com_begin"], "nor does it look under locks"


def sessions(config: Config, table: Table) -> int:
    """How many are connected to the database, this one included."""
    sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = :name"
    return int(table.connection.query(sql, {"name": config.database.name})[0][0])


def test_a_thousand_events_cost_few_statements(mysql_url: str, tmp_path: Path) -> None:
    """Statements per 1,000 events, batch 100: a claim is two statements, a settle is one, both share a transaction.

    Looks come by the clock: the pause between them is long, so that a busy machine makes no more of them.
    """
    config = write_config(
        tmp_path / "outbox.yaml", mysql_url, {"nothing": {"type": "null"}}, concurrency=1, poll_interval="2s"
    )
    with table_of(config) as table:
        before = counters(table)
        table.fill(10_000)
        filled = counters(table)
        with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log", "run", "--until-empty") as daemon:
            assert daemon.end(60)[0] == 0
        after = counters(table)
        assert table.by_status() == {"delivered": 10_000}
    assert filled["Com_update"] == before["Com_update"]
    per_thousand = {name: (after[name] - filled[name]) / 10 for name in COUNTERS}
    # Ten claims, ten settles; the odd look, the session's beginning, and the lone first event are in the tenth.
    assert per_thousand["Com_update"] <= 21
    assert per_thousand["Com_select"] <= 15
    assert per_thousand["Com_begin"] <= 11
    assert per_thousand["Com_commit"] <= 11
    assert per_thousand["Com_rollback"] == 0
    assert per_thousand["Questions"] <= 60
    assert per_thousand["Com_update_multi"] == 0
    assert per_thousand["Handler_update"] <= 2_010, "one by the claim, one by the settle"
    read = ("Handler_read_key", "Handler_read_next", "Handler_read_rnd_next")
    assert sum(per_thousand[name] for name in read) <= 3_100, "by the claim, by its update and by the settle"


def want(limit: int = 100, **changes: object) -> Want:
    """What an idle worker asks for."""
    usual: dict[str, object] = {"token": 5, "worker_id": "node/room_outbox-01", "lease_ms": 30_000, "limit": limit}
    bounds: dict[str, object] = {"budget_bytes": 1 << 20, "max_event_bytes": 1 << 20, "idle": True}
    return Want(**{**usual, **bounds, **changes})  # type: ignore[arg-type]  # each test's words are Want's own


def locked_rows(store: MysqlStore, table: Table, settlements: Sequence[Settlement], asked: Want | None) -> int:
    """How many rows one exchange has locked when it is about to commit."""
    commit, seen = store._db.commit, list[int]()

    def look_then_commit() -> None:
        thread = int(store._db.query("SELECT CONNECTION_ID()")[0][0])
        sql = "SELECT trx_rows_locked FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = :thread"
        # The server's picture of its transactions is a tenth of a second old at the most.
        found = wait_for(lambda: table.connection.query(sql, {"thread": thread}), 5, "the transaction to be seen")
        seen.append(int(found[0][0]))
        commit()

    store._db.commit = look_then_commit  # type: ignore[method-assign]  # looked at from outside, then done
    try:
        store.exchange(settlements, asked, ZERO)
    finally:
        store._db.commit = commit  # type: ignore[method-assign]
    return seen[0]


def test_a_claim_and_its_settle_lock_their_own_rows_only(config: Config, table: Table) -> None:
    """Locked rows per 1,000 events, beside a history and a future of ten times as many: index entry and row, once."""
    table.fill(5000, status=DELIVERED)
    table.fill(3000, next_retry_at_ms=table.now_ms() + 3_600_000)
    table.fill(2000, status="failed")
    table.fill(2000)
    with closing(open_store(config.database, config.lanes[LANE])) as store:
        assert isinstance(store, MysqlStore)
        claimed = locked_rows(store, table, (), want(1000))
        ids = [int(str(row["id"])) for row in table.rows("status = 'delivering'")]
        assert len(ids) == 1000
        settled = locked_rows(store, table, [Settlement(row_id, 5, DELIVERED) for row_id in ids], None)
    assert claimed <= 2010
    assert settled <= 2010


def explain(connection: MysqlConnection, sql: str, values: dict[str, object]) -> list[dict[str, str]]:
    """The plan: one mapping a table, of what matters."""
    connection._run("EXPLAIN FORMAT=TRADITIONAL " + sql, values)
    names = [column[0].lower() for column in connection._cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in connection._cursor.fetchall()]
    return [{name: str(row[name]) for name in ("table", "type", "key", "rows", "extra")} for row in rows]


VALUES: dict[str, object] = {
    "lane": LANE, "fresh": FRESH, "after": 0, "due": 0, "due_after": 0, "limit": 100, "inline": 1000, "worker": "w",
    "token": 5, "lease": 1000, "rows": '[[1, 5, "failed", 1, 0, "error", null]]',
}  # fmt: skip
BY_DUE = ("peek", "claim_equal", "claim_range", "unfinished")
"""All others find their rows by the primary key."""


@pytest.fixture
def plans(config: Config, table: Table) -> Iterator[dict[str, list[dict[str, str]]]]:
    """Of every statement, over a table that holds some of everything."""
    table.fill(2000, status=DELIVERED)
    table.fill(500, next_retry_at_ms=table.now_ms() + 3_600_000)
    table.fill(500, status=RETRYABLE, next_retry_at_ms=1)
    table.fill(500)
    table.connection.query("ANALYZE TABLE room_outbox")
    with closing(MysqlConnection(config.database)) as connection:
        store = MysqlStore(connection, config.lanes[LANE])
        ids = ",".join(str(number) for number in range(1, 101))
        rows = among("id", [*range(1, 61), *range(62, 100, 2)])
        yield {
            name: explain(connection, sql.replace("{ids}", ids).replace("{rows}", rows), VALUES)
            for name, sql in store._sql.items()
        }


def test_claims_and_looks_read_ranges_of_the_due_index(plans: dict[str, list[dict[str, str]]]) -> None:
    """Not the table, not the whole index, never sorted: their cost is that of what they find."""
    for name in BY_DUE:
        found = [line for line in plans[name] if line["table"] == LANE]
        assert found, name
        for line in found:
            # One of `unfinished` has no floor: a single value of the index, and one row of it.
            kinds = ("range", "ref") if name == "unfinished" else ("range",)
            assert line["key"] == "due", f"{name}: {line}"
            assert line["type"] in kinds, f"{name}: {line}"
            assert "filesort" not in line["extra"], f"{name}: {line}"
            assert "temporary" not in line["extra"], f"{name}: {line}"


def test_updates_find_their_rows_by_the_primary_key(plans: dict[str, list[dict[str, str]]]) -> None:
    """Never by a condition on a secondary index: claims would lock index then row, settles row then index."""
    by_key = plans.keys() - set(BY_DUE)
    assert {"take", "settle_delivered", "settle_discarded", "settle_each", "renew", "fetch"} <= by_key
    for name in by_key:
        found = [line for line in plans[name] if line["table"] in (LANE, "t")]
        assert len(found) == 1, name
        (line,) = found
        assert line["key"] == "PRIMARY", f"{name}: {line}"
        assert line["type"] in ("range", "eq_ref", "ref", "const"), f"{name}: {line}"
        assert int(line["rows"]) <= 100, f"{name}: {line}"
