"""Receivers and functions that misbehave in every way, in front of the real daemon: whoever is well is not held up."""

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from outboxd.event import TIMEOUT
from tests.services.certificates import make_certificates
from tests.services.chaos import scaled
from tests.services.daemon import Daemon, write_config
from tests.services.dead_ends import full_backlog
from tests.services.lanes import Table, event, lanes_of, table_of
from tests.services.receiver import Receiver
from tests.services.sinks import VARIABLE, published

TIMEOUT_S = 0.6
NOISE_S = 0.5
"""Between the clocks of three processes on a busy machine; what the publisher itself takes is measured in
tests/integration/test_http_sinks.py."""
ATTEMPTS = 2

MISBEHAVIOUR: dict[str, dict[str, Any]] = {
    "lane_silent": {"hang": True},
    "lane_drips_head": {"raw": b"HTTP/1.1 200 OK\r\n", "repeat": b"X: y\r\n", "repeat_every_s": 0.05},
    "lane_drips_body": {"status": 200, "body": "x" * 500, "drip_s": 0.05},
    "lane_no_end": {"status": 500, "announced_bytes": -1, "repeat": b"x" * 1000},
    "lane_cuts": {"status": 200, "body": "0123456789", "close": "mid_answer"},
    "lane_resets": {"close": "reset"},
    "lane_says_nothing": {"close": "before_answer"},
}


