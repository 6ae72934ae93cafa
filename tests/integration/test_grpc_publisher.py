"""The publisher `activity_grpc`, in front of a server that runs code generated from the shipped .proto file."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outboxd.config.schema import ActivityGrpc
from outboxd.errors import PublisherError
from outboxd.event import (
    CONNECT,
    DNS,
    MISCONFIGURED,
    REJECTED,
    RESET,
    SERVER_ERROR,
    THROTTLED,
    TIMEOUT,
    TLS,
    UNAVAILABLE,
    Dead,
    Delivered,
    Event,
    Outcome,
    Retry,
)  # fmt: skip
from outboxd.proto.messages import EventEnvelope
from outboxd.publishers import check, open_publisher
from outboxd.publishers.api import Publisher
from tests.services.certificates import make_certificates
from tests.services.find import free_port
from tests.services.forking import fork_children
from tests.services.grpc_server import GrpcServer, start_grpc_server
from tests.services.processes import is_stopped
from tests.services.publishing import collect, make_event, publish, publish_all, seconds
from tests.services.silent import silent_server
from tests.services.wait import wait_for

Opens = Callable[..., Publisher]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServer]:
    """One for those tests that leave it running."""
    running = start_grpc_server(tmp_path_factory.mktemp("grpc"))
    yield running
    running.stop()


@pytest.fixture
def opens() -> Iterator[Opens]:
    """Makes publishers that are closed at the end of the test."""
    made: list[Publisher] = []

    def open_one(target: str, publish_timeout_s: float = 2.0, **changes: Any) -> Publisher:
        settings = ActivityGrpc(name="activity", target=target, **changes)
        made.append(open_publisher(settings, "room_outbox", publish_timeout_s))
        return made[-1]

    yield open_one
    for publisher in made:
        publisher.close(time.monotonic() + 1)


def envelope_of(**body: Any) -> dict[str, Any]:
    return {
        "event_id": f"id-{next(_numbers)}", "app_code": "app", "event_type": "RoomUserKicked", "room_id": "房-1",
        "room_version": 2**53 + 1, "occurred_at_ms": 1_732_900_000_000, "body": body,
    }  # fmt: skip


def json_event(envelope: dict[str, Any], **columns: object) -> Event:
    return make_event(event_id=envelope["event_id"], envelope=json.dumps(envelope).encode(), **columns)


def told(server: GrpcServer, event_id: str) -> dict[str, Any]:
    """The one call that the server had for the event."""
    (call,) = [call for call in server.calls() if call["event"]["event_id"] == event_id]
    return call


def test_a_json_envelope_arrives_as_an_event_envelope(server: GrpcServer, opens: Opens) -> None:
    """The service's own generated code reads what the producer wrote; a number that a double cannot hold is text."""
    body = {"user_id": "u", "level": 3, "rate": 0.5, "on": True, "none": None, "list": [1, {"a": []}], "big": 2**63 - 1}
    envelope = envelope_of(**body)
    trace = {"traceparent": "00-1-2-01", "tracestate": "a=é", "x-other": "no", "authorization": "no"}
    event = json_event(envelope, headers=json.dumps(trace))
    assert isinstance(publish(opens(server.target), event), Delivered)
    call = told(server, envelope["event_id"])
    whole = {"room_version": str(2**53 + 1), "occurred_at_ms": "1732900000000"}  # how protobuf's JSON writes an int64
    assert call["event"] == {**envelope, **whole, "body": {**body, "big": str(2**63 - 1)}}
    metadata = call["metadata"]
    assert {key: metadata.get(key) for key in ("event-id", "lane", "outbox-id", "traceparent", "tracestate")} == {
        "event-id": event.event_id, "lane": "room_outbox", "outbox-id": str(event.id), "traceparent": "00-1-2-01",
        "tracestate": "a=%C3%A9",
    }  # fmt: skip
    assert not {"x-other", "authorization"} & set(metadata)
    assert 0 < call["left_s"] <= 2.0


