"""Leases over time: renewed while events wait, lost by a worker that stands still, never two alive for one event."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.services.daemon import Daemon, write_config
from tests.services.lanes import table_of
from tests.services.receiver import Receiver
from tests.services.wait import wait_for

LEASE: dict[str, object] = {"publish_timeout": "300ms", "lease": "2900ms"}
"""As short as it may be."""


def test_leases_are_renewed_while_events_wait_their_turn(database_url: str, tmp_path: Path) -> None:
    """G2, G4: a batch that takes longer than its lease is published once, although another worker looks on."""
    with Receiver() as receiver:
        receiver.answer(delay_s=0.1)
        web = {"type": "http", "url": receiver.url, "connections": 1}
        config = write_config(
            tmp_path / "outbox.yaml",
            database_url,
            {"web": web},
            concurrency=2,
            batch_size=40,
            **LEASE,  # type: ignore[arg-type]  # durations as the file writes them
        )
        with table_of(config) as table:
            ids = table.fill(80)
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                daemon.wait_until(table.is_done, "everything to be delivered")
                assert daemon.lines("lease_lost") == []
            rows = table.rows()
    assert {(row["status"], row["retry_count"]) for row in rows} == {("delivered", 0)}
    assert Counter(receiver.event_ids()) == Counter(ids)


@pytest.mark.parametrize("end", ["failed", "delivered"])
def test_a_worker_that_stood_still_changes_nothing_afterwards(database_url: str, tmp_path: Path, end: str) -> None:
    """G3: its leases ran out and another worker has settled its events; its own outcomes are fenced off and counted.

    failed: the receiver refused them by then, so they are dead letters; no late outcome brings them back.
    """
    with Receiver() as receiver:
        web = {"type": "http", "url": receiver.url, "connections": 4}
        config = write_config(
            tmp_path / "outbox.yaml",
            database_url,
            {"web": web},
            concurrency=1,
            batch_size=4,
            node_id="frozen",
            **LEASE,  # type: ignore[arg-type]  # durations as the file writes them
        )
        with table_of(config) as table, Daemon(tmp_path / "outbox.yaml", tmp_path / "frozen.log") as frozen:
            table.fill(1)
            frozen.wait_until(table.is_done, "the first event")
            receiver.answer(delay_s=0.15)
            held = table.fill(4)
            frozen.wait_until(lambda: len(receiver.requests) == 5, "four publishes on the wire")
            (pid,) = frozen.workers().values()
            os.kill(pid, signal.SIGSTOP)
            try:
                if end == "failed":
                    receiver.answer(status=422)
                other = tmp_path / "other.yaml"
                text = (tmp_path / "outbox.yaml").read_text().replace("node_id: frozen", "node_id: other")
                other.write_text(text.replace("outbox.sock", "other.sock"))
                with Daemon(other, tmp_path / "other.log") as daemon:
                    daemon.wait_until(table.is_done, "the other one to settle them")
                    before = table.rows()
                    os.kill(pid, signal.SIGCONT)
                    frozen.wait_for("lease_lost", len(held))
                    assert table.rows() == before
            finally:
                os.kill(pid, signal.SIGCONT)
    ended = {str(row["event_id"]): (row["status"], row["retry_count"]) for row in before}
    assert {ended[event_id] for event_id in held} == {("failed", 2) if end == "failed" else ("delivered", 1)}
    assert all(count <= 2 for count in Counter(receiver.event_ids()).values())
    assert {row["worker_id"] for row in before if row["event_id"] in held} == {"other/room_outbox-01"}


def test_an_event_deleted_while_it_is_published_is_no_trouble(database_url: str, tmp_path: Path) -> None:
    """G3: a row that is gone counts as `event_gone`; the others are settled with it."""
    with Receiver() as receiver:
        config = write_config(
            tmp_path / "outbox.yaml", database_url, {"web": {"type": "http", "url": receiver.url}}, concurrency=1
        )
        with table_of(config) as table, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            table.fill(1)
            daemon.wait_until(table.is_done, "the first event")
            receiver.answer(delay_s=0.5)
            gone, *others = table.fill(5)
            wait_for(lambda: len(receiver.requests) == 6, 10, "five publishes on the wire")
            table.connection.execute("DELETE FROM room_outbox WHERE event_id = :gone", {"gone": gone})
            daemon.wait_until(table.is_done, "the others")
            (line,) = daemon.wait_for("event_gone")
            assert line["event_id"] == gone
            assert table.by_status() == {"delivered": 1 + len(others)}
            daemon.drain(3.0)
