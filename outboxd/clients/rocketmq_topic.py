"""Asks a RocketMQ server for a topic."""

import time
from collections.abc import Sequence

from rocketmq import Producer
from rocketmq.grpc_protocol import MessageType, QueryRouteRequest
from rocketmq.v5.model.topic_route import MessageQueue
from rocketmq.v5.util import MessagingResultChecker

from outboxd.clients.rocketmq import configuration, outcome_of
from outboxd.config.schema import RocketMqServer
from outboxd.errors import PublisherError


def find_route(producer: Producer, topic: str, timeout_s: float) -> Sequence[MessageQueue]:
    """Where the topic is. Raises what the server or the connection says against it. The client need not be started."""
    endpoints = producer.client_configuration.rpc_endpoints
    request = QueryRouteRequest()
    request.topic.name = topic
    request.topic.resource_namespace = producer.client_configuration.namespace
    request.endpoints.CopyFrom(endpoints.endpoints)
    call = producer.rpc_client.query_topic_route_async(endpoints, request, producer.sign(), timeout=timeout_s)
    answer = call.result(timeout_s + 1)
    MessagingResultChecker.check(answer.status)
    queues = [MessageQueue(queue) for queue in answer.message_queues]
    if not any(queue.is_writable() and queue.is_master_broker() for queue in queues):
        raise ConnectionError(f"the topic {topic} has no queue that can be written to now")
    return queues


def wrong_type(topic: str, wanted: int, queue: MessageQueue) -> str | None:
    """What is wrong with the topic for messages of that type."""
    if wanted in queue.accept_message_types:
        return None
    name = MessageType.Name(wanted)
    takes = queue.accept_message_types_desc() or "none"
    return f"the topic {topic} takes messages of type {takes}, not {name}: make it with +message.type={name}"


def look_at_topic(server: RocketMqServer, topic: str, message_type: int, timeout_s: float) -> str:
    """One line on what was found; nothing is sent. Raises PublisherError."""
    start_s = time.monotonic()
    producer = Producer(configuration(server), tls_enable=server.tls)
    try:
        queues = find_route(producer, topic, timeout_s)
    except Exception as error:
        outcome = outcome_of(error, is_connected=False)
        raise PublisherError(f"{server.endpoints}, topic {topic}: {outcome.error}") from error
    finally:
        producer.rpc_client.stop()
    for queue in queues:
        if (wrong := wrong_type(topic, message_type, queue)) is not None:
            raise PublisherError(f"{server.endpoints}: {wrong}")
    took_ms = (time.monotonic() - start_s) * 1000
    return f"{server.endpoints} serves the topic {topic} ({MessageType.Name(message_type)}), {took_ms:.0f} ms"