def test_a_protobuf_envelope_goes_through_unchanged(server: GrpcServer, opens: Opens) -> None:
    """Fields that this version does not know reach a service that does."""
    envelope = EventEnvelope(event_id="binary", event_type="T", room_id="r", room_version=7)
    envelope.body.update({"n": 1})
    data = envelope.SerializeToString() + b"\xa2\x06\x03new"  # field 100
    event = make_event(envelope=data, content_type="application/x-protobuf; v=1")
    assert isinstance(publish(opens(server.target), event), Delivered)
    assert told(server, "binary")["event"] == {
        "event_id": "binary", "event_type": "T", "room_id": "r", "room_version": "7", "body": {"n": 1.0},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "kind", "reason", "counted"),
    [
        ("ALREADY_EXISTS", Delivered, None, None),
        ("INVALID_ARGUMENT", Dead, REJECTED, None),
        ("FAILED_PRECONDITION", Retry, SERVER_ERROR, True),
        ("OUT_OF_RANGE", Retry, SERVER_ERROR, True),
        ("UNAVAILABLE", Retry, UNAVAILABLE, False),
        ("RESOURCE_EXHAUSTED", Retry, THROTTLED, False),
        ("UNAUTHENTICATED", Retry, MISCONFIGURED, False),
        ("PERMISSION_DENIED", Retry, MISCONFIGURED, False),
        ("UNIMPLEMENTED", Retry, MISCONFIGURED, False),
        ("NOT_FOUND", Retry, MISCONFIGURED, False),
        ("DEADLINE_EXCEEDED", Retry, TIMEOUT, True),
        ("INTERNAL", Retry, SERVER_ERROR, True),
        ("UNKNOWN", Retry, SERVER_ERROR, True),
        ("ABORTED", Retry, SERVER_ERROR, True),
        ("DATA_LOSS", Retry, SERVER_ERROR, True),
        ("CANCELLED", Retry, SERVER_ERROR, True),
    ],
)
def test_every_code_is_blamed_on_whom_it_is_about(
    server: GrpcServer, opens: Opens, answer: str, kind: type[Outcome], reason: str | None, counted: bool | None
) -> None:
    """G6: the publisher's failures use up none of the event's attempts."""
    publisher = opens(server.target)
    publish(publisher, json_event(envelope_of()))
    outcome = publish(publisher, json_event(envelope_of(answer=answer)))
    assert type(outcome) is kind
    assert (getattr(outcome, "reason", None), getattr(outcome, "counted", None)) == (reason, counted)
    if not isinstance(outcome, Delivered):
        assert outcome.error.endswith(f"{answer}: as asked")


@pytest.mark.parametrize("answer", ["RESOURCE_EXHAUSTED", "UNAVAILABLE"])
def test_a_pause_that_the_server_asks_for_is_kept(server: GrpcServer, opens: Opens, answer: str) -> None:
    """google.rpc.RetryInfo, beside other details."""
    outcome = publish(opens(server.target), json_event(envelope_of(answer=answer, retry_delay_s=2.5)))
    assert isinstance(outcome, Retry)
    assert (outcome.retry_after_s, outcome.counted) == (2.5, False)


def test_an_event_above_the_servers_limit_is_dead(server: GrpcServer, opens: Opens) -> None:
    """The code is that of a throttle, which would hold the publisher for this event for ever."""
    outcome = publish(opens(server.target), json_event(envelope_of(text="x" * (2 << 20))))
    assert isinstance(outcome, Dead)
    assert "larger than max" in outcome.error


@pytest.mark.parametrize(
    ("data", "content_type"),
    [(b"{}", "application/json"), (b"\xff", "application/protobuf"), (b"", "application/protobuf"), (b"x", "text/xml")],
)
def test_what_is_no_envelope_is_dead(server: GrpcServer, opens: Opens, data: bytes, content_type: str) -> None:
    """It can never be accepted, and is not sent."""
    outcome = publish(opens(server.target), make_event(envelope=data, content_type=content_type))
    assert isinstance(outcome, Dead)
    assert "EventEnvelope" in outcome.error


def test_a_server_that_is_away_is_found_again(tmp_path: Path, opens: Opens) -> None:
    """G6: refused connections count against no event; a call that was under way does. Back within two seconds or so."""
    server = start_grpc_server(tmp_path)
    publisher = opens(server.target)
    assert isinstance(publish(publisher, json_event(envelope_of())), Delivered)
    hanging = envelope_of(hang=True)
    assert publisher.submit(json_event(hanging), time.monotonic() + 20)
    wait_for(lambda: server.calls()[-1]["event"]["event_id"] == hanging["event_id"], 10, "the call to arrive")
    server.stop()
    ((_, outcome),) = collect(publisher, 1)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (RESET, True)
    outcome = publish(publisher, json_event(envelope_of()))
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (CONNECT, False)
    server = start_grpc_server(tmp_path, port=server.port)
    wait_for(
        lambda: isinstance(publish(publisher, json_event(envelope_of())), Delivered), 10, "the publisher to reconnect"
    )
    server.stop()


