"""Receivers that misbehave: whom it is blamed on, that it ends in time, and that nothing is sent twice."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outboxd.event import DELIVERED, Dead, Retry
from tests.services.dead_ends import full_backlog
from tests.services.names import name_service
from tests.services.publishing import Opens, collect, make_event, publish, publish_all, seconds, step
from tests.services.receiver import Receiver

pytest_plugins = ["tests.services.http_publishing"]

TOLERANCE_S = 0.2
LONG_LINE = b"X-Filler: " + b"y" * 1000 + b"\r\n"
SHORT_LINE = b"X: y\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ({"hang": True}, "timeout"),
        ({"status": 200, "body": "x" * 500, "drip_s": 0.05}, "timeout"),
        ({"status": 200, "body": "part", "announced_bytes": 99}, "timeout"),
        ({"status": 200, "announced_bytes": -1, "repeat": b"x", "repeat_every_s": 0.05}, "timeout"),
        ({"raw": HEAD, "repeat": SHORT_LINE, "repeat_every_s": 0.02}, "timeout"),
        ({"raw": HEAD, "repeat": LONG_LINE}, "server_error"),
        ({"raw": CONTINUE, "repeat": CONTINUE}, "server_error"),
        ({"close": "before_answer"}, "reset"),
        ({"close": "reset"}, "reset"),
        ({"status": 200, "body": "0123456789", "delay_s": 0.65, "drip_s": 0.1}, "timeout"),
        ({"status": 200, "body": "0123456789", "close": "mid_answer"}, "reset"),
        ({"raw": b"HTTP/1.1 20", "close": "after_answer"}, "reset"),
        ({"raw": b"SSH-2.0-OpenSSH\r\n", "close": "after_answer"}, "server_error"),
    ],
)
def test_an_answer_that_never_gets_complete_is_blamed_on_the_event(
    receiver: Receiver, opens: Opens, behaviour: dict[str, object], reason: str
) -> None:
    """G4, G6: it ends by the deadline, counts as an attempt, and one copy of the event has arrived."""
    receiver.answer(**behaviour)  # type: ignore[arg-type]
    publisher = opens()
    timeout_s = 0.7 if reason == "timeout" else 5.0  # what ends by itself has its time, also on a busy machine
    start_s = time.monotonic()
    outcome = publish(publisher, make_event(), timeout_s=timeout_s)
    assert time.monotonic() - start_s < timeout_s + TOLERANCE_S
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (reason, True)
    assert len(receiver.requests) == 1
    receiver.answer()
    assert publish(publisher, make_event()) is DELIVERED


@pytest.mark.parametrize(("status", "expected"), [(200, DELIVERED), (400, Dead), (503, Retry)])
def test_of_an_endless_body_only_the_beginning_is_read(
    receiver: Receiver, opens: Opens, status: int, expected: object
) -> None:
    """G9: 64 KiB; the status, which is complete, decides."""
    receiver.answer(status=status, announced_bytes=-1, repeat=b"x" * 1000)
    outcome = publish(opens(), make_event())
    assert outcome is expected or isinstance(outcome, expected)  # type: ignore[arg-type]
    if isinstance(outcome, Dead | Retry):
        assert outcome.error == f"HTTP {status}: " + "x" * 200


@pytest.mark.parametrize("body", [b'{"a": 1}', b"", b"x" * 3_000_000], ids=["small", "empty", "large"])
@pytest.mark.parametrize("is_reused", [True, False], ids=["kept", "new"])
def test_curl_does_not_repeat_a_request_on_its_own(
    receiver: Receiver, opens: Opens, body: bytes, is_reused: bool
) -> None:
    """G1: it does so when a kept-alive connection dies, if it can rewind the body; a receiver would see the event twice
    for one attempt."""
    publisher = opens(connections=1)
    if is_reused:
        publish(publisher, make_event())
    event = make_event(envelope=body)
    receiver.answer(event_id=event.event_id, close="before_answer")
    outcome = publish(publisher, event)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == ("reset", True)
    assert receiver.event_ids().count(event.event_id) == 1


def test_a_connection_that_died_while_idle_costs_no_attempt(receiver: Receiver, opens: Opens) -> None:
    """G6: a receiver that was restarted, or that closes what is idle, has not seen the event."""
    publisher = opens(connections=8)
    for _ in range(5):
        receiver.answer(delay_s=0.05)  # so that all connections are in use
        publish_all(publisher, [make_event() for _ in range(8)])
        receiver.answer()
        receiver.cut()
        outcomes = publish_all(publisher, [make_event() for _ in range(50)])
        assert [outcome for _, outcome in outcomes if outcome is not DELIVERED] == []


def test_a_receiver_that_refuses_connections_is_to_blame(receiver: Receiver, opens: Opens) -> None:
    """G6: nothing was sent; and it is used again as soon as it is back."""
    publisher = opens()
    publish(publisher, make_event())
    receiver.refuse()
    receiver.cut()
    outcome = publish(publisher, make_event())
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == ("connect", False)
    receiver.listen_again()
    assert publish(publisher, make_event()) is DELIVERED


@pytest.mark.parametrize("timeout_s", [0.3, 0.9])
def test_a_connection_that_does_not_come_about_is_no_fault_of_the_event(
    opens: Opens, timeout_s: float
) -> None:
    """G6: whether the connection's or the publish's own time ran out."""
    with full_backlog() as port:
        publisher = opens(publish_timeout_s=0.9, url=f"http://127.0.0.1:{port}/")
        start_s = time.monotonic()
        outcome = publish(publisher, make_event(), timeout_s)
        assert time.monotonic() - start_s < timeout_s + TOLERANCE_S
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == ("connect", False)


def test_a_receiver_that_does_not_read_ends_in_time(opens: Opens) -> None:
    """G4: with a body larger than what the kernel's buffers hold."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        publisher = opens(url=f"http://127.0.0.1:{listener.getsockname()[1]}/")
        took_s = seconds(lambda: publish(publisher, make_event(envelope=b"x" * 20_000_000), timeout_s=0.5))
    assert took_s < 0.5 + TOLERANCE_S


