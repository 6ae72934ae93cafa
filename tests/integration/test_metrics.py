"""The metrics of the real daemon agree with the table and the receiver, whatever befell it."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outboxd.config.schema import Config
from tests.services.daemon import Daemon, write_config
from tests.services.disks import small_disk
from tests.services.lanes import Table, event, table_of
from tests.services.receiver import Receiver
from tests.services.receiver_answers import Behaviour, Request
from tests.services.scrape import Samples, scrape, total

Act = Callable[[Daemon, Table], None]


def over_http(url: str, tmp_path: Path, receiver: Receiver, **worker: object) -> Config:
    """A lane over HTTP whose retries come soon."""
    web = {"type": "http", "url": receiver.url, "connections": 4}
    settings = {"concurrency": 2, "initial_backoff": "20ms", "max_backoff": "50ms", "max_retry_count": 3, **worker}
    return write_config(tmp_path / "outbox.yaml", url, {"web": web}, **settings)  # type: ignore[arg-type]


def run(tmp_path: Path, table: Table, act: Act = lambda daemon, table: None) -> Samples:
    """The metrics of a daemon that has brought every event of the table to its end, before it ends itself."""
    with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
        act(daemon, table)
        daemon.wait_until(table.is_done, "every event to come to an end", timeout_s=60)

        def shown() -> Samples | None:
            samples = scrape(tmp_path / "outbox.sock")
            counts = table.by_status()
            agree = total(samples, "outboxd_failed_events") == counts.get("failed", 0)
            quiet = total(samples, "outboxd_pending_events") == total(samples, "outboxd_in_flight_events") == 0
            return samples if agree and quiet else None

        found = daemon.wait_until(shown, "the numbers of the table to be those of the end")
        daemon.drain(3.0)
    return found


def test_every_outcome_is_counted_as_it_was(database_url: str, tmp_path: Path) -> None:
    """What the receiver answered, what the table says and what is exported are the same."""
    answers: Counter[str] = Counter()

    def judge(request: Request) -> Behaviour:
        kind = request.headers["ce-type"]
        answers[kind] += 1
        return Behaviour(status=422 if kind == "Refused" else 500 if kind == "Shaky" and answers[kind] <= 3 else 204)

    with Receiver() as receiver:
        receiver.choose(judge)
        config = over_http(database_url, tmp_path, receiver, max_event_bytes="1KiB")
        with table_of(config) as table:
            table.fill(200)
            table.fill(3, event_type="Refused")
            table.fill(3, event_type="Shaky")
            table.fill(1, envelope=b"x" * 2000)
            found = run(tmp_path, table)
            counts = table.by_status()
    assert counts == {"delivered": 203, "failed": 4}
    lane = {"lane": "room_outbox"}
    web = {**lane, "publisher": "web"}
    assert total(found, "outboxd_publish_success_total", **web) == 203
    assert answers == {"RoomCreated": 200, "Refused": 3, "Shaky": 6}
    assert total(found, "outboxd_publish_failure_total", reason="rejected", **web) == 3
    assert total(found, "outboxd_publish_failure_total", reason="server_error", **web) == 3
    assert total(found, "outboxd_publish_failure_total", **web) == 6
    assert total(found, "outboxd_publish_latency_seconds_count", **web) == len(receiver.requests)
    assert total(found, "outboxd_delivery_latency_seconds_count", **lane) == 203
    assert total(found, "outboxd_dead_letter_total", **lane) == 4
    assert total(found, "outboxd_claimed_events_total", **lane) == 207 + 3
    assert total(found, "outboxd_claim_latency_seconds_count", **lane) > 0
    assert total(found, "outboxd_sweep_seconds_count", **lane) > 0
    assert total(found, "outboxd_workers", state="running", **lane) == 2
    assert total(found, "outboxd_worker_restarts_total", **lane) == 0
    assert total(found, "outboxd_database_up") == 1
    assert total(found, "outboxd_oldest_pending_age_seconds", **lane) == 0


def kill_workers(daemon: Daemon, table: Table) -> None:
    """One after the other, while events flow; counters never fall, and no file is left behind."""
    socket = daemon.log.with_name("outbox.sock")
    before: Samples = {}
    for number in range(8):
        table.fill(100)
        pids = daemon.workers(2)
        victim = sorted(pids)[number % 2]
        os.kill(pids[victim], signal.SIGKILL)
        daemon.wait_until(lambda v=victim, p=pids: daemon.workers(2)[v] != p[v], "another worker")  # type: ignore[misc]
        now = scrape(socket)
        fell = {key: (value, now.get(key)) for key, value in before.items() if _counts(key[0]) and now[key] < value}
        assert fell == {}
        before = now
    (folder,) = daemon.log.parent.glob("metrics-*")
    assert len(list(folder.iterdir())) <= 4


def _counts(name: str) -> bool:
    return name.endswith(("_total", "_count", "_bucket", "_sum"))


def test_killed_workers_reset_no_counter(mysql_url: str, tmp_path: Path) -> None:
    """Whenever it is killed, none of its deliveries is missing, and none is counted that did not arrive."""
    with Receiver() as receiver:
        short = {"publish_timeout": "200ms", "lease": "2600ms"}
        with table_of(over_http(mysql_url, tmp_path, receiver, **short)) as table:
            found = run(tmp_path, table, kill_workers)
            counts = table.by_status()
        arrived = len(receiver.requests)
    assert counts == {"delivered": 800}
    on_its_way = 8 * (4 + 100)  # of each killed worker: on the wire, and answered but not yet settled
    assert 800 <= total(found, "outboxd_publish_success_total") <= arrived <= 800 + on_its_way
    assert total(found, "outboxd_worker_restarts_total", reason="killed") == 8
    assert total(found, "outboxd_worker_restarts_total") == 8


def spoil(daemon: Daemon, table: Table) -> None:
    """Junk in the files, the files removed, the folder removed: while events flow."""
    daemon.workers(2)
    (folder,) = daemon.log.parent.glob("metrics-*")
    for number in range(20):
        table.fill(20)
        done = table.by_status().get("delivered", 0)
        for path in folder.iterdir() if folder.exists() else ():
            if number % 3 == 0:
                path.write_bytes(b"\xff" * 5000)
            elif number % 3 == 1:
                os.truncate(path, 11)
            else:
                path.unlink()
        daemon.wait_until(lambda d=done: table.by_status().get("delivered", 0) > d, "events to flow")  # type: ignore[misc]
        scrape(daemon.log.with_name("outbox.sock"))
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    table.fill(50)
    daemon.wait_for("metrics_unavailable")


def test_a_folder_that_somebody_spoils_breaks_nothing(mysql_url: str, tmp_path: Path) -> None:
    """Nothing but the numbers depends on it, and a scrape always has an answer."""
    with Receiver() as receiver, table_of(over_http(mysql_url, tmp_path, receiver)) as table:
        run(tmp_path, table, spoil)
        assert table.by_status() == {"delivered": 450}
        log = (tmp_path / "daemon.log").read_text()
    assert len(receiver.requests) == 450
    assert log.count('"worker_started"') == 3, "no worker was ended by it"
    assert log.count('"metrics_unavailable"') <= 2 * 2


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system that has no room left."""
    with small_disk(tmp_path / "full", 128) as folder:
        (folder / "ballast").write_bytes(b"x" * 100 * 1024)
        yield folder


