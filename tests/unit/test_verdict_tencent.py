"""What `outboxd explain` tells of Tencent IM's failures; the texts are the publisher's own.

tests/integration/test_tencent_answers.py has the same told of every code that a server answers.
"""

import pytest

from outboxd.config.schema import Console, PublisherSettings
from outboxd.explain.verdict import CONFIGURATION, EVENT, RECEIVER, verdict
from tests.services.tencent_rooms import im_settings

IM: dict[str, PublisherSettings] = {"im": im_settings("http://h")}
BOTH: dict[str, PublisherSettings] = {**IM, "console": Console(name="console")}


@pytest.mark.parametrize(
    ("error", "blame", "part"),
    [
        ("send_group_msg: 10017 (the sender is muted) muted", EVENT, "code 10017: it can never accept this event"),
        ("create_group: 70003 (check secret_key) x", CONFIGURATION, "code 70003: it refuses us"),
        ("send_group_msg: 10023 (too many) x", RECEIVER, "code 10023: it wants fewer calls"),
        ("send_group_msg: 10002 (internal error) a; b at c: d", EVENT, "code 10002: it failed while"),
        ("send_group_msg: 10010 (no group) x, although it was just created", EVENT, "code 10010: it failed while"),
        ("no app for app_code 'x'; add it to publishers.im.apps", CONFIGURATION, "im has no app for its app_code"),
        ("protobuf is not installed: pip install 'outboxd[grpc]'", CONFIGURATION, "whose library is missing"),
        ("send_group_msg at h:443: HTTP 400: x", EVENT, "answered 400: it failed while"),
        ("send_group_msg at h:443: HTTP 404: x (check region or base_url)", CONFIGURATION, "answered 404"),
        ("send_group_msg at h:443: TLS failed: x", RECEIVER, "no secure connection to im"),
        (
            "create_group at a: Failed to connect to a; create_group at b: Could not resolve host: b",
            RECEIVER,
            "is not known",
        ),
        ("send_group_msg at h: no complete answer in time: x", EVENT, "did not answer in time"),
        ("group id 'x' cannot be used: Tencent takes", EVENT, "no request can be made of it"),
        ("too large for Tencent IM: the message has 13000 bytes", EVENT, "no request can be made of it"),
        ("RoomUserKicked names nobody: its body has neither", EVENT, "no request can be made of it"),
    ],
)
def test_every_text_has_its_meaning(error: str, blame: str, part: str) -> None:
    """With several publishers a text begins with its publisher's name."""
    for found in (verdict(error, IM), verdict(f"im: {error}", BOTH)):
        assert found.blame == blame
        assert part in found.says
        assert found.publisher == "im"


def test_what_a_person_can_do_is_about_tencent() -> None:
    """Not about keys that this publisher has not."""
    for error in ("a at h: HTTP 401: x", "a at h: HTTP 404: x", "a at h: HTTP 302: x", "a: 60021 (address) x"):
        todo = verdict(error, IM).todo
        assert "publishers.im." in todo
        assert ".url" not in todo.replace("base_url", "")
        assert "authorization" not in todo
