"""How the Kafka producer is made, how it is tried, and what its errors mean. Loads confluent_kafka."""

import re
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Producer

from outboxd.config.schema import Kafka
from outboxd.errors import PublisherError
from outboxd.event import (
    CONNECT,
    DNS,
    INVALID,
    MISCONFIGURED,
    REJECTED,
    SERVER_ERROR,
    THROTTLED,
    TIMEOUT,
    TLS,
    UNAVAILABLE,
    Dead,
    Outcome,
    Retry,
    blameless,
)
from outboxd.redact import clip, redact

CAPACITY = 2000
ERROR_CHARACTERS = 300
SCAN_S = 1.2
"""librdkafka looks once a second which messages are over their time."""
LOGS_NOTHING = 0
"""It would write on standard error, among the lines of the log; what matters comes through `error_cb`."""

# "SSL handshake failed: ...", or, with a peer that just hangs up, "Disconnected (after 0ms in state SSL_HANDSHAKE)".
_HANDSHAKE = re.compile(r"SSL[ _]handshake", re.IGNORECASE)
_REFUSED = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION, KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_SASL_MECHANISM, KafkaError.ILLEGAL_SASL_STATE, KafkaError.UNSUPPORTED_VERSION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT, KafkaError._UNSUPPORTED_FEATURE, KafkaError.SECURITY_DISABLED,
    }
)  # fmt: skip
# The broker refuses a batch, and does not say which of its messages it means: each is tried again, and counted.
_REFUSED_BATCH = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD})
_UNAVAILABLE = frozenset(
    {
        KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL, KafkaError._FENCED,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID, KafkaError.KAFKA_STORAGE_ERROR,
    }
)  # fmt: skip


def open_producer(settings: Kafka, publish_timeout_s: float, told: Callable[[KafkaError], None]) -> Producer:
    """A producer; nothing is sent yet. told: is called by `poll` with what is wrong with the brokers.

    Raises PublisherError for options that librdkafka refuses.
    """
    timeout_ms = int(max(publish_timeout_s - SCAN_S, publish_timeout_s * 0.6) * 1000)
    options = {
        # As Kafka's own clients choose the partition of a key.
        "partitioner": "murmur2_random",
        "log_level": LOGS_NOTHING,
        # A broker that is back is found within a second; a topic that is missing is told as such after one, too.
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 1000,
        "topic.metadata.propagation.max.ms": 1000,
        # A broker that has gone silent, or a connection that a firewall forgot, is given up.
        "socket.timeout.ms": 10_000,
        "request.timeout.ms": 10_000,
        "socket.keepalive.enable": True,
        **settings.options,
        "bootstrap.servers": settings.bootstrap_servers,
        "enable.idempotence": True,
        "acks": "all",
        # Before the event's own deadline: then the client holds nothing any more of an event that is given up.
        "delivery.timeout.ms": timeout_ms,
        # What is given up and still in its hands counts: it must not grow while a broker hangs.
        "queue.buffering.max.messages": CAPACITY,
        "error_cb": told,
    }
    try:
        return Producer(options)
    except (KafkaException, ValueError, TypeError) as error:
        raise PublisherError(f"publishers.{settings.name}.options: {redact(str(error))}") from error


def outcome_of(error: KafkaError, trouble: Outcome | None) -> Outcome:
    """What became of a message that was not delivered. trouble: what a time-out means that is the brokers' fault."""
    code, text = error.code(), text_of(error)
    if code == KafkaError._MSG_TIMED_OUT:
        return trouble or Retry(TIMEOUT, text)
    if code in _REFUSED:
        return blameless(MISCONFIGURED, text)
    if code in _REFUSED_BATCH:
        return Retry(REJECTED, text)
    if code == KafkaError.THROTTLING_QUOTA_EXCEEDED:
        return blameless(THROTTLED, text)
    if code in _UNAVAILABLE or error.retriable() or error.fatal():
        return blameless(UNAVAILABLE, text)
    return Retry(SERVER_ERROR, text)


def outcome_of_refusal(error: KafkaError) -> Outcome:
    """What it means that the client itself did not take a message."""
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return Dead(INVALID, f"larger than message.max.bytes: {text_of(error)}")
    return outcome_of(error, None)


def trouble_of(error: KafkaError) -> Retry | None:
    """What an error of the brokers means for events that they do not acknowledge; None: nothing."""
    code, text = error.code(), text_of(error)
    if code in _REFUSED:
        return blameless(MISCONFIGURED, text)
    if code == KafkaError._RESOLVE:
        return blameless(DNS, text)
    if code == KafkaError._SSL or (code == KafkaError._TRANSPORT and _HANDSHAKE.search(error.str())):
        return blameless(TLS, text)
    if code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT):
        return blameless(CONNECT, text)
    return None


def text_of(error: KafkaError) -> str:
    """In short, and without secrets."""
    return clip(redact(f"{error.name()}: {error.str()}"), ERROR_CHARACTERS)


def try_topic(settings: Kafka, timeout_s: float) -> str:
    """Ask for the topic; what was found, for `outboxd check`. Raises PublisherError."""
    errors: list[KafkaError] = []
    producer = open_producer(settings, timeout_s, errors.append)
    try:
        # All topics: asked for by its name, a topic that is missing would be made by many a broker.
        topics = producer.list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        producer.poll(0)
        known = [one for one in errors if one.code() != KafkaError._ALL_BROKERS_DOWN] or [error.args[0]]
        raise PublisherError(f"cannot reach {settings.bootstrap_servers}: {text_of(known[-1])}") from error
    finally:
        producer.purge()
        producer.close()
    if settings.topic not in topics:
        raise PublisherError(f"{settings.bootstrap_servers}: there is no topic {settings.topic!r}; create it")
    count = len(topics[settings.topic].partitions)
    return f"{settings.bootstrap_servers} is reachable; topic {settings.topic!r}, {count} partitions"
