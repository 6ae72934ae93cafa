"""What the RocketMQ client's failures are taken for."""

from typing import Any

import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata
from rocketmq.grpc_protocol import Code, Status
from rocketmq.v5.exception import ClientException
from rocketmq.v5.util import MessagingResultChecker

from outboxd.clients.rocketmq import outcome_of
from outboxd.event import (
    CONNECT,
    DNS,
    INVALID,
    MISCONFIGURED,
    REJECTED,
    RESET,
    SERVER_ERROR,
    THROTTLED,
    TIMEOUT,
    TLS,
    UNAVAILABLE,
    Dead,
    Retry,
)

ALL_REFUSED = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: "


def told(error: BaseException, is_connected: bool = True) -> tuple[str, bool | None]:
    """Reason, and whether the event is blamed; None: dead."""
    outcome = outcome_of(error, is_connected)
    assert isinstance(outcome, Retry | Dead)
    return outcome.reason, outcome.counted if isinstance(outcome, Retry) else None


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        (
            StatusCode.UNAVAILABLE,
            f"{ALL_REFUSED}Failed to connect to remote host: Connection refused",
            (CONNECT, False),
        ),
        (StatusCode.UNAVAILABLE, f"{ALL_REFUSED}recvmsg:Connection reset by peer", (CONNECT, False)),
        (StatusCode.UNAVAILABLE, f"{ALL_REFUSED}Tls handshake failed: CERTIFICATE_VERIFY_FAILED", (TLS, False)),
        (StatusCode.UNAVAILABLE, "errors resolving nohost.invalid:1: Domain name not found", (DNS, False)),
        (StatusCode.UNAVAILABLE, "Stream removed (recvmsg:Connection reset by peer)", (RESET, True)),
        (StatusCode.UNAVAILABLE, "Socket closed", (RESET, True)),
        (StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", (TIMEOUT, True)),
        (StatusCode.UNAUTHENTICATED, "who are you", (MISCONFIGURED, False)),
        (StatusCode.UNIMPLEMENTED, "not a RocketMQ", (MISCONFIGURED, False)),
        (StatusCode.RESOURCE_EXHAUSTED, "later", (THROTTLED, False)),
        (StatusCode.INTERNAL, "oops", (SERVER_ERROR, True)),
    ],
)
def test_a_call_without_an_answer(code: StatusCode, details: str, expected: tuple[str, bool | None]) -> None:
    """G6: what never left is not blamed on the event; what broke under it is."""
    assert told(AioRpcError(code, Metadata(), Metadata(), details)) == expected


def test_a_deadline_without_a_connection_is_the_servers() -> None:
    """G6: the request waited for a connection, and never left."""
    error = AioRpcError(StatusCode.DEADLINE_EXCEEDED, Metadata(), Metadata(), "Deadline Exceeded")
    assert told(error, is_connected=False) == (CONNECT, False)
    assert told(Exception("failed to fetch topic:t route."), is_connected=False) == (CONNECT, False)


def refusal(code: Any, message: str) -> ClientException:
    """What the client raises for a status of the proxy."""
    with pytest.raises(ClientException) as raised:
        MessagingResultChecker.check(Status(code=code, message=message))
    error: ClientException = raised.value
    return error


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (Code.UNAUTHORIZED, "", (MISCONFIGURED, False)),
        (Code.FORBIDDEN, "", (MISCONFIGURED, False)),
        (Code.TOPIC_NOT_FOUND, "", (MISCONFIGURED, False)),
        (Code.ILLEGAL_TOPIC, "", (MISCONFIGURED, False)),
        (Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "", (MISCONFIGURED, False)),
        (Code.UNSUPPORTED, "", (MISCONFIGURED, False)),
        (Code.TOO_MANY_REQUESTS, "", (THROTTLED, False)),
        (Code.INTERNAL_SERVER_ERROR, "CODE: 2  DESC: [TIMEOUT_CLEAN_QUEUE]broker busy", (THROTTLED, False)),
        (Code.INTERNAL_SERVER_ERROR, "system busy, start flow control for a while", (THROTTLED, False)),
        (Code.INTERNAL_SERVER_ERROR, "connect to 10.0.0.7:10911 failed", (UNAVAILABLE, False)),
        (Code.HA_NOT_AVAILABLE, "", (UNAVAILABLE, False)),
        (Code.INTERNAL_SERVER_ERROR, "NullPointerException", (SERVER_ERROR, True)),
        (Code.MASTER_PERSISTENCE_TIMEOUT, "", (TIMEOUT, True)),
        (Code.ILLEGAL_MESSAGE_TAG, "", (REJECTED, None)),
        (Code.ILLEGAL_DELIVERY_TIME, "", (REJECTED, None)),
        (Code.MESSAGE_BODY_TOO_LARGE, "", (INVALID, None)),
        (Code.MESSAGE_PROPERTIES_TOO_LARGE, "", (INVALID, None)),
    ],
)
def test_a_refusal_of_the_server(code: Any, message: str, expected: tuple[str, bool | None]) -> None:
    """G6: refusals of the caller are held, a busy or absent broker is an outage, dead is what can never be accepted."""
    assert told(refusal(code, message)) == expected
