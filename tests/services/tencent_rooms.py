"""Settings of publishers to Tencent IM, and events of rooms."""

import json
from typing import Protocol

from outboxd.config.schema import TencentApp, TencentIm
from outboxd.event import Event
from outboxd.publishers.api import Publisher
from tests.services.publishing import make_event
from tests.services.tencent_state import ADMIN

APP, OTHER_APP = 1400000001, 1400000002
KEYS = {APP: "key-of-the-first-app", OTHER_APP: "key-of-the-other-app"}
PUBLISH_TIMEOUT_S = 5.0


class OpensIm(Protocol):
    """Makes publishers that are closed at the end of the test. changes: of the settings."""

    def __call__(
        self, member_control: bool = False, publish_timeout_s: float = PUBLISH_TIMEOUT_S, **changes: object
    ) -> Publisher: ...


def apps_of(**sdk_app_ids: int) -> dict[str, TencentApp]:
    """Tenants by app_code, with the right keys."""
    return {
        app_code: TencentApp(sdk_app_id=sdk_app_id, identifier=ADMIN, secret_key=KEYS[sdk_app_id])
        for app_code, sdk_app_id in sdk_app_ids.items()
    }


def im_settings(*hosts: str, **changes: object) -> TencentIm:
    """Settings that send to the hosts: tenants app and other, four connections."""
    usual: dict[str, object] = {
        "name": "im",
        "hosts": hosts,
        "connections": 4,
        "apps": apps_of(app=APP, other=OTHER_APP),
    }
    return TencentIm(**{**usual, **changes})  # type: ignore[arg-type]


def room_event(event_type: str = "RoomGiftSent", body: object = None, **columns: object) -> Event:
    """An event with a proper envelope."""
    event = make_event(event_type=event_type, **columns)
    content = {
        "event_id": event.event_id,
        "event_type": event_type,
        "room_id": event.room_id,
        "app_code": event.app_code,
        "room_version": 7,
        "occurred_at_ms": 1_700_000_000_456,
        "body": {"gift": '火箭 "1"'} if body is None else body,
    }
    if "envelope" in columns:
        return event
    return make_event(
        **{**columns, "id": event.id, "event_id": event.event_id, "event_type": event_type},
        envelope=json.dumps(content).encode("utf-8", "surrogatepass"),
    )
