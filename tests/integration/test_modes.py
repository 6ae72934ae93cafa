"""Publish modes with real queues behind them: who gets what, and what an outage of one side means for the other."""

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.chaos import scaled
from tests.services.daemon import Daemon, write_config
from tests.services.lanes import Table, event, table_of
from tests.services.queues import QUEUES, Arrived, Queue
from tests.services.receiver import Receiver

EVENTS = scaled(10_000, 3000)
BREAKER = {"initial_probe": "100ms", "max_probe": "500ms"}
SLOW = 1000
"""Events a second and worker."""
TIMEOUT_S = 2.0
BODIES = (b'{"a": 1}', b'{ "spaced" :\t[1, 2.50, "\xe6\x88\xbf"] }', b"\x00\xff not JSON")


@pytest.fixture(params=sorted(QUEUES))
def queue(request: pytest.FixtureRequest) -> Iterator[Queue]:
    """One of each kind, empty."""
    with QUEUES[request.param](request) as made:
        yield made


def fill(table: Table, count: int) -> dict[str, dict[str, object]]:
    """Events of some types, rooms and payloads; event id → row as inserted."""
    rows = [
        event(
            event_type=("RoomCreated", "RoomUserJoined", "RoomGiftSent")[number % 3],
            room_id=f"room-{number % 17}",
            app_code=("", "hyapp")[number % 2],
            envelope=BODIES[number % len(BODIES)],
            content_type="application/json" if number % len(BODIES) < 2 else "application/protobuf",
            headers='{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}',
        )
        for number in range(count)
    ]
    table.insert(rows)
    return {str(row["event_id"]): row for row in rows}


def check_arrived(arrived: list[Arrived], rows: dict[str, dict[str, object]]) -> None:
    """Each event once, and every field and byte as the producer wrote it."""
    assert Counter(one.message.event_id for one in arrived) == Counter(rows.keys())
    for one in arrived:
        row = rows[one.message.event_id]
        message = one.message
        assert (message.event_type, message.room_id, message.app_code, message.envelope, message.content_type) == (
            row["event_type"], row["room_id"], row["app_code"], row["envelope"], row["content_type"],
        )  # fmt: skip
        assert (message.lane, message.created_at_ms > 0) == ("room_outbox", True)
        assert message.headers.keys() == {"traceparent"}
        assert one.kind == message.event_type


@pytest.mark.parametrize("mode", ["direct", "mq", "dual"])
def test_every_event_arrives_wherever_its_mode_says(queue: Queue, mode: str, mysql_url: str, tmp_path: Path) -> None:
    """G1: many of them, read back by an ordinary consumer."""
    with Receiver(keep_bodies=False) as web:
        publishers = {**queue.publishers(), "web": {"type": "http", "url": web.url}}
        config = write_config(
            tmp_path / "outbox.yaml", mysql_url, publishers, sections=queue.sections(), publish_mode=mode,
            direct=[queue.name, "web"] if mode == "direct" else ["web"], mq=queue.name, concurrency=2, batch_size=500,
        )  # fmt: skip
        with table_of(config) as table:
            rows = fill(table, EVENTS)
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                daemon.wait_until(table.is_done, "every event to be relayed", timeout_s=90)
                daemon.drain(3.0)
            found = table.rows()
    assert Counter((row["status"], row["retry_count"]) for row in found) == {("delivered", 0): EVENTS}
    arrived = queue.arrived()
    check_arrived(arrived, rows)
    assert {one.key for one in arrived} == set(rows)
    assert Counter(web.event_ids()) == ({} if mode == "mq" else Counter(rows.keys()))
    assert {row["id"] for row in found} == {one.message.outbox_id for one in arrived}


