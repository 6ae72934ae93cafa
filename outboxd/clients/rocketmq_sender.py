"""Sends messages to one RocketMQ topic. Two things are not left to the client's own `send_async`:

It asks for the topic's route where it is called, and waits for it: here a thread of our own connects, and a message
meanwhile waits. It repeats a failed send at once, up to the server's number of attempts and past any deadline, also a
refused one: here up to the configured number, before the message's deadline, with the same message id. And it costs a
wake-up of its thread, two futures and a signature for every message: here the client's thread is woken for many.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from outboxd.clients.rocketmq import configuration, outcome_of
from outboxd.clients.rocketmq_library import (
    MessagingResultChecker,
    Producer,
    QueueSelector,
    SendMessageRequest,
)
from outboxd.clients.rocketmq_server import find_route, introduce, is_connected, renew, wrong_type
from outboxd.config.schema import RocketMqServer
from outboxd.event import DELIVERED, MISCONFIGURED, THROTTLED, TIMEOUT, Dead, Outcome, Retry, blameless

MAX_BODY_BYTES = 4 << 20
"""Until the server says what it takes."""
CONNECT_PAUSE_S = 1.0
STALE_S = 10.0
"""With no answer to anything for so long while sends time out, the connection is given up for a new one."""
WEDGED_S = 30.0
"""A client that is so long overdue is not waited for."""

Told = Callable[[Outcome], None]


class _Send:
    """One message on its way."""

    __slots__ = ("_told", "attempt", "deadline_s", "doubt", "request")

    def __init__(self, request: SendMessageRequest, deadline_s: float, told: Told) -> None:
        self.request = request
        self.deadline_s = deadline_s
        self._told = told
        self.attempt = 0
        self.doubt: Retry | None = None

    def tell(self, outcome: Outcome) -> None:
        """It has ended. What was blamed on it once, a repeat that never left does not put right: it may be what brings
        the server down.
        """
        is_not_blamed = isinstance(outcome, Retry) and not outcome.counted
        self._told(self.doubt if is_not_blamed and self.doubt is not None else outcome)


class _Producer(Producer):  # type: ignore[misc]  # it has no annotations
    """The client, with what the server tells it kept where we can read it."""

    selector: QueueSelector | None = None
    max_body_bytes = MAX_BODY_BYTES

    def update_queue_selector(self, topic: str, topic_route: Any) -> None:
        self.selector = QueueSelector.producer_queue_selector(topic_route)

    def reset_setting(self, settings: Any) -> None:
        super().reset_setting(settings)
        self.max_body_bytes = settings.publishing.max_body_size or MAX_BODY_BYTES


class Sender:
    """To one topic. `told` is called once, from any thread, unless the deadline has passed: then maybe never."""

    def __init__(self, server: RocketMqServer, topic: str, message_type: int) -> None:
        self._server = server
        self._topic = topic
        self._type = message_type
        self._producer = _Producer(configuration(server), topics=[topic], tls_enable=server.tls)
        self._lock = threading.Lock()
        self._waiting: deque[_Send] = deque()  # until there is a route
        self._sending: dict[_Send, asyncio.Task[None]] = {}
        self._loop = self._producer.rpc_client.get_channel_io_loop()
        self._signed_at = 0
        self._metadata: Any = None
        self._is_ready = False
        self._is_scheduled = False
        self._is_unknown = False
        self._closing = threading.Event()
        self._connecting_since_s: float | None = None
        self._answered_s = self._renewed_s = time.monotonic()
        self._thread = threading.Thread(target=self._connect, name=f"rocketmq-{topic}", daemon=True)
        self._thread.start()

    @property
    def max_body_bytes(self) -> int:
        """The largest message that the server takes."""
        return int(self._producer.max_body_bytes)

    @property
    def is_connected(self) -> bool:
        """Is there a route to the topic, and a connection to all who serve it?"""
        return self._is_ready and is_connected(self._producer)

    @property
    def worn_out(self) -> bool:
        """Has the client not come back from something that it should long have ended?"""
        now_s = time.monotonic()
        with self._lock:
            # What waits for a route that is not there waits for the server, not for the client.
            in_hand = self._sending or (self._waiting if self._is_ready else ())
            oldest = next(iter(in_hand), None)
        since_s = self._connecting_since_s
        is_overdue = oldest is not None and oldest.deadline_s + WEDGED_S < now_s
        return is_overdue or (since_s is not None and since_s + self._server.send_timeout_s * 4 + WEDGED_S < now_s)

    def send(self, request: SendMessageRequest, deadline_s: float, told: Told) -> None:
        """Send it now, or as soon as there is a route."""
        send = _Send(request, deadline_s, told)
        with self._lock:
            if not self._is_ready:
                while self._waiting and self._waiting[0].deadline_s <= time.monotonic():
                    self._waiting.popleft()
            self._waiting.append(send)
            self._schedule()

    def close(self, deadline_s: float) -> None:
        """End the client by then; one that hangs dies with the process."""
        self._closing.set()
        with self._lock:
            self._waiting.clear()
        closer = threading.Thread(target=self._shut_down, name=f"rocketmq-{self._topic}-close", daemon=True)
        closer.start()
        closer.join(max(0.0, deadline_s - time.monotonic()))

    def _shut_down(self) -> None:
        if not self._is_ready:
            self._producer.rpc_client.stop()  # ends what the thread that connects waits for
        self._thread.join()
        try:
            self._producer.shutdown()
        except Exception:  # noqa: BLE001  it says goodbye to a server that may be gone
            pass
        self._producer.rpc_client.stop()

    # In the thread that connects.

    def _connect(self) -> None:
        while not self._closing.is_set():
            self._connecting_since_s = time.monotonic()
            try:
                self._find_topic()
            except Exception as error:  # noqa: BLE001  whatever it is, it is told, and tried again
                outcome = outcome_of(error, is_connected=False)
                is_held = isinstance(outcome, Retry)
                self._tell_waiting(outcome if is_held else blameless(MISCONFIGURED, outcome.error))
                self._connecting_since_s = None
                self._renew()
                self._closing.wait(CONNECT_PAUSE_S)
                continue
            self._connecting_since_s = None
            with self._lock:
                self._is_ready = True
                self._schedule()
            return

    def _find_topic(self) -> None:
        find_route(self._producer, self._topic, self._server.send_timeout_s)
        if not self._producer.is_running:
            self._producer.startup()
        self._producer.route_manager.retrieve_topic_route_data(self._topic)

    def _tell_waiting(self, outcome: Outcome) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        for send in waiting:
            send.tell(outcome)

    def _schedule(self) -> None:
        """With the lock held: have the client's thread send what waits, woken once for all that comes meanwhile."""
        if self._is_ready and self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon_threadsafe(self._send_waiting)

    # In the client's thread, which must not wait.

    def _send_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
            self._is_scheduled = False
            for send in waiting:
                self._sending[send] = self._loop.create_task(self._deliver(send))

    async def _deliver(self, send: _Send) -> None:
        """Until its end or its deadline, whichever comes first."""
        while (left_s := send.deadline_s - time.monotonic()) > 0 and not self._closing.is_set():
            outcome = await self._attempt(send, min(self._server.send_timeout_s, left_s))
            if not isinstance(outcome, Retry) or not self._is_worth_repeating(send, outcome):
                send.tell(outcome)
                break
            send.doubt = send.doubt or (outcome if outcome.counted else None)
        with self._lock:
            self._sending.pop(send, None)

    async def _attempt(self, send: _Send, timeout_s: float) -> Outcome:
        producer = self._producer
        send.attempt += 1
        try:
            if producer.selector is None:
                raise ConnectionError("the topic's route is not known")
            queue = producer.selector.select_next_queue()
            if (wrong := wrong_type(self._topic, self._type, queue)) is not None:
                return blameless(MISCONFIGURED, wrong)
            stub = producer.rpc_client.retrieve_or_create_channel(queue.endpoints).async_stub
            _check(await stub.SendMessage(send.request, metadata=self._signed(), timeout=timeout_s))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  every failure has an outcome
            outcome = outcome_of(error, self.is_connected)
            self._look_after_connection(outcome)
            return outcome
        self._answered_s = time.monotonic()
        if self._is_unknown:
            self._is_unknown = False
            introduce(producer)
        return DELIVERED

    def _signed(self) -> Any:
        """What goes with each request: it says the second at which it was signed, so it is made once a second."""
        second = int(time.time())
        if second != self._signed_at:
            self._signed_at, self._metadata = second, self._producer.sign()
        return self._metadata

    def _is_worth_repeating(self, send: _Send, outcome: Retry) -> bool:
        if outcome.reason in (MISCONFIGURED, THROTTLED) or self._closing.is_set():
            return False
        return send.attempt <= self._server.retry and send.deadline_s > time.monotonic()

    def _look_after_connection(self, outcome: Retry | Dead) -> None:
        """We try for a new one whenever somebody wants to send."""
        now_s = time.monotonic()
        if isinstance(outcome, Dead) or outcome.reason == MISCONFIGURED:
            self._answered_s = now_s
        elif outcome.reason == TIMEOUT and now_s - self._answered_s > STALE_S:
            self._answered_s = now_s
            self._renew(is_stale=True)
        elif not outcome.counted:
            self._renew()

    def _renew(self, is_stale: bool = False) -> None:
        now_s = time.monotonic()
        if not is_stale and now_s - self._renewed_s < CONNECT_PAUSE_S:
            return
        self._renewed_s = now_s
        self._is_unknown = self._is_ready
        renew(self._producer, is_stale)


def _check(answer: Any) -> None:
    """Raise what the server says against the message."""
    MessagingResultChecker.check(answer.status)
    for entry in answer.entries:
        if entry.HasField("status"):
            MessagingResultChecker.check(entry.status)
