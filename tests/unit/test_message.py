"""The message that every queue carries: what a consumer reads is what the producer wrote."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from outboxd.message import InvalidEvent, InvalidMessage, Message, decode, encode
from tests.services.publishing import make_event

TEXT = some.text(some.characters(exclude_categories=["Cs"]), max_size=64)


def test_a_json_envelope_is_spliced_in_unchanged() -> None:
    """Spaces, the order of keys, long numbers: a consumer may check a signature over it."""
    event = make_event(
        id=17, event_id="e-1", event_type="RoomCreated", room_id="r", app_code="app", created_at_ms=5,
        lane="room_outbox",
        envelope=b'{ "b": 1.10, "a": 12345678901234567890 }', content_type="application/json",
        headers='{"traceparent": "x"}',
    )  # fmt: skip
    assert encode(event) == (
        b'{"v":1,"lane":"room_outbox","outbox_id":17,"event_id":"e-1","event_type":"RoomCreated","room_id":"r",'
        b'"app_code":"app","created_at_ms":5,"content_type":"application/json","headers":{"traceparent":"x"},'
        b'"envelope":{ "b": 1.10, "a": 12345678901234567890 }}'
    )


@given(
    envelope=some.binary(max_size=200),
    content_type=some.sampled_from(["application/json", "application/protobuf", ""]),
    names=some.tuples(TEXT, TEXT, TEXT, TEXT),
    headers=some.none() | some.dictionaries(TEXT, TEXT, max_size=3),
)
@example(envelope=b'"\xff"', content_type="application/json", names=("", "", "", ""), headers=None)
@example(envelope=b"{} {}", content_type="application/json", names=("", "", "", ""), headers=None)
@example(envelope=b"", content_type="application/json", names=("", "", "", ""), headers={})
def test_whatever_was_written_is_read_back(
    envelope: bytes, content_type: str, names: tuple[str, str, str, str], headers: dict[str, str] | None
) -> None:
    """Any bytes, whatever their content type says of them."""
    event_id, event_type, room_id, app_code = names
    event = make_event(
        event_id=event_id, event_type=event_type, room_id=room_id, app_code=app_code, envelope=envelope,
        content_type=content_type, headers=None if headers is None else json.dumps(headers),
    )  # fmt: skip
    body = encode(event)
    assert json.loads(body)["v"] == 1
    assert decode(body) == Message(
        lane=event.lane, outbox_id=event.id, event_id=event_id, event_type=event_type, room_id=room_id,
        app_code=app_code, created_at_ms=event.created_at_ms, content_type=content_type or "application/octet-stream",
        headers=headers or {}, envelope=envelope,
    )  # fmt: skip


@pytest.mark.parametrize("headers", ["[]", "7", "{", '"x"', "null"])
def test_headers_that_are_no_object_make_no_message(headers: str) -> None:
    with pytest.raises(InvalidEvent, match="headers are no JSON object"):
        encode(make_event(headers=headers))


GOOD: dict[str, Any] = {"v": 1, "lane": "l", "outbox_id": 1, "event_id": "e", "event_type": "T", "envelope": {}}


def test_fields_of_a_later_version_are_ignored() -> None:
    """A consumer is not updated with every relay."""
    assert decode(json.dumps({**GOOD, "new": [1]})).envelope == b"{}"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"v": 2}, "version 2"),
        ({"envelope_base64": ""}, "both"),
        ({"envelope": ...}, "neither"),
        ({"envelope": ..., "envelope_base64": "x"}, "envelope_base64"),
        ({"outbox_id": "1"}, "outbox_id"),
        ({"lane": ...}, "lane"),
        ({"headers": []}, "headers"),
    ],
)
def test_what_is_no_message_is_refused_with_the_reason(change: dict[str, object], why: str) -> None:
    """Something else was put into the queue."""
    message = {name: value for name, value in {**GOOD, **change}.items() if value is not ...}
    with pytest.raises(InvalidMessage, match=why):
        decode(json.dumps(message))


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"null", b"[" * 100_000, b'{"v":1}'])
def test_junk_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessage, match="no room_outbox_event"):
        decode(data)
