"""The RocketMQ client, set up: its configuration, and what its failures mean."""

import math
import re

from outboxd.clients.rocketmq_library import AioRpcError, ClientConfiguration, Code, Credentials, StatusCode
from outboxd.clients.rocketmq_library import exception as raised
from outboxd.config.schema import RocketMqServer
from outboxd.errors import PublisherError
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
    blameless,
    rejected,
)
from outboxd.redact import clip, redact

ERROR_CHARACTERS = 300
# What the proxy passes on from a broker that cannot take messages now; it has no code of its own for these.
_BUSY = ("busy", "TIMEOUT_CLEAN_QUEUE", "flow control", "too many requests")
_AWAY = ("connect to", "SERVICE_NOT_AVAILABLE", "service not available", "No route info", "not online")
# gRPC's words: of a connection that ended under a call, and of those that did not come about, which it may follow up
# with why the one before has ended.
_BROKEN = re.compile(r"stream removed|socket closed|recvmsg|connection reset|broken pipe|rst_stream", re.IGNORECASE)
_NOT_CONNECTED = re.compile(r"failed to connect|errors resolving|resolution failed|empty address list", re.IGNORECASE)
_TLS = re.compile(r"handshake failed|SSL_ERROR|certificate", re.IGNORECASE)
_DNS = re.compile(r"errors resolving|resolution failed|lookup failed", re.IGNORECASE)
# Refusals that no message of ours would escape, as opposed to those of this one.
_MISCONFIGURED = (
    Code.ILLEGAL_TOPIC, Code.ILLEGAL_ACCESS_POINT, Code.ILLEGAL_CONSUMER_GROUP, Code.CLIENT_ID_REQUIRED,
    Code.UNRECOGNIZED_CLIENT_TYPE, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
)  # fmt: skip


def configuration(server: RocketMqServer) -> ClientConfiguration:
    """What every client is made with. Raises PublisherError for endpoints that it cannot use.

    The time-out for what the client asks on its own account is in whole seconds, rounded up: it cannot have others.
    """
    credentials = Credentials(server.access_key, server.secret_key)
    try:
        return ClientConfiguration(
            server.endpoints, credentials, server.namespace or "", math.ceil(server.send_timeout_s)
        )
    except Exception as error:  # what it cannot parse it fails on somewhere
        raise PublisherError(
            f"cannot use the RocketMQ endpoints {server.endpoints!r}: the client takes one name, or IPv4 addresses "
            "with ';' between them, each with its port"
        ) from error


def outcome_of(error: BaseException, is_connected: bool) -> Retry | Dead:
    """What a failed send means for its event. is_connected: is there a connection to the proxy?"""
    if isinstance(error, AioRpcError):
        return _outcome_of_call(error, is_connected)
    if isinstance(error, raised.ClientException):
        return _outcome_of_answer(error)
    if is_connected:
        return Retry(RESET, f"the call ended without an answer: {text_of(error)}")
    return blameless(CONNECT, text_of(error))


def text_of(error: BaseException) -> str:
    """Fit to be shown."""
    text = (error.details() if isinstance(error, AioRpcError) else str(error)) or type(error).__name__
    text = text.partition("\nFor more information")[0]  # a general address
    return clip(redact(text), ERROR_CHARACTERS)


def _outcome_of_call(error: AioRpcError, is_connected: bool) -> Retry | Dead:
    """gRPC's own failures: no answer of the proxy."""
    text = text_of(error)
    match error.code():
        case StatusCode.UNAVAILABLE if _BROKEN.search(text) and not _NOT_CONNECTED.search(text):
            return Retry(RESET, f"the connection ended before the answer did: {text}")
        case StatusCode.UNAVAILABLE:
            reason = TLS if _TLS.search(text) else DNS if _DNS.search(text) else CONNECT
            return blameless(reason, text)
        case StatusCode.DEADLINE_EXCEEDED if is_connected:
            return Retry(TIMEOUT, f"no complete answer in time: {text}")
        case StatusCode.DEADLINE_EXCEEDED:
            return blameless(CONNECT, f"not in time: {text}")
        case StatusCode.UNAUTHENTICATED | StatusCode.PERMISSION_DENIED | StatusCode.UNIMPLEMENTED:
            return blameless(MISCONFIGURED, text)
        case StatusCode.RESOURCE_EXHAUSTED:
            return blameless(THROTTLED, text)
        case StatusCode.CANCELLED:
            return Retry(RESET, f"the call ended without an answer: {text}")
    return Retry(SERVER_ERROR, text)


def _outcome_of_answer(error: raised.ClientException) -> Retry | Dead:
    """The proxy's refusals."""
    text = text_of(error)
    match error:
        case raised.UnauthorizedException() | raised.ForbiddenException() | raised.NotFoundException():
            return blameless(MISCONFIGURED, text)
        case raised.PaymentRequiredException() | raised.UnsupportedException():
            return blameless(MISCONFIGURED, text)
        case raised.TooManyRequestsException():
            return blameless(THROTTLED, text)
        case raised.BadRequestException() if error.code in _MISCONFIGURED:
            return blameless(MISCONFIGURED, text)
        case raised.BadRequestException() if error.code == Code.ILLEGAL_DELIVERY_TIME:
            return Dead(REJECTED, f"later than the broker allows (24 h unless it is told otherwise): {text}")
        case raised.BadRequestException():
            return rejected(text)
        case raised.PayloadTooLargeException() | raised.RequestHeaderFieldsTooLargeException():
            return Dead(INVALID, f"RocketMQ takes no such message: {text}")
        case raised.PayloadEmptyException():
            return Dead(INVALID, f"RocketMQ takes no such message: {text}")
        case raised.ProxyTimeoutException():
            return Retry(TIMEOUT, text)
    if any(word in text for word in _BUSY):
        return blameless(THROTTLED, text)
    if error.code == Code.HA_NOT_AVAILABLE or any(word in text for word in _AWAY):
        return blameless(UNAVAILABLE, text)
    return Retry(SERVER_ERROR, text)
