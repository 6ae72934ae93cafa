"""Whom an answer, or the lack of one, is blamed on."""

import pycurl
import pytest

from outboxd.event import DELIVERED, Dead, Outcome, Retry
from outboxd.publishers.http_answer import LONGEST_RETRY_AFTER_S, Failure, answered, failed, retry_after_s

PERMANENT = frozenset({400, 413, 422})
NOW_S = 1_700_000_000.0
DATE = b"Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n"  # NOW_S


def outcome(status: int, body: bytes = b"", *headers: bytes) -> Outcome:
    return answered(status, body, headers, PERMANENT, NOW_S)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 299])
def test_every_2xx_is_delivered(status: int) -> None:
    """The receiver has it."""
    assert outcome(status) is DELIVERED


@pytest.mark.parametrize("status", [400, 413, 422])
def test_permanent_statuses_are_dead_letters(status: int) -> None:
    """The receiver says that this event can never be accepted."""
    assert outcome(status, b"no") == Dead("rejected", f"HTTP {status}: no")


@pytest.mark.parametrize(
    ("status", "reason", "counted"),
    [
        (429, "throttled", False),
        (502, "unavailable", False),
        (503, "unavailable", False),
        (504, "unavailable", False),
        *((status, "misconfigured", False) for status in (300, 301, 302, 303, 304, 307, 308)),
        *((status, "misconfigured", False) for status in (401, 403, 404, 405, 410, 415)),
        *((status, "server_error", True) for status in (402, 406, 408, 409, 418, 451, 500, 501, 505, 599, 999)),
    ],
)
def test_other_statuses_are_blamed_as_promised(status: int, reason: str, counted: bool) -> None:
    """G6: only what is blamed on the event uses up one of its attempts."""
    result = outcome(status)
    assert isinstance(result, Retry)
    assert (result.reason, result.counted) == (reason, counted)


def test_a_status_can_be_declared_permanent() -> None:
    """permanent_statuses comes before everything but success."""
    assert answered(404, b"", (), frozenset({404}), NOW_S) == Dead("rejected", "HTTP 404 (check url)")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"7", 7.0),
        (b"0", 0.0),
        (b"-5", 0.0),
        (b"99999999999999999999", LONGEST_RETRY_AFTER_S),
        (b"soon", None),
        (b"1.5", None),
        (b"nan", None),
        (b"", None),
        (b"Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        (b"Tuesday, 14-Nov-23 22:13:50 GMT", 30.0),
        (b"Tue Nov 14 22:13:50 2023", 30.0),
        (b"Tue, 14 Nov 2023 22:13:00 GMT", 0.0),
        (b"Tue, 99 Nov 2023 99:13:00 GMT", None),
        (b"\xff\xfe", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: bytes, seconds: float | None) -> None:
    """Nonsense is as good as nothing, and the past is now."""
    assert retry_after_s([DATE, b"Retry-After: " + text + b"\r\n"], 12345.0) == seconds
    assert retry_after_s([b"RETRY-AFTER:" + text + b"\r\n"], NOW_S) == seconds


def test_retry_after_counts_from_the_answers_own_clock() -> None:
    """G12: a receiver whose clock is an hour off still gets the pause that it asked for."""
    late = b"Retry-After: Tue, 14 Nov 2023 22:13:50 GMT\r\n"
    assert retry_after_s([DATE, late], NOW_S + 3600) == 30.0


@pytest.mark.parametrize(("status", "expected"), [(429, 7.0), (503, 7.0), (502, None), (504, None), (500, None)])
def test_retry_after_is_heeded_on_429_and_503(status: int, expected: float | None) -> None:
    """Elsewhere it does not say when to come back."""
    result = outcome(status, b"", b"Retry-After: 7\r\n")
    assert isinstance(result, Retry)
    assert result.retry_after_s == expected


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "HTTP 500"),
        (b"out of cheese", "HTTP 500: out of cheese"),
        (b"a\r\nb\x00\x1b[31m", "HTTP 500: a\\r\\nb\\x00\\x1b[31m"),
        (b"x" * 5000, "HTTP 500: " + "x" * 200),
        ("é".encode() * 5000, "HTTP 500: " + "é" * 200),
        ("🚀".encode() * 5000, "HTTP 500: " + "🚀" * 200),
        (b"\xff\xfe ok", "HTTP 500: \ufffd\ufffd ok"),
    ],
)
def test_of_a_body_at_most_200_characters_are_kept(body: bytes, text: str) -> None:
    """G9, G11: as valid text on one line, cut on a character."""
    result = outcome(500, body)
    assert isinstance(result, Retry)
    assert result.error == text


