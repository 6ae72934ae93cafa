"""Processes that are killed at the worst moments: what they held is taken over when its lease has run out, not before
and not much later."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from outboxd.config.schema import Config
from tests.services.chaos import SEED, scaled
from tests.services.daemon import write_config
from tests.services.find import require
from tests.services.journal import SOON_S, Change, check_claims, journal, keep_journal
from tests.services.lanes import Table, table_of
from tests.services.mariadb import connect, execute
from tests.services.nodes import LEASE_S, SHORT_LEASE, Node, explain
from tests.services.sinks import publishes

WORKERS = 2
BATCH = 10
SLOW_FAILURES = (
    "CREATE TRIGGER slow_failures BEFORE UPDATE ON room_outbox FOR EACH ROW "
    "SET NEW.updated_at_ms = NEW.updated_at_ms + IF(NEW.status = 'failed' AND OLD.retry_count = 0, SLEEP(1), 0)"
)
"""The settle of a dead letter takes a second, for the first worker that tries."""


def configure(url: str, tmp_path: Path, target: str = "Lingering", **worker: object) -> Config:
    """A lane with short leases; no lone probe at the start, so that each worker claims a batch at once."""
    sink = {"type": "python", "target": f"tests.services.sinks:{target}", "breaker": {"enabled": False}}
    settings = {**SHORT_LEASE, "concurrency": WORKERS, "batch_size": BATCH, **worker}
    return write_config(tmp_path / "node.yaml", url, {"sink": sink}, **settings)  # type: ignore[arg-type]


def check_recovered(changes: Sequence[Change]) -> set[str]:
    """G2, G8: every lost lease had run out when the event was taken over, and not long since. The events."""
    check_claims(changes)
    losses = [change for change in changes if change.is_loss]
    assert max((change.late_s for change in losses), default=0.0) <= SOON_S
    claimed_ms = {change.event_id: change.at_ms for change in changes if change.is_claim and not change.is_loss}
    assert all(change.at_ms - claimed_ms[change.event_id] >= LEASE_S * 1000 for change in losses), "too soon"
    return {change.event_id for change in losses}


def killed_worker(node: Node) -> None:
    """One of them."""
    node.kill_worker(random.Random(SEED))


def killed_workers(node: Node) -> None:
    """All of them at once."""
    node.kill(*node.workers().values())


def killed_node(node: Node) -> None:
    """The supervisor too: the whole process group. Then it is started again."""
    node.kill_everything()


CASES = [("sqlite", killed_node), ("mysql", killed_node), ("mysql", killed_workers), ("sqlite", killed_workers)]


@pytest.mark.parametrize(("kind", "kill"), scaled(CASES, CASES[:1]))
def test_what_all_held_is_taken_over_when_their_leases_have_run_out(
    kind: str, kill: Callable[[Node], None], request: pytest.FixtureRequest, tmp_path: Path, sink: Path
) -> None:
    """G1, G8: nobody is left who could give anything back, nobody knows what was published."""
    config = configure(request.getfixturevalue(f"{kind}_url"), tmp_path, batch_size=40)
    with table_of(config) as table:
        keep_journal(table)
        table.fill(600)
        with Node(tmp_path / "node.yaml", WORKERS, sink) as node:
            node.daemon.wait_until(lambda: len(publishes(sink)) >= 100, "some load")
            kill(node)
            node.daemon.wait_until(table.is_done, "everything to be delivered", timeout_s=60)
            node.daemon.drain(0.2)
            lives = node.lives()
        lost = check_recovered(journal(table))
        assert lost, "they held nothing"
        assert explain(journal(table), publishes(sink), lives) == len(lost), "each was lost once"
        assert table.by_status() == {"delivered": 600}


@contextmanager
def commits_held_up(url: str) -> Iterator[None]:
    """No COMMIT comes to an end on this server (MariaDB: as its backup does at the end), all else goes on."""
    connection = connect(url)
    cursor = connection.cursor()
    for stage in ("START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"):
        cursor.execute(f"BACKUP STAGE {stage}")
    try:
        yield
    finally:
        cursor.execute("BACKUP STAGE END")
        connection.close()


def sessions(table: Table, state: str) -> int:
    """How many sessions on this database are in that state now."""
    sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND state = :state"
    return int(table.connection.query(sql, {"state": state})[0][0])


@pytest.mark.parametrize("kill", scaled([killed_workers, killed_worker, killed_node], [killed_workers]))
def test_a_claim_whose_commit_outlives_its_worker_is_taken_over(
    mysql_url: str, tmp_path: Path, sink: Path, kill: Callable[[Node], None]
) -> None:
    """G1, G8: killed while the COMMIT of their claims is on the way. The server makes it all the same, and nobody
    knows: the events are leased to the dead. None was published, so each arrives once."""
    config = configure(mysql_url, tmp_path)
    with table_of(config) as table:
        is_mariadb = "MariaDB" in str(table.connection.query("SELECT VERSION()")[0][0])
        require("mariadb", is_mariadb or None, "only MariaDB can hold up a COMMIT")
        keep_journal(table)
        ids = table.fill(100)
        with ExitStack() as stack:
            with commits_held_up(mysql_url):
                node = stack.enter_context(Node(tmp_path / "node.yaml", WORKERS, sink))
                held_up = "Waiting for backup lock"
                node.daemon.wait_until(lambda: sessions(table, held_up) == WORKERS, "each to await its COMMIT")
                kill(node)
            node.daemon.wait_until(table.is_done, "everything to be delivered", timeout_s=60)
            node.daemon.drain(0.2)
            lives = node.lives()
        lost = check_recovered(journal(table))
        assert explain(journal(table), publishes(sink), lives) == len(lost)
        assert len(lost) == BATCH * (1 if kill is killed_worker else WORKERS)
        assert table.by_status() == {"delivered": len(ids)}
    assert Counter(publish.event_id for publish in publishes(sink)) == Counter(ids)


def test_a_worker_killed_with_oversize_events_leaves_them_to_the_next(
    mysql_url: str, tmp_path: Path, sink: Path
) -> None:
    """G1, G8: killed while it writes that they are too large. They end as dead letters that say so, the rest arrive."""
    config = configure(mysql_url, tmp_path, concurrency=1, max_event_bytes=1000)
    with table_of(config) as table:
        keep_journal(table)
        large = table.fill(2, envelope=b"x" * 2000)
        small = table.fill(30)
        execute(mysql_url, SLOW_FAILURES)
        with Node(tmp_path / "node.yaml", 1, sink) as node:
            node.daemon.wait_until(lambda: sessions(table, "User sleep"), "the write to be on its way")
            node.kill(*node.workers().values())
            node.daemon.wait_until(table.is_done, "everything to come to an end", timeout_s=60)
            node.daemon.drain(0.2)
            lives = node.lives()
        lost = check_recovered(journal(table))
        explain(journal(table), publishes(sink), lives)
        rows = {str(row["event_id"]): row for row in table.rows()}
    assert set(large) <= lost
    assert {rows[event_id]["status"] for event_id in small} == {"delivered"}
    for event_id in large:
        assert (rows[event_id]["status"], rows[event_id]["retry_count"]) == ("failed", 1)
        assert rows[event_id]["last_error"] == "envelope of 2000 bytes is larger than max_event_bytes (1000)"
    assert {publish.event_id for publish in publishes(sink)} == set(small)
