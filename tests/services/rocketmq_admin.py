"""What the tests ask a RocketMQ broker for: topics and consumer groups, in its own protocol.

The admin tool that comes with it says the same, but takes some seconds for each of them to start.
"""

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

import grpc
from rocketmq.grpc_protocol import AddressScheme, Code, MessagingServiceStub, QueryRouteRequest

MAKE_TOPIC, MAX_OFFSET, MAKE_GROUP, DROP_TOPIC = 17, 30, 200, 215
READ_WRITE = 6
MASTER = 0


def make_topic(broker: str, topic: str, message_type: str = "NORMAL", queues: int = 1) -> None:
    """A topic, or another type for it. broker: host:port of its remoting protocol."""
    _ask(broker, MAKE_TOPIC, {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": READ_WRITE,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
        "attributes": f"+message.type={message_type}",
    })  # fmt: skip


def drop_topic(broker: str, topic: str) -> None:
    """The topic is no more."""
    _ask(broker, DROP_TOPIC, {"topic": topic})


def make_group(broker: str, group: str, retries: int = 16) -> None:
    """A consumer group that gets a message so often again before it is a dead letter."""
    settings = {"groupName": group, "retryMaxTimes": retries, "retryQueueNums": 1, "brokerId": MASTER}
    _ask(broker, MAKE_GROUP, {}, json.dumps(settings).encode())


def has_route(endpoints: str, topic: str) -> bool:
    """Does the proxy tell clients where the topic is?"""
    host, _, port = endpoints.partition(";")[0].rpartition(":")
    request = QueryRouteRequest()
    request.topic.name = topic
    request.endpoints.scheme = AddressScheme.IPv4
    request.endpoints.addresses.add(host=host, port=int(port))
    metadata = (("x-mq-client-id", "tests"),)
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            answer = MessagingServiceStub(channel).QueryRoute(request, timeout=5, metadata=metadata)
        except grpc.RpcError:
            return False
    return bool(answer.status.code == Code.OK)


def count(broker: str, topic: str, queues: int) -> int:
    """How many messages a topic has had."""
    asked = [_ask(broker, MAX_OFFSET, {"topic": topic, "queueId": number}) for number in range(queues)]
    return sum(int(answer["extFields"]["offset"]) for answer in asked)


def _ask(broker: str, code: int, fields: Mapping[str, object], body: bytes = b"") -> dict[str, Any]:
    """One command. Its frame: length of all, length of the header, header, body."""
    head = {
        "code": code, "flag": 0, "language": "OTHER", "opaque": 1, "version": 0, "serializeTypeCurrentRPC": "JSON",
        "extFields": {name: str(value).lower() if isinstance(value, bool) else str(value)
                      for name, value in fields.items()},
    }  # fmt: skip
    text = json.dumps(head).encode()
    host, _, port = broker.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body)
        with connection.makefile("rb") as answers:
            length, head_length = struct.unpack(">ii", answers.read(8))
            answer = json.loads(answers.read(length - 4)[: head_length & 0xFFFFFF])
    assert answer["code"] == 0, f"the broker refused command {code}: {answer.get('remark')}"
    return dict(answer)
