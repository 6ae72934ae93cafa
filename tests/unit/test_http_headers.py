"""Headers of requests: what is sent, and what can never be smuggled in."""

import base64
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from outboxd.config.schema import Http
from outboxd.errors import PublisherError
from outboxd.event import Event
from outboxd.message import InvalidEvent
from outboxd.publishers.http_headers import Requests
from tests.services.publishing import make_event

TEXT = some.text(some.characters(exclude_categories=["Cs"]))


def settings(**changes: object) -> Http:
    return Http(**{"name": "web", "url": "http://receiver/", **changes})  # type: ignore[arg-type]


def headers(event: Event, **changes: object) -> dict[str, str]:
    lines, _ = Requests(settings(**changes), "room_outbox").build(event)
    pairs = [line.partition(": ") for line in lines]
    names = [name.lower() for name, _, _ in pairs]
    assert len(names) == len(set(names)), f"a header is set twice: {lines}"
    return {name.lower(): value for name, _, value in pairs}


def test_the_binary_form_has_the_envelope_as_its_body() -> None:
    """Byte for byte; the attributes are headers."""
    event = make_event(event_id="e1", envelope=b"\xff\r\n", content_type="application/x-protobuf")
    lines, body = Requests(settings(), "room_outbox").build(event)
    assert body is event.envelope
    assert sorted(lines) == [
        "Content-Type: application/x-protobuf",
        "ce-appcode: app",
        "ce-id: e1",
        "ce-partitionkey: room-1",
        "ce-source: /outboxd/room_outbox",
        "ce-specversion: 1.0",
        "ce-subject: room-1",
        "ce-time: 2023-11-14T22:13:20.123Z",
        "ce-type: RoomCreated",
    ]


def test_the_raw_form_names_the_event_in_headers_of_its_own() -> None:
    """A receiver that knows no CloudEvents needs the id to recognise a repeat."""
    event = make_event(event_id="e1", room_id="", app_code="a b")
    assert headers(event, format="raw") == {
        "content-type": "application/json",
        "x-outboxd-event-id": "e1",
        "x-outboxd-event-type": "RoomCreated",
        "x-outboxd-app-code": "a%20b",
    }


def test_the_structured_form_says_so_in_its_content_type() -> None:
    """The event's own content type stands inside."""
    lines, body = Requests(settings(format="cloudevents_structured"), "room_outbox").build(make_event())
    assert lines == ["Content-Type: application/cloudevents+json; charset=utf-8"]
    assert json.loads(body)["datacontenttype"] == "application/json"


def test_events_of_one_kind_share_no_values_that_differ() -> None:
    """Constant headers are remembered by type, tenant and content type."""
    requests = Requests(settings(), "room_outbox")
    for number in range(3000):
        event = make_event(event_type=f"T{number % 7}", app_code=f"a{number}", content_type=f"text/x{number % 5}")
        lines, _ = requests.build(event)
        assert {f"ce-type: T{number % 7}", f"ce-appcode: a{number}", f"Content-Type: text/x{number % 5}"} <= set(lines)
        assert f"ce-id: {event.event_id}" in lines


def test_only_the_headers_that_are_asked_for_are_forwarded() -> None:
    """Trace context always, others by name, in any case."""
    own = {"TraceParent": "00-a-b-01", "tracestate": "k=v", "baggage": "x=%20", "X-Tenant": "7", "X-Other": "8"}
    event = make_event(headers=json.dumps(own))
    sent = headers(event, forward_headers=("x-TENANT",))
    assert {name: sent[name] for name in ("traceparent", "tracestate", "baggage", "x-tenant")} == {
        "traceparent": "00-a-b-01",
        "tracestate": "k=v",
        "baggage": "x=%20",
        "x-tenant": "7",
    }
    assert "x-other" not in sent


def test_what_the_relay_sets_is_never_forwarded() -> None:
    """Nor what frames the request: a producer could send two requests in one."""
    names = (
        "Host", "Content-Length", "Transfer-Encoding", "Content-Type", "ce-id", "webhook-id", "x-outboxd-event-id",
        "User-Agent", "Connection", "Expect", "Authorization", "X-Static",
    )  # fmt: skip
    event = make_event(headers=json.dumps(dict.fromkeys(names, "evil")))
    sent = headers(event, forward_headers=names, headers={"X-Static": "good"}, authorization="Bearer t")
    assert "evil" not in sent.values()
    assert (sent["x-static"], sent["authorization"]) == ("good", "Bearer t")


