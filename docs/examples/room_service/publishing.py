"""Publishing at once, after the commit: for what cannot wait for the relay. Off unless a receiver is configured.

It is no substitute for the relay, which has every event that fails here, and those of a service that dies; and it keeps
no order: with a lane that is ordered leave it off.
"""

import time
from typing import cast

import msgspec
import requests

from outboxd.config.schema import TencentApp, TencentIm
from outboxd.event import DELIVERED, Event
from outboxd.producer import Held
from outboxd.tencent.course import Answer, course_of
from outboxd.tencent.requests import Call, errand_of
from outboxd.tencent.usersig import Signatures
from room_service.settings import Settings, Tencent
from room_service.timing import Timing

SILENT = frozenset({"RoomHeatChanged"})
"""Events without a picture in IM, as `silent_events` has them in outbox.yaml."""


class NotPublished(Exception):
    """A receiver did not take it."""


class Publishing:
    """To the activity service and to Tencent IM, those of them that are configured."""

    def __init__(self, settings: Settings) -> None:
        self.activity = settings.activity_url or None
        self.tencent = TencentSender(settings.tencent, settings.app_code) if settings.tencent else None
        self._timeout_s = settings.publish_timeout_s

    def publish(self, event: Held, timing: Timing) -> None:
        """All of them have it, or this raises."""
        if self.activity is not None:
            with timing.step("activity"):
                self._post(self.activity, event)
        if self.tencent is not None and event.event_type not in SILENT:
            with timing.step("tencent_im"):
                self.tencent.send(event, self._timeout_s)

    def _post(self, url: str, event: Held) -> None:
        """As the relay does it in the format `cloudevents`, as far as receivers look at it."""
        headers = {
            "content-type": event.content_type, "ce-specversion": "1.0", "ce-id": event.event_id,
            "ce-type": event.event_type, "ce-source": f"/outboxd/{event.lane}",
        }  # fmt: skip
        answer = requests.post(url, data=event.envelope, headers=headers, timeout=self._timeout_s)
        if not answer.ok:
            raise NotPublished(f"the activity service answered {answer.status_code}")


class _Told(msgspec.Struct, rename="pascal"):
    error_code: int
    error_info: str = ""


class TencentSender:
    """The calls that the relay makes for an event, with the same `Random`: Tencent drops the second of two messages."""

    def __init__(self, tencent: Tencent, app_code: str) -> None:
        app = TencentApp(
            sdk_app_id=tencent.sdk_app_id, identifier=tencent.identifier, secret_key=tencent.secret_key
        )
        self._settings = TencentIm(name="im", hosts=(tencent.url,), apps={app_code: app})
        self._app = app
        self._signatures = Signatures()

    def send(self, event: Held, timeout_s: float) -> None:
        """Raises NotPublished, or what requests raises."""
        course = course_of(
            errand_of(cast(Event, event), self._settings, self._app.identifier, False),
            self._settings,
            self._app.identifier,
        )
        call = next(course)
        while True:
            try:
                call = course.send(self._ask(call, timeout_s))
            except StopIteration as end:
                if end.value is not DELIVERED:
                    raise NotPublished(str(getattr(end.value, "error", end.value))) from None
                return

    def _ask(self, call: Call, timeout_s: float) -> Answer:
        query: dict[str, str | int] = {
            "sdkappid": self._app.sdk_app_id,
            "identifier": self._app.identifier,
            "usersig": self._signatures.get(self._app, time.time()),
            "random": time.time_ns() % 2**32,
            "contenttype": "json",
        }
        url = f"{self._settings.hosts[0]}/v4/{call.command}"
        answer = requests.post(url, params=query, data=call.body, timeout=timeout_s)
        told = msgspec.json.decode(answer.content, type=_Told)
        return Answer(told.error_code, told.error_info)
