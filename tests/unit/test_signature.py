"""Standard Webhooks signatures."""

import base64
import hashlib
import hmac

from outboxd.publishers import signature

SECRET = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")


def test_the_example_of_the_specification_comes_out() -> None:
    """Receivers verify with the published libraries; this is the example that those test themselves with."""
    signed = signature.sign(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_body_is_signed_byte_for_byte() -> None:
    """Whatever the payload is: line breaks, no text at all, nothing."""
    for body in (b"", b"\r\n", bytes(range(256))):
        expected = hmac.new(SECRET, b"id.1." + body, hashlib.sha256).digest()
        assert signature.sign(SECRET, "id", 1, body) == "v1," + base64.b64encode(expected).decode()


def test_the_headers_say_what_was_signed() -> None:
    """A receiver puts the signed text together from the two other headers."""
    lines = signature.headers(SECRET, "event-1", 1614265330, b"x")
    assert list(lines[:2]) == ["webhook-id: event-1", "webhook-timestamp: 1614265330"]
    assert lines[2] == f"webhook-signature: {signature.sign(SECRET, 'event-1', 1614265330, b'x')}"
