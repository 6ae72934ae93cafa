"""Publishers of a user's own that end their process or never come back: the daemon goes on around them."""

from pathlib import Path

from tests.services.daemon import LANE, write_config
from tests.services.journal import journal, keep_journal
from tests.services.lanes import event, lanes_of, table_of
from tests.services.nodes import SHORT_LEASE, Node
from tests.services.sinks import CURED, published

THREADS = 4
HANGERS = 2 * THREADS


def test_a_publisher_that_ends_its_process_at_the_start_stops_only_its_own_lane(
    sqlite_url: str, tmp_path: Path, sink: Path
) -> None:
    """G1: as native code does that does not find its settings. Its worker is started again and again, ever more slowly;
    nothing is claimed for it, and once it can start, all is delivered. The other lane has not noticed."""
    publishers = {
        "stillborn": {"type": "python", "target": "tests.services.sinks:Stillborn"},
        "sink": {"type": "python", "target": "tests.services.sinks:Recording"},
    }
    lanes = {LANE: {"direct": ["stillborn"]}, "room_robot_outbox": {"direct": ["sink"]}}
    config = write_config(tmp_path / "node.yaml", sqlite_url, publishers, lanes=lanes, concurrency=1)
    with lanes_of(config) as tables, Node(tmp_path / "node.yaml", 2, sink) as node:
        ids, others = tables[LANE].fill(50), tables["room_robot_outbox"].fill(50)
        exits = node.daemon.wait_for("worker_exited", 4)
        node.daemon.wait_until(tables["room_robot_outbox"].is_done, "the other lane's events")
        assert tables[LANE].by_status() == {"pending": 50}
        (tmp_path / CURED).touch()
        node.daemon.wait_until(tables[LANE].is_done, "its events, once it can start")
        rows = [row for table in tables.values() for row in table.rows()]
        waits = [line["failures"] for line in node.daemon.lines("worker_restarting")]
        node.daemon.drain(3.0)
    assert {(line["worker"], line["how"]) for line in exits} == {(f"{LANE}-01", "exit status 3")}
    assert waits[:4] == [1, 2, 3, 4], "each wait is longer than the last"
    assert {(row["status"], row["retry_count"]) for row in rows} == {("delivered", 0)}
    assert sorted(published(sink)) == sorted(ids + others)


def test_a_worker_whose_threads_never_return_is_replaced(mysql_url: str, tmp_path: Path, sink: Path) -> None:
    """G1, G4, G7: calls are given up in time, half of the threads lost is too many: the worker drains, so that no lease
    is lost, and is replaced. The events are tried again, and the others are not held up."""
    hanging = {
        "type": "python", "target": "tests.services.sinks:hanging", "threads": THREADS,
        "breaker": {"initial_probe": "100ms", "max_probe": "200ms"},
    }  # fmt: skip
    settings = {**SHORT_LEASE, "concurrency": 2, "batch_size": 20, "initial_backoff": "100ms", "max_backoff": "200ms"}
    config = write_config(tmp_path / "node.yaml", mysql_url, {"sink": hanging}, **settings)  # type: ignore[arg-type]
    with table_of(config) as table:
        keep_journal(table)
        table.fill(40)
        with Node(tmp_path / "node.yaml", 2, sink) as node:
            node.daemon.wait_until(table.is_done, "the first events, so that both workers are at work")
            table.insert([event(event_type="Hanger") for _ in range(HANGERS)])
            table.fill(200)
            node.daemon.wait_until(table.is_done, "everything to be delivered", timeout_s=60)
            exits = node.daemon.wait_for("worker_exited")
            node.workers()
            node.daemon.drain(0.2)
            rows = table.rows()
            lost = [change for change in journal(table) if change.is_loss]
    assert lost == [], "a lease ran out, where the worker should have settled and released"
    assert {line["how"] for line in exits} == {"exit status 0"}
    assert len(list(tmp_path.glob("hung-*"))) == HANGERS
    assert {row["status"] for row in rows} == {"delivered"}
    assert all(row["retry_count"] == 0 for row in rows if row["event_type"] != "Hanger")
    assert all(int(str(row["retry_count"])) <= 1 for row in rows)
    assert sorted(published(sink)) == sorted(str(row["event_id"]) for row in rows)
