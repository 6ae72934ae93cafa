"""The channel to a gRPC server: how it is made, and how it is tried. Loads grpc."""

from contextlib import closing
from pathlib import Path

import grpc

from outboxd.config.schema import ActivityGrpc
from outboxd.errors import PublisherError
from outboxd.redact import redact

BACKOFF_MS = 1000
"""Between two attempts to connect at the most: a server that is back is found within it."""
LONGEST_ANSWER_BYTES = 4 << 20


def open_channel(settings: ActivityGrpc, connect_timeout_s: float) -> grpc.Channel:
    """A channel that repeats no call by itself. Nothing is sent yet. Raises PublisherError."""
    options = [
        # A call that is repeated behind our back may have its effect twice.
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        # As over HTTP: where events go is in the configuration, not in the environment.
        ("grpc.enable_http_proxy", 0),
        # Its own connections and its own backoff, whoever else in the process speaks to the same server.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", BACKOFF_MS),
        ("grpc.min_reconnect_backoff_ms", max(int(connect_timeout_s * 1000), BACKOFF_MS)),  # of a single attempt
        # A connection that a firewall forgot is noticed; asked only while a call waits, as servers demand.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.max_send_message_length", -1),  # max_event_bytes is the limit; the server has its own
        ("grpc.max_receive_message_length", LONGEST_ANSWER_BYTES),
        ("grpc.primary_user_agent", "outboxd"),
    ]
    if not settings.tls:
        return grpc.insecure_channel(settings.target, options)
    authorities = None
    if settings.ca_file is not None:
        try:
            authorities = Path(settings.ca_file).read_bytes()
        except OSError as error:
            raise PublisherError(f"publishers.{settings.name}.ca_file: cannot be read: {error}") from error
    return grpc.secure_channel(settings.target, grpc.ssl_channel_credentials(authorities), options)


def try_channel(settings: ActivityGrpc, timeout_s: float) -> str:
    """Connect; what was found, for `outboxd check`. Raises PublisherError."""
    with closing(open_channel(settings, timeout_s)) as channel:
        # A call of a method that no service has: whoever answers at all answers this.
        call = channel.unary_unary("/outboxd.Check/Reach")
        try:
            call(b"", timeout=timeout_s)
        except grpc.RpcError as error:
            code, details = error.code(), redact(str(error.details()))
            if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise PublisherError(f"cannot reach {settings.target}: {details}") from error
            if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                raise PublisherError(f"{settings.target} refuses us: {code.name}: {details}") from error
            if "http2 header" in details:
                raise PublisherError(f"{settings.target} speaks HTTP/2, but not gRPC: {details}") from error
    return f"{settings.target} is reachable over gRPC{' with TLS' if settings.tls else ''}"
