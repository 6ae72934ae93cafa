"""A lane with two publishers, one broken for long: the other goes on at its pace, and all arrives at both."""

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from outboxd.config.schema import Config
from tests.services.chaos import scaled
from tests.services.daemon import Daemon, write_config
from tests.services.find import free_port
from tests.services.lanes import Table, event, table_of
from tests.services.receiver import Receiver
from tests.services.receiver_answers import DEFAULT, Behaviour, Request

HANGS = Behaviour(hang=True)
BREAKER = {"initial_probe": "100ms", "max_probe": "500ms"}
TIMEOUT_S = 0.5


@dataclass
class Shaky:
    """A receiver that hangs on demand, and remembers what it has accepted."""

    receiver: Receiver
    is_hanging: bool = False
    accepted: list[str] = field(default_factory=list)

    def answer(self, request: Request) -> Behaviour:
        """Accept, or say nothing."""
        if self.is_hanging:
            return HANGS
        self.accepted.append(request.event_id)
        return DEFAULT


@contextmanager
def pair() -> Iterator[tuple[Receiver, Shaky]]:
    """A steady receiver and a shaky one."""
    with Receiver(keep_bodies=False) as steady, Receiver(port=free_port(), keep_bodies=False) as other:
        shaky = Shaky(other)
        other.choose(shaky.answer)
        yield steady, shaky


def to_both(directory: Path, url: str, steady: Receiver, shaky: Shaky) -> Config:
    """Every event goes to both."""
    urls = {"steady": steady.url, "shaky": shaky.receiver.url}
    publishers = {name: {"type": "http", "url": to, "breaker": BREAKER} for name, to in urls.items()}
    return write_config(
        directory / "outbox.yaml", url, publishers, concurrency=scaled(2, 1), publish_timeout=f"{TIMEOUT_S}s",
        lease="3500ms", initial_backoff="200ms", max_backoff="2s",
    )  # fmt: skip


def flow(table: Table, receiver: Receiver, daemon: Daemon, lasting_s: float) -> float:
    """A steady load for so long; the median of how long its events took to arrive."""
    (first,) = table.fill(1)
    daemon.wait_until(lambda: first in receiver.event_ids(), "the daemon to work")
    sent_s: dict[str, float] = {}
    until_s = time.monotonic() + lasting_s

    def more() -> bool:
        now_s = time.monotonic()
        sent_s.update(dict.fromkeys(table.fill(5), now_s))
        return now_s > until_s

    daemon.wait_until(more, "the end of the load", timeout_s=2 * lasting_s + 30)
    daemon.wait_until(lambda: sent_s.keys() <= set(receiver.event_ids()), "all of them", timeout_s=30)
    arrived = {request.event_id: request.received_s for request in receiver.requests}
    return statistics.median(arrived[event_id] - since_s for event_id, since_s in sent_s.items())


@pytest.mark.parametrize("how", ["refuses", "hangs"])
def test_a_long_outage_of_one_publisher_is_its_own(mysql_url: str, tmp_path: Path, how: str) -> None:
    """G7: under load, with a restart in the middle: the steady one's events take no longer; the table tells who has
    what; behind it everything has arrived at both, accepted exactly once."""
    lasting_s = scaled(20, 1)
    with pair() as (steady, shaky):
        config = to_both(tmp_path, mysql_url, steady, shaky)
        with table_of(config) as table:
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                usual_s = flow(table, steady, daemon, lasting_s)
                if how == "hangs":
                    shaky.is_hanging = True
                else:
                    shaky.receiver.refuse()
                    shaky.receiver.cut()
                during_s = [flow(table, steady, daemon, lasting_s)]
                daemon.drain(TIMEOUT_S)
            waiting = table.rows("status <> 'delivered'")
            assert {(row["status"], row["published_to"]) for row in waiting} == {("retryable", "steady")}
            with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
                during_s.append(flow(table, steady, daemon, lasting_s))
                shaky.is_hanging = False
                if how == "refuses":
                    shaky.receiver.listen_again()
                since_s = time.monotonic()
                daemon.wait_until(table.is_done, "everything to arrive", timeout_s=60)
                caught_up_s = time.monotonic() - since_s
            rows = table.rows()
    shown = ", ".join(f"{taken_s:.3f} s" for taken_s in during_s)
    print(f"usual {usual_s:.3f} s, during the outage {shown}, {len(rows)} events, caught up in {caught_up_s:.1f} s")
    assert max(during_s) < 3 * usual_s + 0.3, "the outage of one held up the other"
    everything = Counter(str(row["event_id"]) for row in rows)
    assert {row["status"] for row in rows} == {"delivered"}
    assert {row["published_to"] for row in rows} == {None, "steady,shaky"}
    assert Counter(steady.event_ids()) == everything
    assert Counter(shaky.accepted) == everything


PARKED = scaled(200_000, 20_000)
EVENTS = scaled(10_000, 2000)


def test_parked_rows_leave_the_healthy_publisher_its_pace(mysql_url: str, tmp_path: Path) -> None:
    """G7: very many events wait for a broken publisher, a part of them due at any moment. The benchmark measures how
    little that costs; here it must not be a multiple."""
    with Receiver(keep_bodies=False) as receiver:
        urls = {"healthy": (receiver.url, "A*"), "broken": (f"http://127.0.0.1:{free_port()}/", "B*")}
        publishers = {
            name: {"type": "http", "url": url, "events": [types], "breaker": BREAKER}
            for name, (url, types) in urls.items()
        }
        config = write_config(tmp_path / "outbox.yaml", mysql_url, publishers, concurrency=scaled(2, 1))
        with table_of(config) as table:
            usual_s = relayed_s(table, receiver, tmp_path)
            now_ms = table.now_ms()
            table.insert(parked(number, now_ms) for number in range(PARKED))
            loaded_s = relayed_s(table, receiver, tmp_path)
            assert table.by_status() == {"delivered": 2 * EVENTS, "retryable": PARKED}
    print(f"{EVENTS} events in {usual_s:.2f} s, with {PARKED} parked rows in {loaded_s:.2f} s")
    assert loaded_s < 2 * usual_s + 1


def parked(number: int, now_ms: int) -> dict[str, object]:
    """A row as the relay leaves it: due between a minute ago and in four."""
    due_ms = now_ms - 60_000 + 300_000 * number // PARKED
    return event(
        event_type="BSomething", status="retryable", worker_id="node/room_outbox-01", claim_token=number + 1,
        next_retry_at_ms=due_ms, last_error="broken: waiting for broken, which is failing",
        created_at_ms=now_ms - 600_000, updated_at_ms=now_ms - 60_000,
    )  # fmt: skip


def relayed_s(table: Table, receiver: Receiver, directory: Path) -> float:
    """How long a fresh daemon takes from the first to the last of many events."""
    receiver.requests.clear()
    table.fill(EVENTS, event_type="ASomething")
    with Daemon(directory / "outbox.yaml", directory / "daemon.log") as daemon:
        daemon.wait_until(lambda: len(receiver.requests) >= EVENTS, "the events to arrive", timeout_s=60)
        daemon.drain(3.0)
    return receiver.requests[-1].received_s - receiver.requests[0].received_s
