"""The EventEnvelope, however it is written."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from outboxd.envelope import Envelope, read, to_protobuf
from outboxd.message import InvalidEvent
from outboxd.proto.messages import EXACT, write_envelope
from tests.services.grpc_server import PROTO
from tests.services.publishing import make_event

CONTENT_TYPES = ("application/protobuf", "application/x-protobuf", "application/vnd.google.protobuf; charset=x")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-EXACT, EXACT) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def json_event(body: Any, **fields: object) -> Any:
    envelope = {"event_id": "e", "event_type": "RoomCreated", "body": body, **fields}
    return make_event(envelope=json.dumps(envelope).encode())


@given(st.dictionaries(texts, values, max_size=4), st.integers(-(2**63), 2**63 - 1))
def test_both_forms_read_as_the_same_envelope(body: dict[str, Any], version: int) -> None:
    """What is done with an event must not depend on how its producer writes; whole numbers are ints again."""
    as_json = json_event(body, app_code="a", room_id="房", room_version=version, occurred_at_ms=1)
    as_protobuf = make_event(envelope=to_protobuf(as_json), content_type="application/protobuf")
    assert read(as_protobuf) == read(as_json)


@pytest.mark.parametrize("content_type", CONTENT_TYPES)
def test_protobuf_goes_on_byte_for_byte(content_type: str) -> None:
    """It was written by somebody who may know more fields than we do."""
    data = write_envelope({"level": 3}, event_id="e", event_type="t") + b"\xa2\x06\x03new"
    event = make_event(envelope=data, content_type=content_type)
    assert to_protobuf(event) == data
    assert read(event) == Envelope(event_id="e", event_type="t", body={"level": 3})
    assert repr(read(event).body["level"]) == "3"


@pytest.mark.parametrize("number", [EXACT + 1, -EXACT - 1, 2**63 - 1, 2**64 + 1, 10**400])
def test_a_number_that_a_double_cannot_hold_goes_as_its_digits(number: int) -> None:
    """An id of a user that is off by one is somebody else's."""
    data = to_protobuf(json_event({"user_id": number}))
    assert read(make_event(envelope=data, content_type="application/protobuf")).body == {"user_id": str(number)}


@pytest.mark.parametrize(
    "event",
    [
        make_event(envelope=b"{}"),
        make_event(envelope=b"\xff\xff", content_type="application/protobuf"),
        make_event(envelope=b"", content_type="application/protobuf"),
        make_event(envelope=write_envelope({}, event_id="e"), content_type="application/protobuf"),
        make_event(envelope=write_envelope({}, event_type="t"), content_type="application/protobuf"),
        make_event(content_type="text/plain"),
        json_event({}, room_version=2**63),
        json_event({"a": json.loads("[" * 40 + "]" * 40)}),
        json_event({"a": json.loads('{"a":' * 40 + "1" + "}" * 40)}),
    ],
)  # fmt: skip
def test_what_is_no_envelope_is_said_to_be_none(event: Any) -> None:
    """It becomes a dead letter with that text."""
    with pytest.raises(InvalidEvent, match=r"^envelope "):
        to_protobuf(event)


def test_without_protobuf_nothing_is_said_against_the_event() -> None:
    """It is an extra: an event that needs it must wait for its installation, not die."""
    program = (
        "import sys; sys.modules['google'] = None; sys.modules['google.protobuf'] = None\n"
        "from outboxd.envelope import NoProtobuf, read, to_protobuf\n"
        "from tests.services.publishing import make_event\n"
        "e = make_event(envelope=b'{\"event_id\": \"e\", \"event_type\": \"t\"}')\n"
        "assert read(e).event_id == 'e'\n"
        "for action in (lambda: read(make_event(content_type='application/protobuf')), lambda: to_protobuf(e)):\n"
        "    try: action()\n"
        "    except NoProtobuf as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("protobuf is not installed: pip install 'outboxd[grpc]'\n" * 2, "")


def test_the_descriptors_are_those_of_the_proto_files(tmp_path: Path) -> None:
    """Nothing else ties them together: a field that was changed in one of them only would be lost on the way."""
    made = tmp_path / "made.binpb"
    names = sorted(path.name for path in PROTO.glob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"--descriptor_set_out={made}", *names]
    subprocess.run(command, check=True)
    shipped = FileDescriptorSet.FromString((PROTO / "descriptors.binpb").read_bytes()).file
    fresh = FileDescriptorSet.FromString(made.read_bytes()).file
    ours = {file.name: file for file in shipped if not file.name.startswith("google/")}
    assert ours == {file.name: file for file in fresh}
    assert set(ours) == set(names)