def test_a_server_that_hangs_uses_up_the_events_time(tmp_path: Path, opens: Opens) -> None:
    """G4, G6: the event was sent, so it counts; and the publisher works on when the server does."""
    server = start_grpc_server(tmp_path)
    publisher = opens(server.target)
    assert isinstance(publish(publisher, json_event(envelope_of())), Delivered)
    server.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: is_stopped(server.process.pid), 10, "the server to stand still")
    outcome = publish(publisher, json_event(envelope_of()), timeout_s=0.5)
    server.process.send_signal(signal.SIGCONT)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (TIMEOUT, True)
    wait_for(lambda: isinstance(publish(publisher, json_event(envelope_of())), Delivered), 5, "an answer again")
    server.stop()


def test_a_connection_that_never_comes_about_counts_against_no_event(opens: Opens) -> None:
    """G6: the kernel takes the connection, nobody speaks gRPC."""
    with silent_server(port := free_port()):
        outcome = publish(opens(f"127.0.0.1:{port}"), json_event(envelope_of()), timeout_s=0.4)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (CONNECT, False)


def test_a_name_that_does_not_resolve_is_told_as_such(opens: Opens) -> None:
    """The reason is a metric's label."""
    outcome = publish(opens("activity.invalid:9090"), json_event(envelope_of()), timeout_s=10)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (DNS, False)


def test_tls_is_checked_against_the_authority(tmp_path: Path, opens: Opens) -> None:
    """A server that cannot show a certificate of ours gets nothing."""
    certificates = make_certificates(tmp_path)
    server = start_grpc_server(tmp_path, certificates=certificates)
    trusting = opens(server.target, tls=True, ca_file=str(certificates.authority))
    assert isinstance(publish(trusting, json_event(envelope_of())), Delivered)
    outcome = publish(opens(server.target, tls=True), json_event(envelope_of()))
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (TLS, False)
    outcome = publish(opens(server.target), json_event(envelope_of()))
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (CONNECT, False)
    assert len(server.calls()) == 1
    settings = ActivityGrpc(name="activity", target=server.target, tls=True, ca_file=str(certificates.authority))
    assert check(settings, 5.0) == f"{server.target} is reachable over gRPC with TLS"
    server.stop()


def test_grpc_writes_nothing_among_the_lines_of_the_log(server: GrpcServer) -> None:
    """Its C library has lines of its own for standard error, of failed handshakes for one."""
    program = (
        "from outboxd.config.schema import ActivityGrpc; from outboxd.publishers import check\n"
        f"check(ActivityGrpc(name='activity', target={server.target!r}, tls=True), 5.0)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stderr.splitlines()[-1].startswith("outboxd.errors.PublisherError: cannot reach 127.0.0.1")
    assert "ssl_transport_security" not in run.stderr


def test_check_tells_a_server_from_none(server: GrpcServer) -> None:
    """`outboxd check` has one line for each publisher."""
    assert check(ActivityGrpc(name="activity", target=server.target), 5.0) == f"{server.target} is reachable over gRPC"
    calls = len(server.calls())
    with pytest.raises(PublisherError, match=r"cannot reach 127\.0\.0\.1:.*refused"):
        check(ActivityGrpc(name="activity", target=f"127.0.0.1:{free_port()}"), 5.0)
    with silent_server(port := free_port()), pytest.raises(PublisherError, match="cannot reach"):
        assert seconds(lambda: check(ActivityGrpc(name="activity", target=f"127.0.0.1:{port}"), 0.5)) < 2
    assert len(server.calls()) == calls, "check sends no event"


def test_many_calls_are_in_flight_at_once(server: GrpcServer, opens: Opens) -> None:
    """G1: each of them comes out once, whatever becomes of the others."""
    answers = [{}, {"answer": "UNAVAILABLE"}, {"answer": "INVALID_ARGUMENT"}]
    events = [json_event(envelope_of(**answers[number % 3])) for number in range(900)]
    outcomes = publish_all(opens(server.target), events)
    assert sorted(event.id for event, _ in outcomes) == [event.id for event in events]
    kinds = {event.id: type(outcome) for event, outcome in outcomes}
    assert [kinds[event.id] for event in events[:3]] == [Delivered, Retry, Dead]


def test_publishers_of_forked_children_leave_nothing_behind(server: GrpcServer) -> None:
    """G7: a worker that is killed and replaced, again and again, with calls in flight."""
    children = 200 if os.environ.get("OUTBOXD_CHAOS") == "full" else 30
    result = fork_children("ActivityGrpc", {"target": server.target}, children)
    assert (result["ended"], result["killed"]) == (children // 2, children // 2)
    assert result["descriptors"][0] == result["descriptors"][1]
    assert result["resident_bytes"][1] < result["resident_bytes"][0] + (8 << 20)