def test_a_url_in_a_body_shows_no_credentials() -> None:
    """G11: receivers like to quote what they called in turn."""
    result = outcome(500, b"cannot reach http://user:hunter2@db/x?token=hunter3")
    assert isinstance(result, Retry)
    assert "hunter" not in result.error


MESSAGE = "words of curl"


def failure(code: int, **facts: object) -> Retry:
    known = {"message": MESSAGE, "resolved": True, "connected": True, "secured": True, "sent": True, "status": 0}
    return failed(Failure(code, **{**known, **facts}), b"", (), PERMANENT, NOW_S)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "facts", "reason", "counted"),
    [
        (pycurl.E_COULDNT_CONNECT, {"sent": False}, "connect", False),
        (pycurl.E_COULDNT_RESOLVE_HOST, {"sent": False}, "dns", False),
        (pycurl.E_PEER_FAILED_VERIFICATION, {"sent": False}, "tls", False),
        (pycurl.E_SSL_CONNECT_ERROR, {"sent": False}, "tls", False),
        (pycurl.E_OPERATION_TIMEDOUT, {"sent": False, "resolved": False, "connected": False}, "dns", False),
        (pycurl.E_OPERATION_TIMEDOUT, {"sent": False, "connected": False, "secured": False}, "connect", False),
        (pycurl.E_OPERATION_TIMEDOUT, {"sent": False, "secured": False}, "tls", False),
        (pycurl.E_OPERATION_TIMEDOUT, {}, "timeout", True),
        (pycurl.E_OPERATION_TIMEDOUT, {"status": 200}, "timeout", True),
        (pycurl.E_GOT_NOTHING, {}, "reset", True),
        (pycurl.E_RECV_ERROR, {}, "reset", True),
        (pycurl.E_SEND_ERROR, {}, "reset", True),
        (pycurl.E_SEND_ERROR, {"sent": False}, "connect", False),
        (pycurl.E_SEND_FAIL_REWIND, {}, "reset", True),
        (pycurl.E_PARTIAL_FILE, {"status": 200}, "reset", True),
        (pycurl.E_UNSUPPORTED_PROTOCOL, {}, "server_error", True),
        (12345, {}, "server_error", True),
        (12345, {"sent": False}, "connect", False),
    ],
)
def test_a_failure_is_blamed_by_how_far_the_request_came(
    code: int, facts: dict[str, object], reason: str, counted: bool
) -> None:
    """G6: what never reached the receiver is no fault of the event."""
    result = failure(code, **facts)
    assert (result.reason, result.counted) == (reason, counted)


@pytest.mark.parametrize(
    ("code", "words"),
    [(pycurl.E_RECV_ERROR, "Too large response headers: 310503 > 307200"), (100, "A value or data field grew larger")],
)
def test_it_is_told_when_we_gave_up_on_endless_headers(code: int, words: str) -> None:
    """G9: curl calls it an error in receiving, but it was not the receiver who ended the connection."""
    assert failure(code, message=words, status=200) == Retry("server_error", "the answer's headers are too long")


def test_a_status_decides_although_the_answer_broke_off() -> None:
    """G6: a proxy's 503 with half a body is still the outage that it says; but nothing dies of half an answer."""
    assert failure(pycurl.E_PARTIAL_FILE, status=503).counted is False
    assert failure(pycurl.E_PARTIAL_FILE, status=429).reason == "throttled"
    assert failure(pycurl.E_PARTIAL_FILE, status=400) == Retry(
        "reset", "the connection ended before the answer did: words of curl"
    )


def test_a_refused_client_certificate_is_no_fault_of_the_event() -> None:
    """In TLS 1.3 the refusal comes when the request is already sent, and looks like a reset."""
    words = "SSL_read: error:0A00045C:SSL routines::tlsv13 alert certificate required"
    result = failure(pycurl.E_RECV_ERROR, message=words)
    assert (result.reason, result.counted) == ("tls", False)
