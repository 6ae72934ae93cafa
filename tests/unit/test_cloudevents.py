"""CloudEvents out of events, and how their values are written into headers."""

import base64
import json
from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from outboxd.message import InvalidEvent, is_json
from outboxd.publishers import cloudevents
from tests.services.publishing import make_event

TEXT = some.text(some.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("room-1", "room-1"),
        ("a b", "a%20b"),
        ('say "hi"', "say%20%22hi%22"),
        ("100%", "100%25"),
        ("a\r\nX: y", "a%0D%0AX:%20y"),
        ("Euro €", "Euro%20%E2%82%AC"),
        ("😀", "%F0%9F%98%80"),
        ("!#$&'()*+,/:;=?@[]~^`{|}", "!#$&'()*+,/:;=?@[]~^`{|}"),
        ("", ""),
    ],
)
def test_a_header_value_is_written_as_the_specification_says(text: str, written: str) -> None:
    """Its own examples among them: space, quotation mark, percent sign and all that is not printable ASCII."""
    assert cloudevents.header_value(text) == written


@given(TEXT)
def test_any_text_survives_a_header(text: str) -> None:
    """What a receiver decodes is what the producer wrote, and nothing in it can end the line."""
    written = cloudevents.header_value(text)
    assert unquote(written) == text
    assert all("!" <= character <= "~" for character in written)


def test_half_a_surrogate_pair_does_not_raise() -> None:
    """G7: no text that a column can hold stops the relay."""
    assert cloudevents.header_value("\ud800") == "?"


@pytest.mark.parametrize(
    ("epoch_ms", "written"),
    [
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (1_700_000_000_000, "2023-11-14T22:13:20.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, None),
        (0, None),
        (-1, None),
    ],
)
def test_times_are_utc_with_milliseconds(epoch_ms: int, written: str | None) -> None:
    """G12: whatever the time zone of the process. 0 is unknown and is left out, as is what no calendar holds."""
    assert cloudevents.timestamp(epoch_ms) == written


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/vnd.room+json", True),
        ("text/json", True),
        ("application/jsonl", False),
        ("application/x-protobuf", False),
        ("json", True),
        ("", False),
    ],
)
def test_json_is_known_by_its_content_type(content_type: str, expected: bool) -> None:
    """Only then the data may stand in the structured form as it is."""
    assert is_json(content_type) is expected


def test_attributes_without_a_value_are_left_out() -> None:
    """An empty attribute is not allowed."""
    event = make_event(event_id="e1", room_id="", app_code="", created_at_ms=0)
    assert cloudevents.own_headers(event) == ["ce-id: e1"]
    assert cloudevents.shared_headers(event, "/outboxd/room_outbox") == [
        "ce-specversion: 1.0",
        "ce-source: /outboxd/room_outbox",
        "ce-type: RoomCreated",
    ]
    assert json.loads(cloudevents.structured_body(event, "/s")) == {
        "specversion": "1.0",
        "id": "e1",
        "source": "/s",
        "type": "RoomCreated",
        "datacontenttype": "application/json",
        "data": {"a": 1},
    }


def test_an_event_without_a_type_is_no_cloudevent() -> None:
    """The error says which column the producer must fill."""
    with pytest.raises(InvalidEvent, match="event_type is empty"):
        cloudevents.shared_headers(make_event(event_type=""), "/s")
    with pytest.raises(InvalidEvent, match="event_type is empty"):
        cloudevents.structured_body(make_event(event_type=""), "/s")


@pytest.mark.parametrize(
    "envelope", [b'{"a":  1.0e0, "a": [ ]}\n', b"null", b'"\\u0000\xe2\x82\xac"', b" 12345678901234567890 "]
)
def test_json_data_is_spliced_in_unchanged(envelope: bytes) -> None:
    """Numbers, spaces and repeated keys stay as the producer wrote them."""
    body = cloudevents.structured_body(make_event(envelope=envelope), "/s")
    assert body.endswith(b'"data":' + envelope + b"}")
    json.loads(body)


@pytest.mark.parametrize(
    ("envelope", "content_type"),
    [
        (b'{"a":1}', "application/x-protobuf"),
        (b'{"a":1', "application/json"),
        (b'{"a":1},"id":"other"', "application/json"),
        (b'1}{"', "application/json"),
        (b'"\xff"', "application/json"),
        (b"NaN", "application/json"),
        (b"", "application/json"),
    ],
)
def test_what_is_not_valid_json_goes_as_base64(envelope: bytes, content_type: str) -> None:
    """Bytes that only claim to be JSON must not break, or break out of, the document around them."""
    event = make_event(event_id="mine", envelope=envelope, content_type=content_type)
    body = json.loads(cloudevents.structured_body(event, "/s"))
    assert base64.b64decode(body["data_base64"]) == envelope
    assert "data" not in body
    assert body["id"] == "mine"


@given(some.binary())
def test_the_structured_form_is_always_json(envelope: bytes) -> None:
    """G7: whatever the payload holds."""
    body = msgspec.json.decode(cloudevents.structured_body(make_event(envelope=envelope), "/s"))
    assert ("data" in body) is not ("data_base64" in body)
