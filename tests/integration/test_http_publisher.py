"""The HTTP publisher against a real receiver: what is sent, and what each answer leads to."""

import base64
import hmac
import json
import random
import time
import tracemalloc

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from outboxd.event import DELIVERED, Dead, Retry
from tests.services.payloads import Payload
from tests.services.publishing import Opens, collect, make_event, publish, publish_all
from tests.services.receiver import Receiver
from tests.services.receiver_answers import Request
from tests.services.wait import wait_for

pytest_plugins = ["tests.services.http_publishing"]

HOSTILE = {
    "event_id": 'e "1" 100%\r\nX-Evil: 1',
    "event_type": "Räume\r\nX-Evil: 1",
    "room_id": "房间 1\r\n\r\nPOST /evil HTTP/1.1\r\n\r\n",
    "app_code": "a\x00b\tc",
    "headers": json.dumps({"baggage": "k=v\r\nX-Evil: 1", "traceparent": "00-1-2-01"}),
}


def as_cloudevent(request: Request) -> tuple[dict[str, object], object]:
    """Attributes and data, as the official SDK reads them."""
    event = from_http_event(HTTPMessage(request.headers, request.body))
    return event.get_attributes(), event.get_data()


@pytest.mark.parametrize("form", ["cloudevents", "cloudevents_structured"])
@pytest.mark.parametrize("columns", [{}, HOSTILE], ids=["plain", "hostile"])
def test_the_sdk_reads_the_attributes_as_the_row_has_them(
    receiver: Receiver, opens: Opens, form: str, columns: dict[str, object]
) -> None:
    """Whatever stands in them."""
    event = make_event(**columns)
    assert publish(opens(format=form), event) is DELIVERED
    attributes, data = as_cloudevent(receiver.requests[-1])
    assert str(attributes.pop("time")) == "2023-11-14 22:13:20.123000+00:00"
    assert attributes == {
        "specversion": "1.0",
        "id": event.event_id,
        "source": "/outboxd/room_outbox",
        "type": event.event_type,
        "subject": event.room_id,
        "partitionkey": event.room_id,
        "appcode": event.app_code,
        "datacontenttype": "application/json",
    }
    assert data == {"a": 1}


@pytest.mark.parametrize("form", ["cloudevents", "raw"])
def test_payloads_arrive_byte_for_byte(receiver: Receiver, opens: Opens, payloads: list[Payload], form: str) -> None:
    """Real ones, and bytes that are no text."""
    chance = random.Random(1)
    bodies = [body for _, _, body in payloads[:100]] + [chance.randbytes(size) for size in (0, 1, 99_999)]
    events = [make_event(envelope=body) for body in bodies]
    outcomes = publish_all(opens(format=form), events)
    assert [outcome for _, outcome in outcomes] == [DELIVERED] * len(events)
    received = {request.event_id: request.body for request in receiver.requests}
    assert received == {event.event_id: event.envelope for event in events}


def test_structured_data_arrives_byte_for_byte(receiver: Receiver, opens: Opens, payloads: list[Payload]) -> None:
    """JSON is spliced in as it is; anything else comes back out of base64."""
    publisher = opens(format="cloudevents_structured")
    for _, _, body in payloads[:30]:
        publish(publisher, make_event(envelope=body))
        assert receiver.requests[-1].body.endswith(b'"data":' + body + b"}")
        assert as_cloudevent(receiver.requests[-1])[1] == json.loads(body)
    publish(publisher, make_event(envelope=b"\xff\x00", content_type="application/x-protobuf"))
    assert as_cloudevent(receiver.requests[-1])[1] == b"\xff\x00"


def test_ten_megabytes_arrive(receiver: Receiver, opens: Opens) -> None:
    """Without `Expect: 100-continue`, for which many receivers keep the client waiting a second."""
    envelope = random.Random(1).randbytes(10_000_000)
    assert publish(opens(), make_event(envelope=envelope), timeout_s=10) is DELIVERED
    assert receiver.requests[-1].body == envelope
    assert "expect" not in receiver.requests[-1].headers


@pytest.mark.parametrize("form", ["cloudevents", "cloudevents_structured", "raw"])
def test_line_breaks_in_columns_add_no_headers(receiver: Receiver, opens: Opens, form: str) -> None:
    """G7: one event arrives, as one request, without the header that was smuggled into every column."""
    event = make_event(**HOSTILE, content_type="application/json\r\nX-Evil: 1")
    assert publish(opens(format=form, secret=b"k" * 24), event) is DELIVERED
    (request,) = receiver.requests
    names = [name for name, _ in request.header_lines]
    assert not [name for name in names if "evil" in name]
    assert len(names) == len(set(names))


def test_static_headers_and_authorization_are_sent(receiver: Receiver, opens: Opens) -> None:
    """Once each, as configured; an empty value too. No compressed answer is asked for."""
    own = {"X-Api-Key": "k: 1", "X-Empty": "", "User-Agent": "rooms"}
    publish(opens(headers=own, authorization="Bearer t"), make_event())
    sent = receiver.requests[-1].headers
    assert (sent["x-api-key"], sent["x-empty"], sent["authorization"]) == ("k: 1", "", "Bearer t")
    assert sent["user-agent"] == "rooms"
    assert receiver.requests[-1].method == "POST"
    assert "accept-encoding" not in sent


