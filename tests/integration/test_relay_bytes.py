"""Payloads of any size within the byte budget: 10 MB envelopes among small ones, and the memory that they cost."""

import hashlib
import random
from pathlib import Path

from tests.services.daemon import Daemon, most_memory_bytes, write_config
from tests.services.lanes import event, table_of
from tests.services.recorder import read, recording

MB = 1_000_000
LARGE, SMALL = 8, 300
BUDGET_BYTES = 16 * 1024 * 1024
SIZES_BYTES = (0, 1, 1023, 1024, 1025, 65_535, 65_536, 65_537, 2**20 + 1)


def test_ten_megabytes_among_small_ones_stay_within_the_budget(database_url: str, tmp_path: Path) -> None:
    """G9: a worker's memory is bounded by max_inflight_bytes, not by what the table holds; every byte arrives."""
    chance = random.Random(1)
    digests: dict[str, str] = {}
    with recording(tmp_path) as (url, requests_file):
        config = write_config(
            tmp_path / "outbox.yaml",
            database_url,
            {"web": {"type": "http", "url": url}},
            concurrency=2,
            max_event_bytes="12MiB",
            max_inflight_bytes=BUDGET_BYTES,
            publish_timeout="10s",
            lease="40s",
            database={"statement_timeout": "20s"},
        )
        with table_of(config) as table:
            for number in range(LARGE + SMALL):
                is_large = number % (1 + SMALL // LARGE) == 7
                size_bytes = 10 * MB if is_large else chance.randrange(1, 20_000)
                body = b'"' + chance.randbytes(size_bytes // 2).hex().encode() + b'"'
                row = event(event_id=f"size-{number}", envelope=body)
                digests[f"size-{number}"] = hashlib.sha256(body).hexdigest()
                table.insert([row])
            table.insert([event(event_id="too-large", envelope=b"x" * (12 * 1024 * 1024 + 1))])
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                daemon.wait_until(table.is_done, "every event to come to an end", timeout_s=60)
                memory = {name: most_memory_bytes(pid) for name, pid in daemon.workers(2).items()}
            assert table.by_status() == {"delivered": LARGE + SMALL, "failed": 1}
            assert "larger than max_event_bytes (12582912)" in str(table.row("too-large")["last_error"])
            assert table.row("too-large")["retry_count"] == 0
    found = {request.event_id: hashlib.sha256(request.body).hexdigest() for request in read(requests_file)}
    assert found == digests
    # What a worker needs at rest, the budget, and the copies of one payload that a driver makes while it reads it.
    assert max(memory.values()) < 45 * MB + BUDGET_BYTES + 4 * 10 * MB, memory


def test_a_payload_of_any_size_arrives_as_it_is(database_url: str, tmp_path: Path) -> None:
    """Also none at all, and bytes that are no text; sizes at which clients change their ways."""
    chance = random.Random(2)
    bodies = {f"size-{size_bytes}": chance.randbytes(size_bytes) for size_bytes in SIZES_BYTES}
    with recording(tmp_path) as (url, requests_file):
        publishers = {"web": {"type": "http", "url": url}}
        config = write_config(tmp_path / "outbox.yaml", database_url, publishers, concurrency=1)
        with table_of(config) as table:
            table.insert(
                event(event_id=event_id, envelope=body, content_type="application/octet-stream")
                for event_id, body in bodies.items()
            )
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log", "run", "--until-empty") as daemon:
                assert daemon.end()[0] == 0
            assert table.by_status() == {"delivered": len(bodies)}
    assert {request.event_id: request.body for request in read(requests_file)} == bodies