@given(TEXT, TEXT, TEXT, TEXT, TEXT, TEXT)
def test_no_value_can_begin_a_line(a: str, b: str, c: str, d: str, e: str, f: str) -> None:
    """G7: CR, LF and everything else that is not printable ASCII, in every column that becomes a header."""
    event = make_event(
        event_id=a or "e",
        event_type=b or "t",
        room_id=c,
        app_code=d,
        content_type=e,
        headers=json.dumps({"baggage": f}),
    )
    for form in ("cloudevents", "cloudevents_structured", "raw"):
        lines, _ = Requests(settings(format=form, secret=b"key"), "room_outbox").build(event)
        assert all(" " <= character <= "~" for line in lines for character in line)


@pytest.mark.parametrize("text", ["[1]", '"x"', "7", "true", "{", "", '{"a": }', "[" * 10_000])
def test_headers_that_are_no_object_are_refused(text: str) -> None:
    """The producer made a mistake that no retry mends."""
    with pytest.raises(InvalidEvent, match="must write an object"):
        headers(make_event(headers=text))


@pytest.mark.parametrize("text", [None, "null", "{}"])
def test_no_headers_are_no_mistake(text: str | None) -> None:
    """JSON's null is what many an ORM writes for none."""
    assert "traceparent" not in headers(make_event(headers=text))


def test_values_that_are_no_text_are_sent_as_json_or_left_out() -> None:
    """Numbers and booleans have one spelling; lists, objects and null have none in a header."""
    own = {"a": 1, "b": True, "c": 1.5, "d": None, "e": [1], "f": {"x": 1}, "g": "", "h": "x"}
    sent = headers(make_event(headers=json.dumps(own)), forward_headers=tuple(own))
    assert {name: value for name, value in sent.items() if name in own} == {"a": "1", "b": "true", "c": "1.5", "h": "x"}


def test_the_signature_covers_what_is_sent() -> None:
    """The structured form signs its own document, and the id is signed as the header has it."""
    event = make_event(event_id="a b")
    requests = Requests(settings(format="cloudevents_structured", secret=b"key"), "room_outbox")
    lines, body = requests.build(event)
    sent = dict(line.split(": ", 1) for line in lines)
    from_the_outside = f"{sent['webhook-id']}.{sent['webhook-timestamp']}.".encode() + body
    assert sent["webhook-id"] == "a%20b"
    assert sent["webhook-signature"] == "v1," + _base64_hmac(b"key", from_the_outside)


def _base64_hmac(key: bytes, text: bytes) -> str:
    return base64.b64encode(hmac.digest(key, text, "sha256")).decode()


def test_the_source_names_the_lane() -> None:
    """Or is what the configuration says."""
    assert headers(make_event())["ce-source"] == "/outboxd/room_outbox"
    assert (
        headers(make_event(), source="https://rooms.test/{lane}?x=1")["ce-source"]
        == "https://rooms.test/room_outbox?x=1"
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"headers": {"Content-Length": "3"}}, "is set by outboxd itself"),
        ({"headers": {"ce-type": "x"}}, "is set by outboxd itself"),
        ({"headers": {"X: y": "x"}}, "no name of a header"),
        ({"headers": {"X-Key": "secret\r\nX: y"}}, "only printable ASCII"),
        ({"authorization": "Bearer secret\n"}, "only printable ASCII"),
        ({"authorization": "Bearer secret", "headers": {"authorization": "x"}}, "both set Authorization"),
        ({"forward_headers": ("a b",)}, "no name of a header"),
    ],
)
def test_headers_that_cannot_be_sent_are_refused_at_the_start(changes: dict[str, object], problem: str) -> None:
    """G11: the error names the key, never the value."""
    with pytest.raises(PublisherError, match=problem) as raised:
        Requests(settings(**changes), "room_outbox")
    assert str(raised.value).startswith("publishers.web")
    assert "secret" not in str(raised.value)
