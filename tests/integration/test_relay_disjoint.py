"""Many workers on several nodes, one table: every event is published by one of them only."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.services.daemon import Daemon, write_config
from tests.services.lanes import table_of
from tests.services.sinks import VARIABLE, published
from tests.services.wait import wait_for

EVENTS = 50_000
NODES = ("node-a", "node-b")


def test_disjoint_workers_on_two_nodes_publish_every_event_exactly_once(mysql_url: str, tmp_path: Path) -> None:
    """G2: 8 workers on 2 supervisors, no fault: exactly 50,000 publishes of 50,000 events."""
    sink = tmp_path / "published"
    sink.mkdir()
    publishers = {"sink": {"type": "python", "target": "tests.services.sinks:Recording"}}
    configs = {
        node: write_config(
            tmp_path / f"{node}.yaml", mysql_url, publishers, node_id=node, concurrency=4, batch_size=200
        )
        for node in NODES
    }
    with table_of(configs["node-a"]) as table, ExitStack() as running:
        ids = table.fill(EVENTS)
        daemons = [
            running.enter_context(Daemon(tmp_path / f"{node}.yaml", tmp_path / f"{node}.log", **{VARIABLE: str(sink)}))
            for node in NODES
        ]
        wait_for(table.is_done, 90, "every event to be settled")
        for daemon in daemons:
            daemon.drain(3.0)
            assert daemon.lines("lease_lost") == daemon.lines("event_gone") == []
        found = table.connection.query(
            f"SELECT worker_id, status, MAX(retry_count), COUNT(*) FROM {table.name} GROUP BY worker_id, status"
        )
    sent = published(sink)
    assert len(sent) == EVENTS
    assert Counter(sent) == Counter(ids)
    assert {(status, count) for _, status, count, _ in found} == {("delivered", 0)}
    workers = {f"{node}/room_outbox-0{number}" for node in NODES for number in (1, 2, 3, 4)}
    assert {worker for worker, *_ in found} == workers, "a worker took nothing: less was tested than it seems"
    assert len(list(sink.iterdir())) == len(workers)
