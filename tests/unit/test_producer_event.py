"""What a producer's event must be, and the row that becomes of it."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from outboxd.errors import EventRefused, OutboxdError
from outboxd.producer import Event, record
from outboxd.producer.event import HEADERS_BYTES, MAX_EVENT_BYTES, Row, row_of, rows_of
from outboxd.store import api
from outboxd.table import LAST_MS, LIMITS

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
TRACEPARENT = f"00-{TRACE:032x}-{SPAN:016x}-01"


def event(**fields: Any) -> Event:
    return Event(**{"event_type": "T", "room_id": "r", "envelope": b"{}", **fields})


def row(**fields: Any) -> Row:
    return row_of(event(**fields), MAX_EVENT_BYTES, {})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        *[({name: "x" * (most + 1)}, f"{name} has {most + 1} characters, {most} is the most") for name, most in
          LIMITS.items()],
        ({"event_type": ""}, "event_type is empty"),
        ({"event_id": ""}, "event_id is empty"),
        ({"event_id": "房"}, "event_id '房' is not ASCII"),
        ({"content_type": "téxt"}, "is not ASCII"),
        ({"room_id": 42}, "room_id is of type int: give a str"),
        ({"event_type": None}, "event_type is of type NoneType"),
        ({"room_id": "\ud800"}, "room_id is no valid text"),
        ({"envelope": "\ud800"}, "envelope is no valid text"),
        ({"envelope": None}, "envelope is of type NoneType"),
        ({"envelope": 7}, "envelope is of type int"),
        ({"envelope": {"at": datetime.now(UTC)}}, "envelope cannot be written as JSON"),
        ({"envelope": {"x": float("nan")}}, "envelope cannot be written as JSON"),
        ({"envelope": {"a": "\ud800"}}, "envelope is no valid text"),
        ({"envelope": {}, "content_type": "application/protobuf"}, "goes as JSON and not as 'application/protobuf'"),
        ({"envelope": bytes(MAX_EVENT_BYTES + 1)}, "envelope has 8,388,609 bytes, 8,388,608 is the most"),
        ({"headers": "[]"}, "headers is a list"),
        ({"headers": "{"}, "headers is not the text of a JSON object"),
        ({"headers": 7}, "headers is a int"),
        ({"headers": {"a": b""}}, "headers cannot be written as JSON"),
        ({"headers": {"a": "x" * HEADERS_BYTES}}, "headers have 65,544 bytes"),
        ({"deliver_at": datetime(2030, 1, 1)}, "has no time zone"),  # noqa: DTZ001  that is the mistake
        ({"deliver_at": 1_900_000_000}, "is no time in UTC epoch milliseconds"),
        ({"deliver_at": LAST_MS + 1}, "is no time in UTC epoch milliseconds"),
        ({"deliver_at": "tomorrow"}, "deliver_at is of type str"),
        ({"deliver_at": True}, "deliver_at is of type bool"),
        ({"delay": 10}, "delay is of type int: give a timedelta"),
        ({"delay": timedelta(seconds=-1)}, "is negative"),
        ({"delay": timedelta.max}, "is too long"),
        ({"delay": timedelta(1), "deliver_at": 10**12}, "deliver_at or delay, not both"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_what_is_wrong(fields: dict[str, Any], problem: str) -> None:
    """Before a connection is even looked at; as an error of ours and as the ValueError that it is."""
    with pytest.raises(EventRefused) as caught:
        record(None, [event(), event(**fields)])
    assert problem in str(caught.value)
    assert isinstance(caught.value, OutboxdError)
    assert isinstance(caught.value, ValueError)


def test_what_just_fits_is_taken() -> None:
    longest: dict[str, Any] = {name: "x" * most for name, most in LIMITS.items()}
    assert row(**longest)[:6] == ("x" * 32, "x" * 64, "x" * 64, "x" * 64, b"{}", "x" * 64)
    assert row(room_id="房" * 64, app_code="", envelope=bytes(MAX_EVENT_BYTES)).room_id == "房" * 64


def test_the_latest_time_is_not_the_one_that_stands_for_at_once() -> None:
    assert LAST_MS == api.FRESH - 1
    assert row(deliver_at=LAST_MS).due_ms == LAST_MS


def test_two_events_with_one_id_are_refused_together() -> None:
    """Else the second would break the INSERT of all. Tenants have ids of their own."""
    with pytest.raises(EventRefused, match="same event_id"):
        rows_of([event(event_id="e"), event(event_id="e")], MAX_EVENT_BYTES)
    assert len(rows_of([event(event_id="e"), event(event_id="e", app_code="a")], MAX_EVENT_BYTES)) == 2


def test_no_lane_is_a_name_that_would_have_to_be_escaped() -> None:
    for lane in ("", "a b", "x`; DROP TABLE room; --", "ü", None, "x" * 65):
        with pytest.raises(EventRefused, match="is no lane"):
            record(None, event(), lane=lane)  # type: ignore[arg-type]  # what a caller may do


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(EventRefused, match="dict is no Event"):
        record(None, [{"event_type": "T"}])  # type: ignore[list-item]  # what a caller may do


@given(st.datetimes(min_value=datetime(1980, 1, 1), max_value=datetime(9000, 1, 1)))  # noqa: DTZ001  made aware below
def test_a_time_is_never_sooner_than_asked_for(naive: datetime) -> None:
    """Microseconds are rounded up."""
    moment = naive.replace(tzinfo=UTC)
    exact_us = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert exact_us <= 1000 * row(deliver_at=moment).due_ms < exact_us + 1000


def test_a_payload_is_not_told_to_whoever_prints_an_event() -> None:
    """Tracebacks and logs are read by others than the payload's."""
    assert "hidden" not in repr(event(envelope="hidden", headers={"a": "hidden"}))


def span(state: str = "") -> Any:
    """A span that is current; no provider has to be set up for it."""
    context = SpanContext(TRACE, SPAN, True, TraceFlags(1), TraceState.from_header([state] if state else []))
    return trace.use_span(NonRecordingSpan(context))


def headers_of(**fields: Any) -> dict[str, str] | None:
    text = rows_of([event(**fields)], MAX_EVENT_BYTES)[0].headers
    return None if text is None else json.loads(text)


def test_an_event_carries_the_trace_in_which_it_was_recorded() -> None:
    with span():
        assert headers_of() == {"traceparent": TRACEPARENT}
        assert headers_of(headers={"a": "b"}) == {"a": "b", "traceparent": TRACEPARENT}
        assert headers_of(headers='{"a": "b"}') == {"a": "b", "traceparent": TRACEPARENT}
    with span("vendor=1"):
        assert headers_of() == {"traceparent": TRACEPARENT, "tracestate": "vendor=1"}
    assert headers_of() is None


def test_a_trace_of_the_callers_own_is_left_alone() -> None:
    """Whatever its case, and without the state of another trace."""
    with span("vendor=1"):
        assert headers_of(headers={"Traceparent": "mine"}) == {"Traceparent": "mine"}


def test_a_span_of_a_real_tracer_is_carried_as_opentelemetry_itself_would() -> None:
    tracer = TracerProvider().get_tracer("test")
    theirs: dict[str, str] = {}
    with tracer.start_as_current_span("command"):
        TraceContextTextMapPropagator().inject(theirs)
        assert headers_of() == theirs
    assert theirs["traceparent"].startswith("00-")