def test_the_signature_verifies_at_the_receiver(receiver: Receiver, opens: Opens) -> None:
    """Over what arrived, with the time of this attempt."""
    publish(opens(secret=b"key"), make_event(envelope=b"\xff\r\n"))
    request = receiver.requests[-1]
    sent = request.headers
    signed = f"{sent['webhook-id']}.{sent['webhook-timestamp']}.".encode() + request.body
    assert sent["webhook-signature"] == "v1," + base64.b64encode(hmac.digest(b"key", signed, "sha256")).decode()
    assert abs(int(sent["webhook-timestamp"]) - time.time()) < 60


def test_headers_that_are_no_object_make_a_dead_letter(receiver: Receiver, opens: Opens) -> None:
    """Nothing is sent."""
    outcome = publish(opens(), make_event(headers="[1]"))
    assert isinstance(outcome, Dead)
    assert outcome.reason == "invalid"
    assert receiver.requests == []


EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\nHTTP/1.1 204 OK\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
REDIRECTED = Retry("misconfigured", "HTTP 302 (redirects are not followed; check url)", False)


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        ({"status": 200, "body": "ok"}, DELIVERED),
        ({"raw": EARLY_HINTS}, DELIVERED),
        ({"raw": CHUNKED}, DELIVERED),
        ({"status": 422, "body": "no such room"}, Dead("rejected", "HTTP 422: no such room")),
        ({"status": 429, "retry_after": "7"}, Retry("throttled", "HTTP 429", False, 7.0)),
        ({"status": 503, "retry_after": "-1", "body": "x"}, Retry("unavailable", "HTTP 503: x", False, 0.0)),
        ({"status": 502, "retry_after": "7"}, Retry("unavailable", "HTTP 502", False)),
        ({"status": 500, "body": b"\xff" * 300}, Retry("server_error", "HTTP 500: " + "\ufffd" * 200)),
        ({"status": 401}, Retry("misconfigured", "HTTP 401 (check authorization_file)", False)),
        ({"status": 302, "location": "/elsewhere"}, REDIRECTED),
    ],
)
def test_an_answer_leads_to_its_outcome(
    receiver: Receiver, opens: Opens, behaviour: dict[str, object], expected: object
) -> None:
    """G6, over the wire. Each status is judged in tests/unit/test_http_answer.py. Nothing is sent a second time."""
    receiver.answer(**behaviour)  # type: ignore[arg-type]
    assert publish(opens(), make_event()) == expected
    assert len(receiver.requests) == 1


def test_a_date_in_retry_after_counts_from_the_receivers_clock(receiver: Receiver, opens: Opens) -> None:
    """G12: here its clock is years behind."""
    dates = (("Date", "Tue, 14 Nov 2000 22:13:20 GMT"), ("Retry-After", "Tue, 14 Nov 2000 22:14:20 GMT"))
    receiver.answer(status=503, headers=dates)
    outcome = publish(opens(), make_event())
    assert isinstance(outcome, Retry)
    assert outcome.retry_after_s == 60.0


def test_connections_are_kept_and_never_more_than_configured(receiver: Receiver, opens: Opens) -> None:
    """A connection for each event would be most of its cost; more than `connections` would wait inside curl (G4)."""
    assert len(publish_all(opens(connections=3), (make_event() for _ in range(300)))) == 300
    assert receiver.accepted <= 3
    assert len(receiver.requests) == 300


def test_a_slow_event_holds_up_no_other(receiver: Receiver, opens: Opens) -> None:
    """G7: a hundred others go by while one waits for its answer."""
    slow = make_event()
    receiver.answer(event_id=slow.event_id, delay_s=1.0)
    outcomes = publish_all(opens(), [slow, *(make_event() for _ in range(100))])
    assert outcomes[-1] == (slow, DELIVERED)


def test_a_proxy_in_the_environment_is_not_used(opens: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a service's unit file happens to export must not carry events away."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert publish(opens(), make_event()) is DELIVERED


def test_an_event_whose_time_is_over_is_not_sent(receiver: Receiver, opens: Opens) -> None:
    """G4: the clock is read right before the bytes leave; the worker was held up, so no attempt is counted."""
    publisher = opens()
    assert publisher.submit(make_event(), time.monotonic() - 0.001)
    ((_, outcome),) = collect(publisher, 1)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == ("parked", False)
    assert publish(publisher, make_event()) is DELIVERED
    assert len(receiver.requests) == 1


def test_closing_ends_every_connection(receiver: Receiver, opens: Opens) -> None:
    """G5: a drained worker leaves nothing open, idle or busy."""
    publisher = opens()
    publish_all(publisher, (make_event() for _ in range(20)))
    hanging = make_event()
    receiver.answer(event_id=hanging.event_id, hang=True)
    assert publisher.submit(hanging, time.monotonic() + 30)
    publisher.collect()
    assert receiver.connected > 0
    publisher.close(time.monotonic() + 1)
    wait_for(lambda: receiver.connected == 0, 5, "the connections to end")


def test_payloads_are_freed_with_their_outcome(receiver: Receiver, opens: Opens) -> None:
    """G9: a handle that waits for its next event holds nothing of the last one."""
    receiver.keep_bodies = False
    publisher = opens(connections=8)
    bodies = [b"%d" % number * 500_000 for number in range(10, 18)]
    tracemalloc.start()
    for body in bodies:
        publisher.submit(make_event(envelope=bytearray(body)), time.monotonic() + 5)
    collect(publisher, 8)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 2_500_000  # of 8 MB sent; the receiver's thread may still hold its last request