def test_a_full_metrics_folder_breaks_nothing(mysql_url: str, tmp_path: Path, full_disk: Path) -> None:
    """A mapped file on a full disk ends its process; here it costs numbers and a line per worker."""
    with Receiver() as receiver:
        config = over_http(mysql_url, tmp_path, receiver)
        text = (tmp_path / "outbox.yaml").read_text()
        (tmp_path / "outbox.yaml").write_text(f"metrics_dir: {full_disk}\n{text}")
        with table_of(config) as table:
            table.fill(300)
            found = run(tmp_path, table)
            assert table.by_status() == {"delivered": 300}
        log = (tmp_path / "daemon.log").read_text()
    assert log.count('"metrics_unavailable"') == 2
    assert log.count('"worker_started"') == 3
    assert total(found, "outboxd_claimed_events_total") == 300, "what needs no file is there"


def test_odd_types_tenants_and_errors_make_no_series(mysql_url: str, tmp_path: Path) -> None:
    """G9: 3,000 of each, and the page is as long as before."""
    with Receiver() as receiver:
        receiver.choose(lambda request: Behaviour(status=422) if request.headers["ce-type"].endswith("7") else None)
        with table_of(over_http(mysql_url, tmp_path, receiver)) as table:
            table.fill(20)
            few = run(tmp_path, table)
            table.insert([
                event(event_type=f"Odd-{n}", app_code=f"tenant-{n}", room_id=f"room-{n}") for n in range(3000)
            ])  # fmt: skip
            many = run(tmp_path, table)
    reasons = {key for key in many if key[0] == "outboxd_publish_failure_total"}
    assert many.keys() - few.keys() <= reasons
    assert len(reasons) <= 14
