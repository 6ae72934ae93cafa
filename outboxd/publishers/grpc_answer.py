"""What a gRPC status means for an event. Pure.

From gRPC's own description of the codes: INVALID_ARGUMENT is "problematic regardless of the state of the system": dead.
FAILED_PRECONDITION and OUT_OF_RANGE "may be fixed if the system state changes": tried again, counted, so that an event
whose state never comes ends as a dead letter. ALREADY_EXISTS is what a consumer answers to an event that it has done:
delivered. UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED and NOT_FOUND are about the caller and the method, not the
event. UNAVAILABLE and RESOURCE_EXHAUSTED are the server's state; but a connection that broke under a call is blamed on
the event, which may be what brings the server down.
"""

import re

from grpc import StatusCode

from outboxd.event import (
    CONNECT,
    DELIVERED,
    DNS,
    MISCONFIGURED,
    RESET,
    SERVER_ERROR,
    THROTTLED,
    TIMEOUT,
    TLS,
    UNAVAILABLE,
    Outcome,
    Retry,
    blameless,
    rejected,
)
from outboxd.redact import clip, redact

ERROR_CHARACTERS = 300

_ABOUT_THE_CALLER = (
    StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED, StatusCode.UNIMPLEMENTED, StatusCode.NOT_FOUND,
)  # fmt: skip
# How servers in C++, Python and Go, and those in Java, say that a message is above their limit; no retry helps.
_TOO_LARGE = re.compile(r"larger than max|exceeds maximum size")
# The client's own words. A call that was on a connection is told as "Stream removed"; earlier versions name the cause.
_NOT_CONNECTED = re.compile(r"failed to connect|errors resolving|DNS resolution failed|empty address list")
_DNS = re.compile(r"errors resolving|DNS resolution failed|lookup failed|empty address list")
_TLS = re.compile(r"handshake failed|certificate|SSL_ERROR|Peer name .* is not in peer certificate", re.IGNORECASE)
_BROKEN = re.compile(r"stream removed|socket closed|recvmsg|connection reset|broken pipe|rst_stream", re.IGNORECASE)


def outcome_of(code: StatusCode, details: str, retry_after_s: float | None, was_connected: bool) -> Outcome:
    """The outcome of a call that ended.

    retry_after_s: of the status's RetryInfo. was_connected: has the channel had an answer since it last failed to
    connect?
    """
    if code in (StatusCode.OK, StatusCode.ALREADY_EXISTS):
        return DELIVERED
    error = clip(redact(f"{code.name}: {details}"), ERROR_CHARACTERS)
    if code is StatusCode.INVALID_ARGUMENT:
        return rejected(error)
    if code is StatusCode.RESOURCE_EXHAUSTED:
        if _TOO_LARGE.search(details):
            return rejected(error)
        return blameless(THROTTLED, error, retry_after_s)
    if code is StatusCode.UNAVAILABLE:
        return _unavailable(details, error, retry_after_s)
    if code is StatusCode.DEADLINE_EXCEEDED:
        if not was_connected and not _BROKEN.search(details):
            return blameless(CONNECT, f"not in time: {error}")
        return Retry(TIMEOUT, error)
    if code in _ABOUT_THE_CALLER:
        return blameless(MISCONFIGURED, error)
    return Retry(SERVER_ERROR, error)


def has_no_connection(code: StatusCode, details: str) -> bool:
    """Does the status say that the channel is not connected (any more)?"""
    return code is StatusCode.UNAVAILABLE and bool(_NOT_CONNECTED.search(details) or _BROKEN.search(details))


def _unavailable(details: str, error: str, retry_after_s: float | None) -> Retry:
    if _NOT_CONNECTED.search(details):
        reason = DNS if _DNS.search(details) else TLS if _TLS.search(details) else CONNECT
        return blameless(reason, error)
    if _BROKEN.search(details):
        return Retry(RESET, error)
    return blameless(UNAVAILABLE, error, retry_after_s)