def test_a_queue_that_goes_away_in_the_middle_loses_nothing(queue: Queue, mysql_url: str, tmp_path: Path) -> None:
    """G1, G6: it comes back without a restart of the relay, and what was tried meanwhile has cost no attempt, save the
    few publishes whose answer was cut off."""
    publishers = queue.publishers(breaker=BREAKER, max_rate=SLOW)  # else all may be there before it goes away
    config = write_config(
        tmp_path / "outbox.yaml", mysql_url, publishers, sections=queue.sections(),
        publish_mode="mq", mq=queue.name, direct=[], concurrency=2, publish_timeout=f"{TIMEOUT_S}s",
        initial_backoff="200ms", max_backoff="1s", max_retry_count=3,
    )  # fmt: skip
    with table_of(config) as table, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
        rows = fill(table, EVENTS)
        daemon.wait_until(lambda: queue.count() >= EVENTS // 10, "some to arrive", timeout_s=60)
        queue.stop()
        daemon.wait_for("breaker_opened", 2)
        rows |= fill(table, EVENTS // 10)
        queue.start()
        daemon.wait_until(table.is_done, "every event to be relayed", timeout_s=90)
        daemon.drain(TIMEOUT_S)
        found = table.rows()
    assert {row["status"] for row in found} == {"delivered"}
    times = Counter(one.message.event_id for one in queue.arrived())
    assert times.keys() == rows.keys()
    tried = sum(int(str(row["retry_count"])) for row in found)
    doubled = sum(times.values()) - len(times)
    print(f"{tried} attempts used, {doubled} arrived twice")
    # What is in the client's hands at the cut: a batch of each worker.
    assert max(tried, doubled) <= 2 * 1024
    assert max(int(str(row["retry_count"])) for row in found) <= 1


@pytest.mark.parametrize("down", ["queue", "web"])
def test_in_dual_mode_an_outage_of_one_side_is_its_own(
    queue: Queue, down: str, mysql_url: str, tmp_path: Path
) -> None:
    """G6, G7: the healthy side gets every event at its usual pace and exactly once, the other all of them when it is
    back; the row names who has it and who is missing; no attempt is used."""
    with Receiver(keep_bodies=False) as web:
        publishers = {**queue.publishers(breaker=BREAKER), "web": {"type": "http", "url": web.url, "breaker": BREAKER}}
        config = write_config(
            tmp_path / "outbox.yaml", mysql_url, publishers, sections=queue.sections(), publish_mode="dual",
            direct=["web"], mq=queue.name, concurrency=2, publish_timeout=f"{TIMEOUT_S}s",
            initial_backoff="200ms", max_backoff="2s",
        )  # fmt: skip
        healthy, broken = ("web", queue.name) if down == "queue" else (queue.name, "web")
        with table_of(config) as table, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            usual_s = flow(table, daemon, healthy)
            daemon.wait_until(table.is_done, "both to have the first ones")
            if down == "queue":
                queue.stop()
            else:
                web.refuse()
                web.cut()
            during_s = flow(table, daemon, healthy)
            waiting = table.rows("status = 'retryable'")  # all but the probe of the moment
            assert {row["published_to"] for row in waiting} == {healthy}
            assert all(str(row["last_error"]).startswith(f"{broken}: ") for row in waiting)
            if down == "queue":
                queue.start()
            else:
                web.listen_again()
            daemon.wait_until(table.is_done, "the other side to catch up", timeout_s=60)
            daemon.drain(TIMEOUT_S)
            found = table.rows()
        print(f"usual {usual_s:.3f} s, during the outage {during_s:.3f} s, {len(found)} events")
        assert during_s < 3 * usual_s + 0.3, "the outage of one held up the other"
        assert Counter((row["status"], row["retry_count"]) for row in found) == {("delivered", 0): len(found)}
        everything = Counter(str(row["event_id"]) for row in found)
        assert Counter(web.event_ids()) == everything
        assert Counter(one.message.event_id for one in queue.arrived()) == everything


def flow(table: Table, daemon: Daemon, healthy: str) -> float:
    """A steady load for a while; the median of how long it took until the healthy side had its events, all but one,
    which may be the broken side's probe and is written down when that has ended."""
    lasting_s = scaled(60.0, 3.0)
    took_s: list[float] = []
    until_s = time.monotonic() + lasting_s
    while time.monotonic() < until_s:
        since_s = time.monotonic()
        names = ", ".join(f"'{event_id}'" for event_id in table.fill(5))
        there = f"event_id IN ({names}) AND (status = 'delivered' OR published_to = '{healthy}')"
        daemon.wait_until(lambda there=there: len(table.rows(there)) >= 4, f"{healthy} to have its events")  # type: ignore[misc]
        took_s.append(time.monotonic() - since_s)
    return statistics.median(took_s)
