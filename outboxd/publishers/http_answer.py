"""What an HTTP answer, or the lack of one, means for an event. Pure: curl's facts come in, an outcome goes out.

The rule (G6): what never reached the receiver, what its proxy answered (502, 503, 504), what it asked to slow down
(429) and what a person must put right is blamed on the publisher; anything else that failed is blamed on the event.
"""

import email.utils
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import pycurl

from outboxd.event import (
    CONNECT,
    DELIVERED,
    DNS,
    MISCONFIGURED,
    REJECTED,
    RESET,
    SERVER_ERROR,
    THROTTLED,
    TIMEOUT,
    TLS,
    UNAVAILABLE,
    Dead,
    Outcome,
    Retry,
)
from outboxd.redact import clip, redact

SHOWN_CHARACTERS = 200
"""How much of an answer's body is kept, for the error text."""
LONGEST_RETRY_AFTER_S = 10 * 365 * 86_400.0

MISCONFIGURED_STATUSES = frozenset({401, 403, 404, 405, 410, 415})
UNAVAILABLE_STATUSES = frozenset({502, 503, 504})

_HINTS = {
    401: "check authorization_file",
    403: "check what the receiver allows",
    404: "check url",
    405: "check url",
    410: "check url",
    415: "check format",
}
_TLS_CODES = frozenset(
    {
        pycurl.E_SSL_CONNECT_ERROR,
        pycurl.E_PEER_FAILED_VERIFICATION,
        pycurl.E_SSL_CERTPROBLEM,
        pycurl.E_SSL_CIPHER,
        pycurl.E_SSL_CACERT_BADFILE,
        pycurl.E_SSL_CRL_BADFILE,
        pycurl.E_SSL_ISSUER_ERROR,
        pycurl.E_SSL_ENGINE_INITFAILED,
        pycurl.E_SSL_ENGINE_NOTFOUND,
        pycurl.E_SSL_ENGINE_SETFAILED,
        pycurl.E_SSL_INVALIDCERTSTATUS,
        pycurl.E_SSL_PINNEDPUBKEYNOTMATCH,
        98,  # SSL_CLIENTCERT, which older pycurl has no name for
    }
)
_RESET_CODES = frozenset(
    {
        pycurl.E_GOT_NOTHING,
        pycurl.E_RECV_ERROR,
        pycurl.E_SEND_ERROR,
        pycurl.E_PARTIAL_FILE,
        pycurl.E_SEND_FAIL_REWIND,
    }
)
_TOO_LONG_HEADERS = "Too large response headers"
"""What curl says of them all with E_RECV_ERROR; of one that is too long, or of too many, it has a code."""
_TOO_LARGE = 100  # CURLE_TOO_LARGE, which older pycurl has no name for
_DIGITS = re.compile(r"[+-]?\d{1,20}")
_REFUSED_CERTIFICATE = re.compile(r"alert .*(certificate|unknown ca)", re.IGNORECASE)


class Failure(NamedTuple):
    """A transfer that curl gave up.

    code, message: curl's. resolved, connected, secured: how far the connection came. sent: some of the request left.
    status: of the answer as far as it came, 0 if none did.
    """

    code: int
    message: str
    resolved: bool
    connected: bool
    secured: bool
    sent: bool
    status: int


def answered(status: int, body: bytes, headers: Iterable[bytes], permanent: frozenset[int], now_s: float) -> Outcome:
    """The outcome of a complete answer. headers: its raw lines. now_s: time.time(), where the answer has no Date."""
    if 200 <= status < 300:
        return DELIVERED
    error = _shown(status, body)
    if status in permanent:
        return Dead(REJECTED, error)
    if status == 429:
        return Retry(THROTTLED, error, counted=False, retry_after_s=retry_after_s(headers, now_s))
    if status in UNAVAILABLE_STATUSES:
        wait_s = retry_after_s(headers, now_s) if status == 503 else None
        return Retry(UNAVAILABLE, error, counted=False, retry_after_s=wait_s)
    if status in MISCONFIGURED_STATUSES or 300 <= status < 400:
        return Retry(MISCONFIGURED, error, counted=False)
    return Retry(SERVER_ERROR, error)


def failed(failure: Failure, body: bytes, headers: Iterable[bytes], permanent: frozenset[int], now_s: float) -> Retry:
    """The outcome where no complete answer came."""
    if failure.status >= 300:
        outcome = answered(failure.status, body, headers, permanent, now_s)
        if isinstance(outcome, Retry):  # whom to blame is known, although the answer broke off
            return outcome
    message = clip(redact(failure.message), SHOWN_CHARACTERS)
    if failure.code in _TLS_CODES or _REFUSED_CERTIFICATE.search(message):
        return Retry(TLS, f"TLS failed: {message}", counted=False)
    if failure.code in (pycurl.E_COULDNT_RESOLVE_HOST, pycurl.E_COULDNT_RESOLVE_PROXY):
        return Retry(DNS, message, counted=False)
    if failure.code == pycurl.E_COULDNT_CONNECT:
        return Retry(CONNECT, message, counted=False)
    if not failure.sent:
        return Retry(_how_far(failure), f"the request was not sent: {message}", counted=False)
    if failure.code == pycurl.E_OPERATION_TIMEDOUT:
        return Retry(TIMEOUT, f"no complete answer in time: {message}")
    if failure.code == pycurl.E_SEND_FAIL_REWIND:  # curl's own words are about repeating the request
        return Retry(RESET, "the kept-alive connection was closed without an answer")
    if failure.code == _TOO_LARGE or message.startswith(_TOO_LONG_HEADERS):
        return Retry(SERVER_ERROR, "the answer's headers are too long")
    if failure.code in _RESET_CODES:
        return Retry(RESET, f"the connection ended before the answer did: {message}")
    return Retry(SERVER_ERROR, f"the answer cannot be read: {message}")


def _how_far(failure: Failure) -> str:
    if not failure.resolved:
        return DNS
    return CONNECT if not failure.connected or failure.secured else TLS


def _shown(status: int, body: bytes) -> str:
    hint = "redirects are not followed; check url" if 300 <= status < 400 else _HINTS.get(status)
    text = clip(redact(body[: 8 * SHOWN_CHARACTERS].decode("utf-8", "replace")), SHOWN_CHARACTERS)
    return f"HTTP {status}" + (f": {text}" if text else "") + (f" ({hint})" if hint else "")


def retry_after_s(headers: Iterable[bytes], now_s: float) -> float | None:
    """What Retry-After asks for, in seconds from now, at least 0; None if there is none or it is nonsense.

    A date is counted from the answer's own Date, so that the two clocks need not agree.
    """
    found: dict[bytes, str] = {}
    for line in headers:
        name, _, value = line.partition(b":")
        found[name.strip().lower()] = value.decode("latin-1").strip()
    text = found.get(b"retry-after", "")
    if _DIGITS.fullmatch(text):
        return min(max(float(text), 0.0), LONGEST_RETRY_AFTER_S)
    at_s = _epoch_s(text)
    if at_s is None:
        return None
    sent_s = _epoch_s(found.get(b"date", ""))
    return min(max(at_s - (now_s if sent_s is None else sent_s), 0.0), LONGEST_RETRY_AFTER_S)


def _epoch_s(text: str) -> float | None:
    try:
        date: datetime = email.utils.parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