def test_no_publish_outlasts_its_time_and_none_is_sent_twice(database_url: str, tmp_path: Path) -> None:
    """G1, G4: of what a receiver never answers completely each attempt ends in time, and it has seen as many requests
    as attempts were counted."""
    with ExitStack() as stack:
        receivers = {lane: stack.enter_context(Receiver()) for lane in MISBEHAVIOUR}
        publishers = {lane: {"type": "http", "url": receiver.url} for lane, receiver in receivers.items()}
        config = write_config(
            tmp_path / "outbox.yaml", database_url, publishers,
            lanes={lane: {"direct": [lane]} for lane in publishers}, concurrency=1,
            publish_timeout=f"{TIMEOUT_S}s", lease="4s", max_retry_count=ATTEMPTS, initial_backoff="50ms",
        )  # fmt: skip
        tables = stack.enter_context(lanes_of(config))
        for table in tables.values():
            table.fill(1)
        daemon = stack.enter_context(Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log"))
        daemon.wait_until(lambda: all(table.is_done() for table in tables.values()), "them to work")
        ids = {}
        for lane, receiver in receivers.items():
            receiver.requests.clear()
            receiver.answer(**MISBEHAVIOUR[lane])
            ids[lane] = tables[lane].fill(3)
        daemon.wait_until(lambda: all(table.is_done() for table in tables.values()), "all to be dead")
        for lane, receiver in receivers.items():
            assert tables[lane].by_status() == {"delivered": 1, "failed": 3}, lane
            assert Counter(receiver.event_ids()) == dict.fromkeys(ids[lane], ATTEMPTS), lane
            longest_s = max(durations_s(daemon, receiver))
            print(f"{lane}: the longest publish took {longest_s:.3f} s")
            assert longest_s < TIMEOUT_S + 0.2 + NOISE_S, lane


def durations_s(daemon: Daemon, receiver: Receiver) -> Iterator[float]:
    """From the arrival of each request to the line in the log that tells of its end."""
    offset_s = time.time() - time.monotonic()
    ended_s: dict[str, list[float]] = {}
    for line in daemon.lines():
        if line["event"] in ("outbox_publish_retryable", "outbox_dead_letter"):
            ended_s.setdefault(line["event_id"], []).append(datetime.fromisoformat(line["time"]).timestamp())
    for request in receiver.requests:
        yield ended_s[request.event_id].pop(0) - request.received_s - offset_s


@contextmanager
def misbehaving(directory: Path) -> Iterator[dict[str, dict[str, object]]]:
    """Publishers to seven receivers that never accept anything, each for a reason of its own."""
    with ExitStack() as stack:
        silent, drips, cuts = (stack.enter_context(Receiver(keep_bodies=False)) for _ in range(3))
        silent.answer(**MISBEHAVIOUR["lane_silent"])
        drips.answer(**MISBEHAVIOUR["lane_drips_head"])
        cuts.answer(**MISBEHAVIOUR["lane_cuts"])
        (directory / "elsewhere").mkdir()
        certificates = make_certificates(directory)
        elsewhere = make_certificates(directory / "elsewhere", server_name="DNS:elsewhere.test")
        untrusted = stack.enter_context(Receiver(tls=certificates.server_context()))
        misnamed = stack.enter_context(Receiver(tls=elsewhere.server_context()))
        port = stack.enter_context(full_backlog())
        publishers: dict[str, dict[str, object]] = {
            "silent": {"url": silent.url},
            "drips": {"url": drips.url},
            "cuts": {"url": cuts.url},
            "untrusted": {"url": untrusted.url},
            "misnamed": {"url": misnamed.url, "ca_file": str(elsewhere.authority)},
            # It never answers what it does not understand, such as the beginning of a handshake.
            "no_handshake": {"url": silent.url.replace("http:", "https:")},
            "unreachable": {"url": f"http://127.0.0.1:{port}/"},
        }
        yield {name: {"type": "http", **settings} for name, settings in publishers.items()}


def test_seven_broken_publishers_do_not_hold_up_the_eighth(mysql_url: str, tmp_path: Path) -> None:
    """G7: its events arrive about as fast as in a lane where it is alone. A publisher that hangs may keep the events of
    a claim for half a second, each time that it is probed; nothing more while it is still new to the process."""
    with misbehaving(tmp_path) as broken, Receiver(keep_bodies=False) as steady, Receiver(keep_bodies=False) as alone:
        publishers = {
            **broken,
            "steady": {"type": "http", "url": steady.url},
            "alone": {"type": "http", "url": alone.url},
        }
        lanes = {"lane_mixed": {"direct": [*broken, "steady"]}, "lane_alone": {"direct": ["alone"]}}
        config = write_config(
            tmp_path / "outbox.yaml", mysql_url, publishers, lanes=lanes,
            direct=["alone"], concurrency=1, publish_timeout="1s", lease="5s",
        )  # fmt: skip
        with lanes_of(config) as tables, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            daemon.workers(2)
            receivers = {"lane_mixed": steady, "lane_alone": alone}
            at_first_s = flow(tables, receivers, daemon, 1)
            taken_s = flow(tables, receivers, daemon, scaled(20, 2))
            rows = tables["lane_mixed"].rows("status <> 'delivering'")
            print(f"medians of the way: at first {at_first_s}, then {taken_s}")
            assert taken_s["lane_mixed"] < 3 * taken_s["lane_alone"] + 0.5
            assert {row["status"] for row in rows} == {"retryable"}
            assert {row["published_to"] for row in rows} == {"steady"}
            assert set(Counter(steady.event_ids()).values()) == {1}


def flow(
    tables: dict[str, Table], receivers: dict[str, Receiver], daemon: Daemon, lasting_s: float
) -> dict[str, float]:
    """The same load on every lane for so long; the medians of how long the events took to arrive."""
    sent_s: dict[str, dict[str, float]] = {lane: {} for lane in tables}
    until_s = time.monotonic() + lasting_s

    def more() -> bool:
        for lane, table in tables.items():
            now_s = time.monotonic()
            sent_s[lane].update(dict.fromkeys(table.fill(5), now_s))
        return now_s > until_s

    daemon.wait_until(more, "the end of the load", timeout_s=2 * lasting_s + 30)
    for lane, receiver in receivers.items():
        daemon.wait_until(lambda r=receiver, s=sent_s[lane]: s.keys() <= set(r.event_ids()), lane)  # type: ignore[misc]
    arrived = {request.event_id: request.received_s for r in receivers.values() for request in r.requests}
    return {
        lane: statistics.median(arrived[event_id] - since_s for event_id, since_s in sent.items())
        for lane, sent in sent_s.items()
    }


def test_events_that_hang_do_not_hold_up_others_to_the_same_receiver(database_url: str, tmp_path: Path) -> None:
    """G7: three of four connections wait for nothing; all other events arrive over the fourth meanwhile."""
    with Receiver() as receiver:
        config = write_config(
            tmp_path / "outbox.yaml",
            database_url,
            {"web": {"type": "http", "url": receiver.url, "connections": 4}},
            concurrency=1, publish_timeout="5s",
        )  # fmt: skip
        with table_of(config) as table, Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log") as daemon:
            table.fill(1)
            daemon.wait_until(table.is_done, "the first event")
            hanging = [f"hanging-{number}" for number in range(3)]
            for event_id in hanging:
                receiver.answer(event_id=event_id, hang=True)
            table.insert(event(event_id=event_id) for event_id in hanging)
            daemon.wait_until(lambda: set(hanging) <= set(receiver.event_ids()), "the three to hang")
            since_s = receiver.requests[-1].received_s
            good = table.fill(200)
            daemon.wait_until(lambda: set(good) <= set(receiver.event_ids()), "the others")
            took_s = receiver.requests[-1].received_s - since_s
            print(f"200 events beside three that hang: {took_s:.2f} s")
            assert Counter(receiver.event_ids()[4:]) == Counter(good), "none of the three was sent again meanwhile"


def test_functions_that_misbehave_end_as_they_say_and_hold_up_nobody(database_url: str, tmp_path: Path) -> None:
    """G1, G4, G7: hanging, raising whatever there is, returning what is no result: each event to its own end. A worker
    that has lost half of its threads is replaced."""
    sink = tmp_path / "published"
    sink.mkdir()
    kinds = {
        "hang": ("failed", ATTEMPTS, "the call did not return in time and was given up"),
        "fail": ("failed", ATTEMPTS, "ValueError: why"),
        "exit": ("failed", ATTEMPTS, "SystemExit: why"),
        "interrupt": ("failed", ATTEMPTS, "KeyboardInterrupt: why"),
        "reject": ("failed", 1, "Reject: why"),
        "odd": ("delivered", 0, None),
    }
    config = write_config(
        tmp_path / "outbox.yaml",
        database_url,
        {"own": {"type": "python", "target": "tests.services.sinks:moody", "threads": 4}},
        concurrency=1, publish_timeout="500ms", lease="3500ms", max_retry_count=ATTEMPTS, initial_backoff="50ms",
    )  # fmt: skip
    with table_of(config) as table:
        table.fill(1)
        with Daemon(tmp_path / "outbox.yaml", tmp_path / "daemon.log", **{VARIABLE: str(sink)}) as daemon:
            daemon.wait_until(table.is_done, "the first event")
            for kind in kinds:
                table.insert([event(event_id=kind, event_type=kind, envelope=b"why")])
                table.fill(20)
            daemon.wait_until(table.is_done, "all to end")
            assert {kind: as_left(table, kind) for kind in kinds} == kinds
            assert table.by_status()["delivered"] == 1 + 20 * len(kinds) + 1
            called = Counter(published(sink))
            expected = {kind: max(1, count) for kind, (_, count, _) in kinds.items()}
            assert {kind: called[kind] for kind in kinds} == expected
            assert {line["reason"] for line in daemon.lines() if line.get("event_id") == "hang"} == {TIMEOUT}
            daemon.wait_for("worker_started", 2)
            daemon.drain(0.5)


def as_left(table: Table, event_id: str) -> tuple[object, object, object]:
    """What the row says of its end."""
    row = table.row(event_id)
    return row["status"], row["retry_count"], row["last_error"]
