"""Standard Webhooks signatures (standardwebhooks.com): a receiver that knows the secret can tell who sent a request."""

import base64
import hmac
from collections.abc import Sequence

PREFIX = "v1,"


def sign(secret: bytes, message_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of `webhook-signature`: HMAC-SHA256 over id, timestamp and body, with dots between.

    message_id: exactly as the header `webhook-id` sends it. timestamp_s: UTC epoch seconds, as in `webhook-timestamp`.
    """
    digest = hmac.digest(secret, b"%b.%d.%b" % (message_id.encode("ascii"), timestamp_s, body), "sha256")
    return PREFIX + base64.b64encode(digest).decode("ascii")


def headers(secret: bytes, message_id: str, timestamp_s: int, body: bytes) -> Sequence[str]:
    """The three header lines."""
    return (
        f"webhook-id: {message_id}",
        f"webhook-timestamp: {timestamp_s}",
        f"webhook-signature: {sign(secret, message_id, timestamp_s, body)}",
    )
