"""The message that every queue carries: what a consumer reads is what the producer wrote."""

import ast
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from outboxd import wakeups
from outboxd.envelope import read
from outboxd.message import InvalidEvent, InvalidMessage, Message, decode, encode
from outboxd.wakeups import wakeup_of
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


@pytest.mark.parametrize("headers", ["[]", "7", "{", '"x"', ""])
def test_headers_that_are_no_object_make_no_message(headers: str) -> None:
    with pytest.raises(InvalidEvent, match="headers are no JSON object"):
        encode(make_event(headers=headers))


def test_headers_that_are_json_null_are_none() -> None:
    """What many a producer's library writes for none, and as it is over HTTP."""
    assert decode(encode(make_event(headers="null"))).headers == {}


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


@pytest.mark.parametrize("change", [{"lane": ...}, {"outbox_id": "1"}, {"headers": []}, {"envelope": ...}])
def test_of_a_later_version_the_version_is_told_and_not_what_it_lacks(change: dict[str, object]) -> None:
    """A person is to update the consumer, not to look for what the relay left out."""
    message = {name: value for name, value in {**GOOD, **change, "v": 2}.items() if value is not ...}
    with pytest.raises(InvalidMessage, match="a room_outbox_event of version 2: this outboxd reads version 1"):
        decode(json.dumps(message))


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"null", b"[" * 100_000, b'{"v":1}'])
def test_junk_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidMessage, match="no room_outbox_event"):
        decode(data)


DOCUMENTS = Path(__file__).parents[2] / "docs"


def blocks(document: str, language: str) -> list[str]:
    """The fenced blocks of a document."""
    text = (DOCUMENTS / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_documents_examples_are_messages_envelopes_and_wake_ups() -> None:
    """Whoever writes a consumer in another language goes by them."""
    first, second, envelope = blocks("message-format.md", "json")
    assert decode(first).envelope == re.search(rb'"envelope": (.*)}$', first.strip().encode())[1]  # type: ignore[index]
    closed = decode(second)
    event = make_event(content_type=closed.content_type, envelope=closed.envelope)
    assert read(event).event_type == closed.event_type == "RoomClosed"
    assert read(make_event(envelope=envelope.encode())).body == {"user_id": "u-5"}
    ignited, wakeup = blocks("rockets.md", "json")
    event = make_event(envelope=ignited.encode(), app_code="hyapp", room_id="r-17", event_type="RoomRocketIgnited")
    assert wakeup_of(event) == wakeups.decode(wakeup.encode())


@pytest.mark.parametrize("document", ["message-format.md", "rockets.md"])
def test_what_the_documents_import_is_there(document: str) -> None:
    for block in blocks(document, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module:
                module = importlib.import_module(node.module)
                assert [name.name for name in node.names if not hasattr(module, name.name)] == []