def test_an_early_refusal_of_a_large_body_is_heard(receiver: Receiver, opens: Opens) -> None:
    """A 413 that is sent before the body was read, with the connection closed behind it, is still a dead letter."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        publisher = opens(url=f"http://127.0.0.1:{listener.getsockname()[1]}/")
        assert publisher.submit(make_event(envelope=b"x" * 5_000_000), time.monotonic() + 5)
        publisher.collect()
        connection, _ = listener.accept()
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        ((_, outcome),) = collect(publisher, 1)
        connection.close()
    assert outcome == Dead("rejected", "HTTP 413")


def test_one_hanging_event_of_many_ends_alone(receiver: Receiver, opens: Opens) -> None:
    """G4, G7: at its own deadline, while the others go on."""
    hanging = make_event()
    receiver.answer(event_id=hanging.event_id, hang=True)
    publisher = opens()
    start_s = time.monotonic()
    assert publisher.submit(hanging, start_s + 0.5)
    delivered = 0
    while not (outcomes := [pair for pair in step(publisher, start_s + 5) if pair[0] is hanging]):
        delivered += 1
        publisher.submit(make_event(), start_s + 5)
        assert time.monotonic() < start_s + 5
    assert abs(time.monotonic() - start_s - 0.5) < TOLERANCE_S
    assert isinstance(outcomes[0][1], Retry)
    assert delivered > 20


def test_a_name_that_does_not_exist_is_no_fault_of_the_event(opens: Opens) -> None:
    """G6: DNS is part of the way to the receiver."""
    outcome = publish(opens(url="http://no-such-host.invalid/"), make_event())
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == ("dns", False)


LOOK_UP = """
import os, sys, time
from outboxd.config.schema import Http
from outboxd.publishers.http import HttpPublisher
from tests.services.publishing import collect, make_event, seconds
publisher = HttpPublisher(Http(name="web", url="http://slow.invalid/", connections=4), "room_outbox", 0.9)
start_s = time.monotonic()
for _ in range(4):
    publisher.submit(make_event(), start_s + 0.9)
longest_s = 0.0
outcomes = []
while len(outcomes) < 4:
    longest_s = max(longest_s, seconds(lambda: outcomes.extend(publisher.collect())))
    time.sleep(0.01)
ended_s = time.monotonic() - start_s
publisher.submit(make_event(), time.monotonic() + 5)
publisher.collect()
closed_s = seconds(lambda: publisher.close(time.monotonic() + 0.5))
print(longest_s, ended_s, closed_s, *{f"{o.reason}/{o.counted}" for _, o in outcomes}, flush=True)
os._exit(0)
"""


def test_a_name_server_that_hangs_holds_up_nothing(tmp_path: Path) -> None:
    """G4, G5: neither the loop, nor the deadline, nor the end of the worker waits for the resolver."""
    environment = {**os.environ, **name_service(tmp_path)}
    command = [sys.executable, "-c", LOOK_UP]
    run = subprocess.run(command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, timeout=30)
    assert run.returncode == 0, run.stderr.decode()
    longest_s, ended_s, closed_s, *blamed = run.stdout.decode().split()
    assert float(longest_s) < TOLERANCE_S
    assert float(ended_s) < 0.9 + TOLERANCE_S
    assert float(closed_s) < 0.5 + TOLERANCE_S
    assert blamed == ["dns/False"]
