"""A place in a consumer group of RocketMQ, used by one thread; every call has an end.

The client's own SimpleConsumer asks one queue at a time, waits for it as long as the server likes (5 s at least), and
after the server's restart is unknown to it for minutes. Here one question for each broker is always open, and whoever
wants messages waits for the answers as long as they want.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from outboxd.clients.rocketmq import configuration, text_of
from outboxd.clients.rocketmq_library import (
    AckMessageRequest,
    ChangeInvisibleDurationRequest,
    Code,
    FilterExpression,
    ForwardMessageToDeadLetterQueueRequest,
    Message,
    MessageQueue,
    MessagingResultChecker,
    ReceiveMessageRequest,
    SimpleConsumer,
)
from outboxd.clients.rocketmq_server import find_route, introduce, renew
from outboxd.config.schema import RocketMqServer
from outboxd.errors import SubscriptionError

POLL_S = 5
"""How long the server keeps a question open; it takes 5 s to 20 s. What comes again it gives to new questions only."""
MOST_AT_ONCE = 32


class _Consumer(SimpleConsumer):  # type: ignore[misc]  # it has no annotations
    """The client, with what the server tells it kept where we can read it."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.queues: list[MessageQueue] = []
        self.is_known = threading.Event()
        super().__init__(*arguments, **settings)

    def update_queue_selector(self, topic: str, topic_route: Any) -> None:
        self.queues = [
            queue for queue in topic_route.message_queues if queue.is_readable() and queue.is_master_broker()
        ]

    def reset_setting(self, settings: Any) -> None:
        super().reset_setting(settings)
        self.is_known.set()


