"""A lane with two receivers: the outage of one, what it refuses, and replays that reach only who lacks the event."""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from outboxd.config.schema import Config
from outboxd.store.desk_dead import DeadFilter, replay
from tests.services.daemon import LANE, Daemon, write_config
from tests.services.lanes import Table, event, table_of
from tests.services.receiver import Receiver

EVENTS = 300
REFUSED = 12  # fewer than make the dead brake think that the receiver is broken


@dataclass(frozen=True)
class Pair:
    """A lane that goes to two receivers, `steady` and `shaky`, its table and its daemon."""

    steady: Receiver
    shaky: Receiver
    config: Config
    table: Table
    daemon: Daemon

    def replay(self, **options: bool) -> int:
        """Replay every dead letter; how many."""
        return sum(replay(self.table.connection, self.config.lanes[LANE], DeadFilter(), **options))

    def is_with(self, receiver: Receiver, count: int, timeout_s: float = 20) -> None:
        """Wait until it has had so many requests."""
        self.daemon.wait_until(lambda: len(receiver.requests) >= count, f"{count} requests", timeout_s)


@contextmanager
def paired(url: str, tmp_path: Path) -> Iterator[Pair]:
    """Both receivers work, and each has accepted an event."""
    with ExitStack() as stack:
        steady, shaky = receivers = (stack.enter_context(Receiver()), stack.enter_context(Receiver()))
        probes = {"initial_probe": "100ms", "max_probe": "300ms"}
        publishers = {
            name: {"type": "http", "url": receiver.url, "breaker": probes}
            for name, receiver in zip(("steady", "shaky"), receivers, strict=True)
        }
        config = write_config(
            tmp_path / "outbox.yaml", url, publishers, concurrency=2, initial_backoff="200ms", max_backoff="1s"
        )
        table = stack.enter_context(table_of(config))
        daemon = stack.enter_context(Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log"))
        table.fill(20)
        daemon.wait_until(table.is_done, "the first events to be delivered")
        for receiver in receivers:
            receiver.requests.clear()
        yield Pair(steady, shaky, config, table, daemon)


def test_one_receivers_outage_and_refusals_are_its_own(database_url: str, tmp_path: Path) -> None:
    """Fan-out: the steady one gets every event once and at its usual pace; the table tells who has what."""
    with paired(database_url, tmp_path) as pair:
        since_s = time.monotonic()
        usual = pair.table.fill(EVENTS)
        pair.is_with(pair.steady, EVENTS)
        usual_s = time.monotonic() - since_s

        refused = [f"refused-{number}" for number in range(REFUSED)]
        for event_id in refused:
            pair.shaky.answer(event_id=event_id, status=422, body="never")
        pair.shaky.refuse()
        pair.shaky.cut()
        since_s = time.monotonic()
        during = pair.table.fill(EVENTS)
        pair.table.insert(event(event_id=event_id) for event_id in refused)
        pair.is_with(pair.steady, 2 * EVENTS + REFUSED)
        assert time.monotonic() - since_s < 3 * usual_s + 1.5, "the outage of one held up the other"
        pair.daemon.wait_for("breaker_opened")
        waiting = pair.table.rows("status = 'retryable'")
        assert {row["published_to"] for row in waiting} == {"steady"}
        assert {row["retry_count"] for row in waiting} == {0}

        pair.shaky.listen_again()
        pair.daemon.wait_until(pair.table.is_done, "everything to come to an end")
        everything = Counter([*usual, *during, *refused])
        assert Counter(pair.steady.event_ids()) == everything
        assert Counter(pair.shaky.event_ids()) == everything
        rows = {str(row["event_id"]): row for row in pair.table.rows()}
        assert {(rows[i]["status"], rows[i]["published_to"], rows[i]["last_error"]) for i in refused} == {
            ("failed", "steady,!shaky", "shaky: HTTP 422: never")
        }
        assert {rows[event_id]["status"] for event_id in (*usual, *during)} == {"delivered"}
        names = {rows[event_id]["published_to"] for event_id in during}
        assert names <= {None, "steady,shaky"}
        assert "steady,shaky" in names


def test_a_replay_reaches_only_who_lacks_the_event(database_url: str, tmp_path: Path) -> None:
    """Fan-out: the steady one has it already; `--to all` asks both again."""
    with paired(database_url, tmp_path) as pair:
        pair.shaky.answer(status=422)
        ids = pair.table.fill(8)
        pair.daemon.wait_until(pair.table.is_done, "the refusals")
        assert pair.table.by_status() == {"delivered": 20, "failed": 8}

        pair.shaky.rules.clear()
        assert pair.replay() == 8
        pair.daemon.wait_until(pair.table.is_done, "the replay")
        assert pair.table.by_status() == {"delivered": 28}
        assert Counter(pair.steady.event_ids()) == Counter(ids)
        assert Counter(pair.shaky.event_ids()) == Counter(2 * ids)

        pair.shaky.answer(status=422)
        again = pair.table.fill(8)
        pair.daemon.wait_until(pair.table.is_done, "the refusals")
        pair.shaky.rules.clear()
        assert pair.replay(to_all=True) == 8
        pair.daemon.wait_until(pair.table.is_done, "the replay to all")
        assert Counter(pair.steady.event_ids()) == Counter([*ids, *again, *again])
        assert Counter(pair.shaky.event_ids()) == Counter([*ids, *ids, *again, *again])


def test_a_receiver_that_hangs_does_not_slow_down_the_other(mysql_url: str, tmp_path: Path) -> None:
    """G7: also while the worker has only just started and its first probes take the whole of publish_timeout."""
    with Receiver() as steady, Receiver() as hanging:
        hanging.answer(hang=True)
        publishers = {
            name: {"type": "http", "url": receiver.url} for name, receiver in (("steady", steady), ("slow", hanging))
        }
        config = write_config(tmp_path / "outbox.yaml", mysql_url, publishers, concurrency=1, publish_timeout="1500ms")
        with table_of(config) as table, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            table.fill(1)
            daemon.wait_until(lambda: len(steady.requests) == 1, "the first one")
            until_s = time.monotonic() + 4
            sent = [table.fill(1)[0]]

            def one_more() -> bool:
                if time.monotonic() < until_s:
                    sent.extend(table.fill(1))
                return time.monotonic() >= until_s

            daemon.wait_until(one_more, "a stream of events")
            daemon.wait_until(lambda: len(steady.requests) == len(sent) + 1, "all of them")
    times_s = [request.received_s for request in steady.requests[1:]]
    assert max(later - earlier for earlier, later in itertools.pairwise(times_s)) < 0.7
    assert Counter(steady.event_ids()[1:]) == Counter(sent)
