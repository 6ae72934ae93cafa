"""The one place that loads the RocketMQ client library; all that we use of it is taken from here.

Loading it has effects: it opens a log file in the home directory, and it fails where that cannot be written. A client
that was made before a fork hangs for ever after it, so only the process that uses it loads it.
"""

import logging
import os

from outboxd.errors import PublisherError

# gRPC's C library writes lines of its own on standard error, among those of the log. It looks when it is loaded.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
try:
    from grpc import ChannelConnectivity, StatusCode
    from grpc.aio import AioRpcError
    from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer
    from rocketmq.grpc_protocol import (
        AckMessageRequest,
        ChangeInvisibleDurationRequest,
        Code,
        Encoding,
        ForwardMessageToDeadLetterQueueRequest,
        MessageType,
        QueryRouteRequest,
        ReceiveMessageRequest,
        SendMessageRequest,
    )
    from rocketmq.v5 import exception
    from rocketmq.v5.client.balancer import QueueSelector
    from rocketmq.v5.model.topic_route import MessageQueue
    from rocketmq.v5.util import MessageIdCodec, MessagingResultChecker, Misc
except OSError as failure:
    raise PublisherError(
        f"cannot load the RocketMQ client, which writes to ~/logs/rocketmq_python: {failure.strerror or failure} "
        f"({failure.filename}); set HOME to a folder that can be written"
    ) from failure
except ImportError as failure:
    raise PublisherError(
        f"cannot load the RocketMQ client ({failure}); install it: pip install 'outboxd[rocketmq]'"
    ) from failure

__all__ = [
    "AckMessageRequest",
    "AioRpcError",
    "ChangeInvisibleDurationRequest",
    "ChannelConnectivity",
    "ClientConfiguration",
    "Code",
    "Credentials",
    "Encoding",
    "FilterExpression",
    "ForwardMessageToDeadLetterQueueRequest",
    "Message",
    "MessageIdCodec",
    "MessageQueue",
    "MessageType",
    "MessagingResultChecker",
    "Misc",
    "Producer",
    "QueryRouteRequest",
    "QueueSelector",
    "ReceiveMessageRequest",
    "SendMessageRequest",
    "SimpleConsumer",
    "StatusCode",
    "exception",
]


def _silence() -> None:
    """Its log, of up to a gigabyte in the home directory, is closed: what matters of it, we tell."""
    logger = logging.getLogger("rocketmq-python-client")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.addHandler(logging.NullHandler())
    logger.setLevel(logging.CRITICAL + 1)
    # Its callbacks fail while the server is away: every few seconds, each with its traceback.
    for name in ("concurrent.futures", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    # The client calls this one, which Python is about to drop; under warnings as errors its callbacks would fail.
    logger.warn = logger.warning  # type: ignore[method-assign]


_silence()
