"""What a gRPC status means, in the words of several versions of the client library, and a client that is stuck."""

import time
from types import SimpleNamespace

import pytest
from grpc import StatusCode

from outboxd.config.schema import ActivityGrpc
from outboxd.event import CONNECT, DNS, RESET, TIMEOUT, TLS, UNAVAILABLE, Dead, Retry
from outboxd.publishers import activity_grpc
from outboxd.publishers.grpc_answer import outcome_of
from tests.services.publishing import collect, make_event


@pytest.mark.parametrize(
    ("details", "reason", "counted"),
    [
        ("failed to connect to all addresses; last error: UNKNOWN: Connection refused", CONNECT, False),
        ("failed to connect to all addresses; last error: Tls handshake failed (TSI_PROTOCOL)", TLS, False),
        ("failed to connect to all addresses; last error: Peer name a.b is not in peer certificate", TLS, False),
        ("errors resolving a.b:1: [field:hostname lookup error:address lookup failed for a.b:1: no]", DNS, False),
        ("DNS resolution failed for a.b:1: C-ares status is not ARES_SUCCESS", DNS, False),
        ("Stream removed (Socket closed)", RESET, True),
        ("Socket closed", RESET, True),
        ("recvmsg:Connection reset by peer", RESET, True),
        ("Cancelling all calls", UNAVAILABLE, False),
        ("GOAWAY received", UNAVAILABLE, False),
        ("overloaded, come later", UNAVAILABLE, False),
        ("", UNAVAILABLE, False),
    ],
)  # fmt: skip
def test_unavailable_is_told_apart_by_what_came_before(details: str, reason: str, counted: bool) -> None:
    """G6: only a connection that broke under the call is blamed on the event: it may be what kills the server."""
    outcome = outcome_of(StatusCode.UNAVAILABLE, details, None, was_connected=True)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (reason, counted)


@pytest.mark.parametrize(
    ("details", "was_connected", "reason"),
    [
        ("Stream removed (Deadline Exceeded)", False, TIMEOUT),
        ("Deadline Exceeded", True, TIMEOUT),
        ("Deadline Exceeded", False, CONNECT),
    ],
)
def test_a_deadline_counts_where_the_call_may_have_been_sent(details: str, was_connected: bool, reason: str) -> None:
    """G6: without a connection nothing was sent."""
    outcome = outcome_of(StatusCode.DEADLINE_EXCEEDED, details, None, was_connected)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (reason, reason == TIMEOUT)


@pytest.mark.parametrize(
    "details",
    [
        "CLIENT: Sent message larger than max (5 vs. 4)",
        "SERVER: Received message larger than max (5 vs. 4)",
        "grpc: received message larger than max (5 vs. 4)",
        "gRPC message exceeds maximum size 4: 5",
    ],
)
def test_a_message_above_a_limit_is_dead_in_every_languages_words(details: str) -> None:
    """Its code is that of a throttle, which would hold the publisher for this one event for ever."""
    assert isinstance(outcome_of(StatusCode.RESOURCE_EXHAUSTED, details, None, was_connected=True), Dead)
    throttled = outcome_of(StatusCode.RESOURCE_EXHAUSTED, "quota", 1.5, was_connected=True)
    assert isinstance(throttled, Retry)
    assert throttled.retry_after_s == 1.5


def test_a_client_that_ends_no_call_gives_its_worker_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """G4: the events are back by their deadlines; what the client holds still fills it, and the process has to go."""
    publisher = activity_grpc.ActivityGrpcPublisher(ActivityGrpc(name="activity", target="127.0.0.1:9"), 1.0)
    stuck = SimpleNamespace(future=lambda *_, **__: SimpleNamespace(add_done_callback=lambda _: None))
    monkeypatch.setattr(publisher, "_consume", stuck)
    monkeypatch.setattr(activity_grpc, "WEDGED_S", 0.0)
    events = [make_event(envelope=b'{"event_id": "e", "event_type": "t"}') for _ in range(publisher.capacity)]
    deadline_s = time.monotonic() + 0.2
    assert all(publisher.submit(event, deadline_s) for event in events)
    outcomes = collect(publisher, len(events), 2)
    assert {outcome for _, outcome in outcomes} == {Retry(TIMEOUT, "no complete answer in time")}
    assert publisher.worn_out
    assert not publisher.submit(events[0], time.monotonic() + 1)
    publisher.close(time.monotonic() + 1)
