"""What `outboxd explain` tells of queues' and gRPC's failures; the texts are those that the publishers write."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata
from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as TimedOut
from rocketmq.grpc_protocol import Code, Status
from rocketmq.v5.exception import ClientException
from rocketmq.v5.util import MessagingResultChecker

import outboxd
from outboxd.clients import rocketmq
from outboxd.config.schema import (
    ActivityGrpc,
    Console,
    Kafka,
    PublisherSettings,
    RedisStreams,
    RocketLaunch,
    RocketMq,
    RocketMqServer,
)
from outboxd.envelope import NoProtobuf
from outboxd.event import INVALID, MISCONFIGURED, UNAVAILABLE, Dead, Delivered, Outcome, Retry
from outboxd.explain.verdict import CONFIGURATION, EVENT, RECEIVER, Verdict, verdict
from outboxd.publishers import grpc_answer, kafka_client, redis_pipe
from outboxd.publishers.kafka import KafkaPublisher
from outboxd.publishers.mailbox import GIVEN_UP
from outboxd.publishers.rocketmq_sending import NOT_CONNECTED

STREAMS = RedisStreams(name="mq", url="redis://h/0")
KAFKA = Kafka(name="mq", bootstrap_servers="127.0.0.1:9", topic="t")
ROCKETMQ = RocketMq(name="mq", server=RocketMqServer())
ACTIVITY = ActivityGrpc(name="mq", target="h:1")
LAUNCHES = (RocketLaunch(name="mq"), RocketLaunch(name="mq", carrier="redis", url="redis://h/0"))
ALL = (STREAMS, KAFKA, ROCKETMQ, ACTIVITY, *LAUNCHES)
KAFKA_CODES = [
    value for name, value in vars(KafkaError).items() if isinstance(value, int) and name.strip("_").isupper()
]
NO_FAILURES = ("OK", "MULTIPLE_RESULTS")
ROCKETMQ_CODES = [value for name, value in Code.items() if name not in NO_FAILURES]


def same(outcome: Outcome | None, settings: PublisherSettings) -> Verdict | None:
    """The verdict on the outcome's text, which must be what was done; also where it begins with a name."""
    if outcome is None or isinstance(outcome, Delivered):
        return None
    alone = verdict(outcome.error, {"mq": settings})
    assert verdict(f"mq: {outcome.error}", {"mq": settings, "console": Console(name="console")}) == alone
    is_dead = isinstance(outcome, Dead)
    assert alone.is_final is is_dead, outcome
    assert alone.is_invalid is (is_dead and outcome.reason == INVALID), outcome
    assert (alone.blame == EVENT) is (isinstance(outcome, Dead) or outcome.counted), (outcome, alone)
    assert (alone.blame == CONFIGURATION) is (outcome.reason == MISCONFIGURED), (outcome, alone)
    assert alone.blame == EVENT or alone.todo, outcome
    assert "{" not in alone.says + alone.todo
    return alone


@pytest.mark.parametrize(
    ("answer", "blame"),
    [
        ("WRONGPASS invalid username-password pair or user is disabled.", CONFIGURATION),
        ("NOAUTH Authentication required.", CONFIGURATION),
        ("NOPERM User u has no permissions to run the 'xadd' command", CONFIGURATION),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", CONFIGURATION),
        ("OOM command not allowed when used memory > 'maxmemory'.", RECEIVER),
        ("READONLY You can't write against a read only replica.", RECEIVER),
        ("NOREPLICAS Not enough good replicas to write.", RECEIVER),
        ("LOADING Redis is loading the dataset in memory", RECEIVER),
        ("MISCONF Redis is configured to save RDB snapshots", RECEIVER),
        ("CLUSTERDOWN The cluster is down", RECEIVER),
        ("MASTERDOWN Link with MASTER is down", RECEIVER),
        ("BUSY Redis is busy running a script.", RECEIVER),
        ("ERR something else", EVENT),
    ],
)
def test_redis_answers_are_told_as_they_are_counted(answer: str, blame: str) -> None:
    """G6: the client cuts the code off many of them, so the text alone would not tell."""
    error = BaseParser.parse_error(answer)
    for settings in (STREAMS, LAUNCHES[1]):
        told = same(redis_pipe.outcome_of(error), settings)
        assert told is not None
        assert told.blame == blame


@pytest.mark.parametrize(
    "error", [TimedOut("slow"), Disconnected("Connection closed by server."), RedisError(), OSError()]
)
def test_redis_without_an_answer_is_told_as_it_is_counted(error: Exception) -> None:
    """G6: it may be the event that brings the server down."""
    told = same(redis_pipe.outcome_of(error), STREAMS)
    assert told is not None
    assert told.blame == EVENT


