"""What Kafka's errors mean, and a producer that is of no use any more. The broker is the one in the client library."""

import time

import pytest
from confluent_kafka import KafkaError, Message

from outboxd.config.schema import Kafka
from outboxd.event import (
    CONNECT,
    DELIVERED,
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
    Retry,
)  # fmt: skip
from outboxd.publishers import kafka
from outboxd.publishers.kafka_client import outcome_of, outcome_of_refusal, trouble_of
from tests.services.publishing import collect, make_event
from tests.services.wait import let_pass

AWAY = Retry(CONNECT, "refused", counted=False)


@pytest.mark.parametrize(
    ("code", "trouble", "reason", "counted"),
    [
        (KafkaError._MSG_TIMED_OUT, None, TIMEOUT, True),
        (KafkaError._MSG_TIMED_OUT, AWAY, CONNECT, False),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, None, MISCONFIGURED, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, None, MISCONFIGURED, False),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, None, MISCONFIGURED, False),
        (KafkaError.MSG_SIZE_TOO_LARGE, None, REJECTED, True),
        (KafkaError.INVALID_RECORD, None, REJECTED, True),
        (KafkaError.THROTTLING_QUOTA_EXCEEDED, None, THROTTLED, False),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, None, UNAVAILABLE, False),
        (KafkaError._PURGE_INFLIGHT, None, UNAVAILABLE, False),
        (KafkaError.UNKNOWN, None, SERVER_ERROR, True),
    ],
)
def test_a_report_is_blamed_on_whom_it_is_about(code: int, trouble: Retry | None, reason: str, counted: bool) -> None:
    """G6: the brokers' failures use up none of the event's attempts."""
    outcome = outcome_of(KafkaError(code, "why"), trouble)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (reason, counted)


def test_only_the_clients_own_limit_makes_a_dead_letter() -> None:
    """The broker's refusal of a batch does not say which of its messages is too large."""
    outcome = outcome_of_refusal(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    assert isinstance(outcome, Dead)
    assert outcome.reason == INVALID


@pytest.mark.parametrize(
    ("code", "text", "reason"),
    [
        (KafkaError._TRANSPORT, "Connect to ipv4#1.2.3.4:9092 failed: Connection refused", CONNECT),
        (KafkaError._TRANSPORT, "SSL handshake failed: certificate verify failed", TLS),
        (KafkaError._TRANSPORT, "Disconnected: SSL connection closed by peer (after 0ms in state SSL_HANDSHAKE)", TLS),
        (KafkaError._SSL, "handshake", TLS),
        (KafkaError._RESOLVE, "Failed to resolve", DNS),
        (KafkaError._AUTHENTICATION, "SASL authentication error", MISCONFIGURED),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down", CONNECT),
        (KafkaError._BAD_MSG, "something else", None),
    ],
)
def test_the_brokers_trouble_has_a_reason(code: int, text: str, reason: str | None) -> None:
    """It becomes a metric's label."""
    trouble = trouble_of(KafkaError(code, text))
    assert (trouble and trouble.reason) == reason
    assert trouble is None or not trouble.counted


@pytest.mark.parametrize("is_told", [True, False], ids=["by the client", "by its deadline"])
def test_time_that_was_lost_to_an_outage_counts_against_no_event(is_told: bool) -> None:
    """G6: the brokers are back and one event is acknowledged; the next has waited so long that its time runs out."""
    publisher = kafka.KafkaPublisher(Kafka(name="mq", bootstrap_servers="127.0.0.1:9", topic="t"), "room_outbox", 9.0)
    publisher._hear(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
    now_s = time.monotonic()
    assert all(publisher.submit(make_event(), now_s + after_s) for after_s in (9.0, 0.3))
    first, second = publisher._mailbox._calls
    publisher._told(first, None, Message())
    if is_told:
        publisher._told(second, KafkaError(KafkaError._MSG_TIMED_OUT), Message())
    outcomes = dict(collect(publisher, 2, 2))
    assert outcomes[first.event] is DELIVERED
    late = outcomes[second.event]
    assert isinstance(late, Retry)
    assert (late.reason, late.counted) == (CONNECT, False)
    publisher.close(time.monotonic() + 1)


def test_a_producer_that_failed_for_good_gives_its_worker_up() -> None:
    """Its sequence numbers are of no use any more; the broker would refuse all that it sends."""
    settings = Kafka(name="mq", bootstrap_servers="127.0.0.1:9", topic="t")
    assert not kafka.KafkaPublisher(settings, "room_outbox", 1.0).worn_out
    publisher = kafka.KafkaPublisher(settings, "room_outbox", 1.0)
    publisher._hear(KafkaError(KafkaError._FATAL, "sequence", fatal=True))
    assert publisher.worn_out
    publisher.close(time.monotonic() + 1)


def test_a_client_that_reports_nothing_gives_its_worker_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """G4: the event is back by its deadline, and what the client holds is held for ever."""
    monkeypatch.setattr(kafka, "WEDGED_S", -0.5)
    settings = Kafka(name="mq", bootstrap_servers="127.0.0.1:9", topic="t")
    publisher = kafka.KafkaPublisher(settings, "room_outbox", 1.0)
    monkeypatch.setattr(publisher, "_told", lambda *_: None)
    assert publisher.submit(make_event(), time.monotonic() + 0.2)
    ((_, outcome),) = collect(publisher, 1, 2)
    assert isinstance(outcome, Retry)
    assert outcome.reason == CONNECT
    let_pass(0.4)
    assert publisher.worn_out
    publisher.close(time.monotonic() + 1)


def test_a_producers_closing_is_no_second_thing() -> None:
    """A drain that is told to end closes what is closed already."""
    settings = Kafka(name="mq", bootstrap_servers="a:1", topic="t", options={"test.mock.num.brokers": "1"})
    publisher = kafka.KafkaPublisher(settings, "room_outbox", 1.0)
    assert publisher.submit(make_event(), time.monotonic() + 1)
    for _ in range(2):
        publisher.close(time.monotonic() + 1)
    assert not publisher.submit(make_event(), time.monotonic() + 1)
    assert publisher.collect() == []
