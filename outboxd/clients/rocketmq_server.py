"""The server seen from a client: where a topic is, and connections that are given up for new ones."""

import time
from collections.abc import Sequence
from typing import Any

from outboxd.clients.rocketmq import configuration, outcome_of
from outboxd.clients.rocketmq_library import (
    ChannelConnectivity,
    MessageQueue,
    MessageType,
    MessagingResultChecker,
    Producer,
    QueryRouteRequest,
)
from outboxd.config.schema import RocketMqServer
from outboxd.errors import PublisherError


def find_route(client: Any, topic: str, timeout_s: float) -> Sequence[MessageQueue]:
    """Where the topic is. Raises what the server or the connection says against it. The client need not be started.

    Asked for before it is: of a topic that is missing or refused, the client's own start does not tell.
    """
    endpoints = client.client_configuration.rpc_endpoints
    request = QueryRouteRequest()
    request.topic.name = topic
    request.topic.resource_namespace = client.client_configuration.namespace
    request.endpoints.CopyFrom(endpoints.endpoints)
    call = client.rpc_client.query_topic_route_async(endpoints, request, client.sign(), timeout=timeout_s)
    answer = call.result(timeout_s + 1)
    MessagingResultChecker.check(answer.status)
    queues = [queue for queue in map(MessageQueue, answer.message_queues) if queue.is_master_broker()]
    if not queues:
        raise ConnectionError(f"the topic {topic} has no broker now")
    return queues


def renew(client: Any, every: bool = False) -> None:
    """Give up the connections that have failed, or every one; the next call makes new ones. The client is to be
    introduced over them: to a server that answers, since what is written to another one is never given up.

    gRPC waits up to two minutes before it tries a server again, and never gives up a connection that died silently.
    """
    connections = client.rpc_client
    for endpoints, channel in connections.channels.items():
        if every or channel.channel_state(False) is ChannelConnectivity.TRANSIENT_FAILURE:
            connections.channels.remove(endpoints)
            channel.close_channel(connections.get_channel_io_loop())


def introduce(client: Any) -> None:
    """Tell the servers, from the client's own thread, what they must know of the client.

    From another thread it works by chance only: gRPC asks for the event loop of whoever calls, and where there is none,
    as in a thread that has used asyncio.run, the client keeps the failure to itself.
    """
    for endpoints in client.route_manager.get_all_endpoints().values():
        client.rpc_client.get_channel_io_loop().call_soon_threadsafe(client.on_new_endpoints, endpoints)


def is_connected(client: Any) -> bool:
    """Is there a connection, and does none fail?"""
    states = [channel.channel_state(False) for channel in client.rpc_client.channels.values()]
    return bool(states) and all(state is ChannelConnectivity.READY for state in states)


def wrong_type(topic: str, wanted: int, queue: MessageQueue) -> str | None:
    """What is wrong with the topic for messages of that type."""
    if wanted in queue.accept_message_types:
        return None
    name = MessageType.Name(wanted)
    takes = queue.accept_message_types_desc() or "none"
    return f"the topic {topic} takes messages of type {takes}, not {name}: make it with +message.type={name}"


def try_topic(server: RocketMqServer, topic: str, message_type: int, timeout_s: float) -> str:
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
