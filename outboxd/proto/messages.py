"""EventEnvelope as protobuf, and what gRPC says of a failure. Imported only where protobuf is needed: it is an extra.

The classes are made from the descriptors when this is imported. The Python code that protoc generates refuses to run
with a protobuf older than its protoc, or newer than the next major version; a descriptor is read by all of them.
They live in a pool of their own, so that the same process may hold classes generated from the same file.
"""

from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

CONSUME_ROOM_EVENT = "/outboxd.room.v1.ActivityService/ConsumeRoomEvent"
DEEPEST = 30
"""Protobuf's parsers give up after 100 messages within each other, and an object in a Struct takes three of them."""
EXACT = 2**53
"""Up to here a double holds every whole number."""
WHOLE = 2.0**64
"""From here on a number was no whole number in JSON either, whatever its value."""

_pool = DescriptorPool()
for _file in FileDescriptorSet.FromString(Path(__file__).with_name("descriptors.binpb").read_bytes()).file:
    _pool.Add(_file)


def _message_class(name: str) -> Any:
    return GetMessageClass(_pool.FindMessageTypeByName(name))


EventEnvelope = _message_class("outboxd.room.v1.EventEnvelope")
_Status = _message_class("outboxd.rpc.Status")
_RetryInfo = _message_class("outboxd.rpc.RetryInfo")


def read_envelope(data: bytes) -> dict[str, Any]:
    """The fields of a serialized EventEnvelope; whole numbers in its body are ints. Raises ValueError."""
    message = _parse(EventEnvelope, data)
    return {
        "event_id": message.event_id,
        "app_code": message.app_code,
        "event_type": message.event_type,
        "room_id": message.room_id,
        "room_version": message.room_version,
        "occurred_at_ms": message.occurred_at_ms,
        "body": {name: _plain(value) for name, value in message.body.fields.items()},
    }


def write_envelope(body: dict[str, Any], **fields: str | int) -> bytes:
    """A serialized EventEnvelope. body: as it is in JSON. Raises ValueError for what its fields cannot hold."""
    message = EventEnvelope(**fields)
    target = message.body  # asking for it does not set it, filling it does
    target.SetInParent()
    for name, value in body.items():
        _fill(target.fields[name], value)
    return bytes(message.SerializeToString())


def retry_delay_s(details: bytes) -> float | None:
    """What a google.rpc.Status says in its RetryInfo; None if it has none, or is no Status."""
    try:
        for detail in _parse(_Status, details).details:
            if detail.type_url.rpartition("/")[2] == "google.rpc.RetryInfo":
                delay = _parse(_RetryInfo, detail.value).retry_delay
                return float(max(0.0, delay.seconds + delay.nanos / 1e9))
    except ValueError:
        return None
    return None


def _parse(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ValueError(str(error)) from error


def _fill(target: Any, value: Any, depth: int = 1) -> None:
    """A google.protobuf.Value from JSON's."""
    if isinstance(value, str):
        target.string_value = value
    elif value is None:
        target.null_value = 0
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        if -EXACT <= value <= EXACT or _is_exact(value):
            target.number_value = value
        else:
            target.string_value = str(value)
    elif isinstance(value, float):
        target.number_value = value
    elif depth > DEEPEST:
        raise ValueError(f"objects and lists within each other go deeper than {DEEPEST}")
    elif isinstance(value, dict):
        target.struct_value.SetInParent()
        for name, item in value.items():
            _fill(target.struct_value.fields[name], item, depth + 1)
    else:
        target.list_value.SetInParent()
        for item in value:
            _fill(target.list_value.values.add(), item, depth + 1)


def _is_exact(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _plain(value: Any) -> Any:
    """JSON's value from a google.protobuf.Value."""
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() and abs(number) < WHOLE else number
    if kind == "struct_value":
        return {name: _plain(item) for name, item in value.struct_value.fields.items()}
    if kind == "list_value":
        return [_plain(item) for item in value.list_value.values]
    return None if kind in (None, "null_value") else getattr(value, kind)
