"""Publishers: one module for each kind of receiver, behind the contract in api.py."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from outboxd.config.schema import (
    ActivityGrpc,
    Console,
    Http,
    Kafka,
    Null,
    PublisherSettings,
    PythonCallable,
    RedisStreams,
    RocketLaunch,
    RocketMq,
    TencentIm,
)
from outboxd.errors import PublisherError
from outboxd.publishers.api import Publisher

# Each implementation is imported when it is asked for: its client library belongs into the process that uses it.
# ruff: noqa: PLC0415


def open_publisher(settings: PublisherSettings, lane: str, timeout_s: float, is_ordered: bool = False) -> Publisher:
    """Make the publisher that the settings describe, after the fork, in the process that uses it. is_ordered: of the
    events of a room that it gets at once, if it `chains`, it lets none arrive behind a failure.

    Raises PublisherError with the remedy where it cannot work as configured. The receiver need not be there yet.
    """
    match settings:
        case Console():
            from outboxd.publishers.console import ConsolePublisher

            return ConsolePublisher()
        case Null():
            from outboxd.publishers.null import NullPublisher

            return NullPublisher()
        case Http():
            from outboxd.publishers.http import HttpPublisher

            return HttpPublisher(settings, lane, timeout_s)
        case RedisStreams():
            from outboxd.publishers.redis_streams import open_redis_streams

            return open_redis_streams(settings, timeout_s, is_ordered)
        case TencentIm():
            from outboxd.publishers.tencent_im import open_tencent_im

            return open_tencent_im(settings, lane, timeout_s)
        case RocketMq():
            from outboxd.publishers.rocketmq import open_rocketmq

            return open_rocketmq(settings, timeout_s)
        case RocketLaunch():
            from outboxd.publishers.rocket_launch import open_rocket_launch

            return open_rocket_launch(settings, timeout_s)
        case PythonCallable():
            from outboxd.publishers.python_callable import open_python

            return open_python(settings, lane, timeout_s)
        case ActivityGrpc():
            with _extra("grpc", settings):
                from outboxd.publishers.activity_grpc import ActivityGrpcPublisher

            return ActivityGrpcPublisher(settings, timeout_s)
        case Kafka():
            with _extra("kafka", settings):
                from outboxd.publishers.kafka import KafkaPublisher

            return KafkaPublisher(settings, lane, timeout_s)
    raise PublisherError(f"publishers.{settings.name}: there is no publisher of type {settings.type!r}")


def check(settings: PublisherSettings, timeout_s: float) -> str:
    """Try what can be tried without sending an event; one line that says what was found, for `outboxd check`.

    Raises PublisherError with the reason.
    """
    match settings:
        case Console():
            return "prints on standard output"
        case Null():
            return "accepts events and drops them"
        case Http():
            from outboxd.publishers.curl_options import try_connection
            from outboxd.publishers.http_headers import Requests

            Requests(settings, "lane")
            return try_connection(settings, timeout_s)
        case RedisStreams():
            from outboxd.publishers.redis_streams import try_stream

            return try_stream(settings, timeout_s)
        case TencentIm():
            from outboxd.publishers.tencent_check import try_apps

            return try_apps(settings, timeout_s)
        case PythonCallable():
            from outboxd.publishers.python_callable import find_target

            return f"{settings.target} is a {'class' if isinstance(find_target(settings), type) else 'function'}"
        case ActivityGrpc():
            with _extra("grpc", settings):
                from outboxd.publishers.grpc_channel import try_channel

            return try_channel(settings, timeout_s)
        case RocketMq():
            from outboxd.publishers.rocketmq import try_rocketmq

            return try_rocketmq(settings, timeout_s)
        case RocketLaunch():
            from outboxd.publishers.rocket_launch import try_rocket_launch

            return try_rocket_launch(settings, timeout_s)
        case Kafka():
            with _extra("kafka", settings):
                from outboxd.publishers.kafka_client import try_topic

            return try_topic(settings, timeout_s)
    raise PublisherError(f"publishers.{settings.name}: there is no publisher of type {settings.type!r}")


@contextmanager
def _extra(name: str, settings: PublisherSettings) -> Iterator[None]:
    """Around the import of what needs an extra."""
    # gRPC's C library writes lines of its own on standard error, among those of the log. It looks when it is loaded.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        yield
    except ImportError as error:
        raise PublisherError(
            f"publishers.{settings.name}: type {settings.type} needs pip install 'outboxd[{name}]' ({error})"
        ) from error
