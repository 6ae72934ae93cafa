"""The trace in which an event was recorded, where the application traces itself."""

import sys
from collections.abc import Mapping

_NONE: Mapping[str, str] = {}


def trace_headers() -> Mapping[str, str]:
    """`traceparent`, and `tracestate` if there is one, of the current span (https://www.w3.org/TR/trace-context/).

    Empty where no span is active. OpenTelemetry is asked only if the application has imported it, and costs nothing
    else.

    >>> import sys
    >>> "opentelemetry.trace" in sys.modules or trace_headers() == {}
    True
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return _NONE
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return _NONE
    headers = {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
    state = context.trace_state.to_header()
    return {**headers, "tracestate": state} if state else headers
