"""Produces events to a Kafka topic: idempotent, acknowledged by all replicas in sync, key = room_id.

Imported only in the process that publishes: it loads confluent_kafka. The client's callbacks come out of `poll`, which
`collect` calls: with a thread for it the two fight for the interpreter, and an event costs more than twice as much.
"""

import functools
import time

from confluent_kafka import KafkaError, KafkaException, Message

from outboxd.config.schema import Kafka
from outboxd.event import CONNECT, DELIVERED, INVALID, Dead, Event, Outcome, Retry
from outboxd.message import InvalidEvent, encode
from outboxd.publishers.api import Waits
from outboxd.publishers.cloudevents import timestamp
from outboxd.publishers.kafka_client import (
    CAPACITY,
    ERROR_CHARACTERS,
    open_producer,
    outcome_of,
    outcome_of_refusal,
    trouble_of,
)
from outboxd.publishers.mailbox import GIVEN_UP, Call, Mailbox
from outboxd.redact import clip, redact

SOONEST_S, LATEST_S = 0.002, 0.05
"""Between two looks for what came back: as long as nothing has come for, within these limits."""
WEDGED_S = 10.0
"""A client that holds messages so long after their time without a word never tells of them."""
CACHED = 1000
"""Kinds of events whose constant headers are remembered."""

Headers = list[tuple[str, str | bytes | None]]


class KafkaPublisher:
    """A Publisher; see api.py."""

    def __init__(self, settings: Kafka, lane: str, publish_timeout_s: float) -> None:
        self._topic = settings.topic
        self._source = f"/outboxd/{lane}"
        self._shared: dict[tuple[str, str], Headers] = {}
        self._mailbox = Mailbox()
        self._held = 0  # in the client's hands, also those that are given up
        self._moved_s = 0.0  # when something last came back, or went out while nothing else was out
        self._wedged_s = publish_timeout_s + WEDGED_S
        # Until the first acknowledgement nothing tells a broker that is slow from one that is none.
        self._trouble: Retry | None = Retry(
            CONNECT, f"no acknowledgement from {settings.bootstrap_servers} so far", counted=False
        )
        self._is_lost = False
        self._is_closed = False
        self._producer = open_producer(settings, publish_timeout_s, self._hear)

    @property
    def capacity(self) -> int:
        """Messages that wait, are on their way, or are given up and still held by the client."""
        return CAPACITY

    @property
    def worn_out(self) -> bool:
        """Has the producer failed for good, or does it say nothing any more? A new process makes a new one."""
        return self._is_lost or (self._held > 0 and time.monotonic() - self._moved_s > self._wedged_s)

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Hand it to the client, whose own threads send it."""
        if len(self._mailbox) >= CAPACITY or self._is_closed:
            return False
        if not self._held:
            self._moved_s = time.monotonic()
        call = self._mailbox.add(event, deadline_s)
        try:
            self._producer.produce(
                self._topic, encode(event), event.room_id or None, headers=self._headers(event),
                on_delivery=functools.partial(self._told, call),
            )  # fmt: skip
        except BufferError:
            self._mailbox.forget(call)
            return False
        except InvalidEvent as error:
            self._mailbox.drop(call, Dead(INVALID, clip(redact(str(error)), ERROR_CHARACTERS)))
        except KafkaException as error:
            self._note(error.args[0])
            self._mailbox.drop(call, outcome_of_refusal(error.args[0]))
        else:
            self._held += 1
        return True

    def collect(self) -> list[tuple[Event, Outcome]]:
        """What has come back, and what is given up."""
        if not self._is_closed:
            self._producer.poll(0)
        outcomes = self._mailbox.collect()
        if self._trouble is not None:
            # The deadline came before the client's own time-out, which would have been told in these words.
            trouble = self._trouble
            outcomes = [(event, trouble if outcome is GIVEN_UP else outcome) for event, outcome in outcomes]
        return outcomes

    def wait_on(self) -> Waits:
        """The client has no descriptor to wait for: its threads are asked again and again while they hold something."""
        waits = self._mailbox.wait_on()
        if not self._held:
            return waits
        now_s = time.monotonic()
        again_s = now_s + min(max(now_s - self._moved_s, SOONEST_S), LATEST_S)
        return waits._replace(until_s=again_s if waits.until_s is None else min(again_s, waits.until_s))

    def close(self, deadline_s: float) -> None:
        """Drop what is not sent; nobody is told of it any more."""
        if self._is_closed:
            return
        self._is_closed = True
        self._mailbox.close()
        self._producer.purge(blocking=False)
        self._producer.close()

    def _headers(self, event: Event) -> Headers:
        """CloudEvents' Kafka binding."""
        kind = (event.event_type, event.app_code)
        shared = self._shared.get(kind)
        if shared is None:
            if len(self._shared) >= CACHED:
                self._shared.clear()
            shared = [("content-type", "application/json"), ("ce_specversion", "1.0"), ("ce_source", self._source)]
            shared += [("ce_type", event.event_type)] if event.event_type else []
            shared += [("ce_appcode", event.app_code)] if event.app_code else []
            self._shared[kind] = shared
        headers = [*shared, ("ce_id", event.event_id)]
        if event.room_id:
            headers += (("ce_subject", event.room_id), ("ce_partitionkey", event.room_id))
        at = timestamp(event.created_at_ms)
        if at is not None:
            headers.append(("ce_time", at))
        return headers

    def _told(self, call: Call, error: KafkaError | None, message: Message) -> None:
        """The client's report, out of `poll`."""
        self._held -= 1
        self._moved_s = time.monotonic()
        if error is None:
            if self._trouble is not None:
                # What waited for the brokers has lost its time to them, even if it runs out now that they are back.
                self._mailbox.excuse(self._trouble)
                self._trouble = None
            self._mailbox.drop(call, DELIVERED)
        else:
            self._note(error)
            excuse = None if call.late is GIVEN_UP else call.late
            self._mailbox.drop(call, outcome_of(error, self._trouble or excuse))

    def _hear(self, error: KafkaError) -> None:
        """What is wrong with the brokers, out of `poll`."""
        self._note(error)
        # That all are down says less than why, which was told just before.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._trouble is None:
            self._trouble = trouble_of(error) or self._trouble

    def _note(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._is_lost = True