def test_a_redis_that_is_not_there_is_the_receivers() -> None:
    """G6: nothing was sent."""
    (outcome,) = redis_pipe.Pipe("redis://127.0.0.1:1/0", 1.0).exchange([("PING",)], 1e12)
    told = same(outcome, STREAMS)
    assert told is not None
    assert (told.blame, "never reached mq" in told.says) == (RECEIVER, True)


def test_a_replica_that_loads_is_an_outage() -> None:
    """G6: redis-py has this answer as a connection error, which is blamed on the event."""
    outcome = redis_pipe.outcome_of(BaseParser.parse_error("LOADING Redis is loading the dataset in memory"))
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (UNAVAILABLE, False)


@pytest.mark.parametrize("code", KAFKA_CODES)
def test_every_kafka_error_is_told_as_it_is_counted(code: int) -> None:
    """G6: two places know what a text means; they may never differ."""
    error = KafkaError(code, "why")
    trouble = kafka_client.trouble_of(error)
    for outcome in (
        kafka_client.outcome_of(error, None),
        kafka_client.outcome_of(error, trouble),
        kafka_client.outcome_of_refusal(error),
        trouble,
    ):
        same(outcome, KAFKA)


def test_kafka_brokers_that_never_answered_are_the_receivers() -> None:
    """G6: what is told of an event that is given up before the first acknowledgement."""
    publisher = KafkaPublisher(KAFKA, "room_outbox", 1.0)
    told = same(publisher._trouble, KAFKA)
    publisher.close(0.0)
    assert told is not None
    assert told.blame == RECEIVER


GRPC_DETAILS = (
    "failed to connect to all addresses; last error: UNKNOWN: Connection refused",
    "failed to connect to all addresses; last error: Tls handshake failed (TSI_PROTOCOL)",
    "errors resolving a.b:1: [field:hostname lookup error:address lookup failed for a.b:1: no]",
    "Stream removed (Socket closed)",
    "recvmsg:Connection reset by peer",
    "Received message larger than max (5 vs. 4)",
    "as asked",
    "",
)


@pytest.mark.parametrize("details", GRPC_DETAILS)
@pytest.mark.parametrize("code", StatusCode)
def test_every_grpc_status_is_told_as_it_is_counted(code: StatusCode, details: str) -> None:
    """G6: of the activity service, and of RocketMQ's proxy, which is spoken to over gRPC."""
    for is_connected in (True, False):
        same(grpc_answer.outcome_of(code, details, 1.0, is_connected), ACTIVITY)
        error = AioRpcError(code, Metadata(), Metadata(), details)
        for settings in (ROCKETMQ, LAUNCHES[0]):
            same(rocketmq.outcome_of(error, is_connected), settings)


def rocketmq_errors(code: int) -> Iterator[BaseException]:
    """What the client raises for a status of the proxy, in the words of several brokers."""
    for message in ("", "[TIMEOUT_CLEAN_QUEUE]broker busy", "connect to 10.0.0.7:10911 failed", "refused: x", "x"):
        try:
            MessagingResultChecker.check(Status(code=code, message=message))
        except ClientException as error:
            yield error


@pytest.mark.parametrize("code", ROCKETMQ_CODES)
def test_every_answer_of_rocketmq_is_told_as_it_is_counted(code: Any) -> None:
    """G6: two places know what a text means; they may never differ."""
    for error in (*rocketmq_errors(code), ConnectionError("no broker"), TimeoutError()):
        for is_connected in (True, False):
            same(rocketmq.outcome_of(error, is_connected), ROCKETMQ)


@pytest.mark.parametrize("settings", ALL)
def test_what_all_of_them_tell_is_told_as_it_is_counted(settings: PublisherSettings) -> None:
    """An answer that never came; a library that is missing; an event of which no request can be made."""
    for outcome in (GIVEN_UP, NOT_CONNECTED, Retry(MISCONFIGURED, str(NoProtobuf()), counted=False)):
        assert same(outcome, settings)


def texts_of_invalid_events() -> Iterator[str]:
    """The beginning of every text with which outboxd says that an event is invalid."""
    for path in sorted(Path(outboxd.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "InvalidEvent":
                text = node.args[0]
                parts = text.values if isinstance(text, ast.JoinedStr) else [text]
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "RoomUserKicked" for part in parts)


@pytest.mark.parametrize("text", sorted(set(texts_of_invalid_events())))
def test_of_every_invalid_event_it_is_known_that_a_replay_does_not_help(text: str) -> None:
    """It dies again as long as the row is as it is."""
    told = same(Dead(INVALID, text), STREAMS)
    assert told is not None
    assert "purge" in told.todo