class Group:
    """Messages of one topic for one group. What is received and not acknowledged comes again after invisible_s, which
    the server refuses below 10 s unless it is told otherwise.

    All calls raise SubscriptionError when the server cannot be asked.
    """

    def __init__(self, server: RocketMqServer, topic: str, group: str, invisible_s: float) -> None:
        self.invisible_s = invisible_s
        self._topic = topic
        self._group = group
        self._namespace = server.namespace or ""
        self._timeout_s = server.send_timeout_s
        subscription = {topic: FilterExpression()}
        self._consumer = _Consumer(
            configuration(server), group, subscription, await_duration=POLL_S, tls_enable=server.tls
        )
        self._polls: dict[str, Future[list[Message]]] = {}  # by the broker's name
        self._received: deque[tuple[Message, float]] = deque()

    def receive(self, limit: int, wait_s: float) -> list[Message]:
        """At most `limit`; waits up to about wait_s for the first."""
        until_s = time.monotonic() + wait_s
        while not (messages := self._take(limit)):
            self._start()
            self._ask(limit)
            wait(self._polls.values(), max(0.0, until_s - time.monotonic()), FIRST_COMPLETED)
            self._gather()
            if not self._received and time.monotonic() >= until_s:
                return []
        return messages

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """They do not come again, unless their time is over: then they come again already."""
        by_endpoints: dict[Any, AckMessageRequest] = {}
        for message in messages:
            request = by_endpoints.setdefault(message.endpoints, self._addressed(AckMessageRequest()))
            request.entries.add(message_id=message.message_id, receipt_handle=message.receipt_handle)
        for endpoints, request in by_endpoints.items():
            answer = self._call(self._consumer.rpc_client.ack_message_async, endpoints, request)
            for entry in answer.entries:
                if entry.status.code != Code.INVALID_RECEIPT_HANDLE:
                    self._check(entry.status)

    def hide(self, message: Message, for_s: float) -> None:
        """It comes again after that time, or not, if it is acknowledged by then. Its handle changes."""
        request = self._addressed(ChangeInvisibleDurationRequest())
        request.message_id = message.message_id
        request.receipt_handle = message.receipt_handle
        request.invisible_duration.FromMilliseconds(max(1, math.ceil(for_s * 1000)))
        answer = self._call(self._consumer.rpc_client.change_invisible_duration_async, message.endpoints, request)
        message.receipt_handle = answer.receipt_handle

    def bury(self, message: Message) -> None:
        """It goes to %DLQ%group, and does not come again."""
        request = self._addressed(ForwardMessageToDeadLetterQueueRequest())
        request.message_id = message.message_id
        request.receipt_handle = message.receipt_handle
        request.delivery_attempt = request.max_delivery_attempts = message.delivery_attempt or 1
        self._call(self._consumer.rpc_client.forward_message_to_dead_letter_queue_async, message.endpoints, request)

    def close(self, timeout_s: float = 5.0) -> None:
        """Leave the group. Never raises."""
        closer = threading.Thread(target=self._shut_down, name=f"rocketmq-{self._group}-close", daemon=True)
        closer.start()
        closer.join(timeout_s)

    def _shut_down(self) -> None:
        for poll in self._polls.values():
            poll.cancel()
        try:
            self._consumer.shutdown()
        except Exception:  # noqa: BLE001  it says goodbye to a server that may be gone
            pass
        self._consumer.rpc_client.stop()

    def _start(self) -> None:
        """Before the server has heard who we are, it gives us nothing."""
        consumer = self._consumer
        if consumer.is_running and consumer.queues and consumer.is_known.is_set():
            return
        try:
            find_route(consumer, self._topic, self._timeout_s)
            if consumer.is_running:
                introduce(consumer)
            else:
                consumer.startup()
            consumer.route_manager.retrieve_topic_route_data(self._topic)
            if not consumer.is_known.wait(self._timeout_s):
                raise ConnectionError("the server did not say its settings in time")
        except Exception as error:
            raise self._failed(error) from error

    def _ask(self, limit: int) -> None:
        """One open question for each broker: it answers for all its queues."""
        loop = self._consumer.rpc_client.get_channel_io_loop()
        for queue in self._consumer.queues:
            place = queue.message_queue0()
            if place.broker.name in self._polls:
                continue
            request = ReceiveMessageRequest(batch_size=min(limit, MOST_AT_ONCE), message_queue=place)
            request.group.name = self._group
            request.group.resource_namespace = self._namespace
            request.filter_expression.type = FilterExpression().filter_type
            request.filter_expression.expression = FilterExpression().expression
            request.invisible_duration.FromMilliseconds(int(self.invisible_s * 1000))
            request.long_polling_timeout.FromSeconds(POLL_S)
            poll = asyncio.run_coroutine_threadsafe(self._poll(queue.endpoints, request), loop)
            self._polls[place.broker.name] = poll

    async def _poll(self, endpoints: Any, request: ReceiveMessageRequest) -> list[Message]:
        """In the client's thread."""
        messages = []
        call = await self._consumer.rpc_client.receive_message(
            endpoints, request, metadata=self._consumer.sign(), timeout=POLL_S + self._timeout_s
        )
        async for answer in call:
            if answer.HasField("status"):
                if answer.status.code != Code.MESSAGE_NOT_FOUND:
                    MessagingResultChecker.check(answer.status)
            elif answer.HasField("message"):
                message = Message().fromProtobuf(answer.message)
                message.endpoints = endpoints
                messages.append(message)
        return messages

    def _gather(self) -> None:
        """What has been answered; the first failure is raised once all else is kept."""
        failures = []
        for broker, poll in list(self._polls.items()):
            if poll.done():
                del self._polls[broker]
                try:
                    self._received.extend((message, time.monotonic()) for message in poll.result())
                except Exception as error:  # noqa: BLE001  raised below
                    failures.append(error)
        if failures and not self._received:
            raise self._failed(failures[0])

    def _take(self, limit: int) -> list[Message]:
        """What has been received, but not what has waited here so long that it soon comes again."""
        messages: list[Message] = []
        while self._received and len(messages) < limit:
            message, at_s = self._received.popleft()
            if time.monotonic() - at_s < self.invisible_s / 2:
                messages.append(message)
        return messages

    def _addressed(self, request: Any) -> Any:
        request.group.name = self._group
        request.group.resource_namespace = self._namespace
        request.topic.name = self._topic
        request.topic.resource_namespace = self._namespace
        return request

    def _call(self, method: Callable[..., "Future[Any]"], endpoints: Any, request: Any) -> Any:
        try:
            answer = method(endpoints, request, metadata=self._consumer.sign(), timeout=self._timeout_s)
            result = answer.result(self._timeout_s + 1)
        except Exception as error:
            raise self._failed(error) from error
        self._check(result.status)
        return result

    def _check(self, status: Any) -> None:
        try:
            MessagingResultChecker.check(status)
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: BaseException) -> SubscriptionError:
        """Whatever it was, the server may have forgotten us, or the connection may be gone."""
        if self._consumer.is_running:
            self._consumer.is_known.clear()
            renew(self._consumer)
        return SubscriptionError(f"RocketMQ, topic {self._topic}, group {self._group}: {text_of(error)}")
