"""Brings events to Tencent IM: rooms become groups, events messages in them. The calls of one event are in
outboxd/tencent; this module makes them, many events at a time.

Each event has one transfer from its first call to its last, so an event in flight always has a connection. All of its
calls together end by the event's deadline.

Imported only in the process that publishes: it loads pycurl.
"""

import random
import time
from collections.abc import Generator

import msgspec
import pycurl

from outboxd.config.schema import Http, TencentApp, TencentIm
from outboxd.envelope import NoProtobuf
from outboxd.event import (
    CONNECT,
    DELIVERED,
    DNS,
    INVALID,
    MISCONFIGURED,
    SERVER_ERROR,
    TIMEOUT,
    TLS,
    Dead,
    Event,
    Outcome,
    Retry,
)
from outboxd.message import InvalidEvent
from outboxd.publishers.api import Waits
from outboxd.publishers.curl_loop import NOT_SENT, NOT_STARTED, CurlLoop, Ended
from outboxd.publishers.curl_options import make_handle
from outboxd.publishers.filters import wants
from outboxd.publishers.http_answer import answered, failed
from outboxd.publishers.transfer import MAX_BODY_BYTES, Transfer
from outboxd.redact import clip, redact
from outboxd.tencent.course import Answer, course_of
from outboxd.tencent.requests import Call, errand_of
from outboxd.tencent.rest import HEADERS, Unreadable, read_answer, shown, url_of
from outboxd.tencent.usersig import Signatures

BACKUP_S = 60.0
"""For how long the backup host is asked first once the main one could not be reached."""
NONE_PERMANENT: frozenset[int] = frozenset()
"""No HTTP status says that an event can never be accepted: Tencent IM says that in the body of a 200."""
ERROR_CHARACTERS = 400


class _Progress:
    """An event on its way. failure: why the host that was tried first could not be reached. is_first: no call has been
    answered yet.
    """

    __slots__ = ("app", "call", "course", "failure", "host", "is_first", "signature")

    def __init__(self, app: TencentApp, course: Generator[Call, Answer, Outcome]) -> None:
        self.app = app
        self.course = course
        self.call = next(course)
        self.host = ""
        self.signature = ""
        self.failure: Retry | None = None
        self.is_first = True

    @property
    def secrets(self) -> tuple[str, str]:
        """What must not be seen in an error."""
        return self.app.secret_key, self.signature


class TencentImPublisher:
    """A Publisher; see api.py. Raises PublisherError where the settings cannot work.

    member_control: RoomUserKicked puts the user out of the group, too.
    """

    def __init__(self, settings: TencentIm, publish_timeout_s: float, member_control: bool) -> None:
        self._settings = settings
        self._member_control = member_control
        self._is_silent = wants(settings.silent_events) if settings.silent_events else lambda event_type: False
        self._signatures = Signatures()
        self._hosts = settings.hosts
        self._main_again_s = 0.0
        # Two hosts share the time that one would have for connecting, so that the rest is left for the answers.
        http = Http(name=settings.name, url=settings.hosts[0], connections=settings.connections)
        connecting_s = publish_timeout_s / len(settings.hosts)
        handles = [make_handle(http, connecting_s) for _ in range(settings.connections)]
        self._loop = CurlLoop(Transfer(handle, MAX_BODY_BYTES) for handle in handles)
        self._progress: dict[Transfer, _Progress] = {}
        self._outcomes: list[tuple[Event, Outcome]] = []

    @property
    def capacity(self) -> int:
        """The number of connections."""
        return self._loop.capacity

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Build the first call. It leaves in the next `collect`, which wait_on asks for at once."""
        if self._loop.is_full or len(self._outcomes) >= self._loop.capacity:
            return False
        begun = self._begin(event)
        if isinstance(begun, _Progress):
            transfer = self._loop.load(event, deadline_s, HEADERS, begun.call.body)
            self._progress[transfer] = begun
            self._address(transfer, begun, self._first_host())
        else:
            self._outcomes.append((event, begun))
        return True

    def collect(self) -> list[tuple[Event, Outcome]]:
        """Let curl work; what has ended leads to the event's next call or to its outcome."""
        for ended in self._loop.run():
            transfer = ended.transfer
            outcome = self._go_on(self._progress[transfer], ended)
            if outcome is not None:
                self._outcomes.append((transfer.event, outcome))
                del self._progress[transfer]
                self._loop.release(transfer)
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def wait_on(self) -> Waits:
        """What curl waits for; nothing, while there are outcomes to collect."""
        waits = self._loop.wait_on()
        return waits._replace(until_s=time.monotonic()) if self._outcomes else waits

    def close(self, deadline_s: float) -> None:
        """Drop every connection."""
        self._progress.clear()
        self._loop.close(deadline_s)

    def _begin(self, event: Event) -> _Progress | Outcome:
        if self._is_silent(event.event_type):
            return DELIVERED
        app = self._settings.apps.get(event.app_code)
        if app is None:
            error = f"no app for app_code {event.app_code!a}; add it to publishers.{self._settings.name}.apps"
            return Retry(MISCONFIGURED, error, counted=False)
        try:
            errand = errand_of(event, self._settings, app.identifier, self._member_control)
        except InvalidEvent as error:
            return Dead(INVALID, clip(redact(str(error)), ERROR_CHARACTERS))
        except NoProtobuf as error:
            return Retry(MISCONFIGURED, str(error), counted=False)
        return _Progress(app, course_of(errand, self._settings, app.identifier))

    def _first_host(self) -> str:
        return self._hosts[0 if time.monotonic() >= self._main_again_s else -1]

    def _address(self, transfer: Transfer, progress: _Progress, host: str) -> None:
        """Direct a loaded transfer to a host, signed."""
        now_s = time.time()
        if progress.call.is_resigned and progress.failure is None:
            self._signatures.drop(progress.app, progress.signature)
        progress.signature = self._signatures.get(progress.app, now_s)
        progress.host = host
        command, number = progress.call.command, random.getrandbits(32)
        transfer.handle.setopt(pycurl.URL, url_of(host, command, progress.app, progress.signature, number))

    def _go_on(self, progress: _Progress, ended: Ended) -> Outcome | None:
        """None: the next call is loaded."""
        transfer = ended.transfer
        answer = self._read(progress, ended)
        if isinstance(answer, Answer):
            progress.failure, progress.is_first = None, False
            try:
                progress.call = progress.course.send(answer)
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
            host = self._first_host()
        elif isinstance(answer, Retry) and self._is_elsewhere(progress, ended, answer):
            progress.failure = answer
            host = self._other_host(progress.host)
        else:
            return answer
        self._loop.reload(transfer, HEADERS, progress.call.body)
        self._address(transfer, progress, host)
        return None

    def _is_elsewhere(self, progress: _Progress, ended: Ended, outcome: Retry) -> bool:
        """Could the other host be reached, where this one was not? Then nothing was sent, so nothing is sent twice."""
        return (
            len(self._hosts) > 1
            and progress.failure is None
            and ended.failure is not None
            and not ended.failure.sent
            and outcome.reason in (CONNECT, DNS, TLS)
        )

    def _other_host(self, failed_host: str) -> str:
        if failed_host == self._hosts[0]:
            self._main_again_s = time.monotonic() + BACKUP_S
            return self._hosts[-1]
        self._main_again_s = 0.0
        return self._hosts[0]

    def _read(self, progress: _Progress, ended: Ended) -> Answer | Outcome:
        """What Tencent said, or what the lack of an answer means."""
        transfer, status, failure = ended
        if status == NOT_STARTED:
            return self._out_of_time(progress)
        if failure is None and 200 <= status < 300:
            try:
                return read_answer(bytes(transfer.answer), progress.secrets)
            except Unreadable as error:
                return self._named(progress, Retry(SERVER_ERROR, str(error)))
        body = shown(bytes(transfer.answer), progress.secrets)
        if failure is None:
            outcome = answered(status, body.encode(), transfer.headers, NONE_PERMANENT, time.time())
        elif failure.code == pycurl.E_WRITE_ERROR and transfer.read_bytes > MAX_BODY_BYTES:
            outcome = Retry(SERVER_ERROR, f"the answer is longer than {MAX_BODY_BYTES} bytes")
        else:
            outcome = failed(failure, body.encode(), transfer.headers, NONE_PERMANENT, time.time())
        if isinstance(outcome, Retry) and outcome.reason == MISCONFIGURED:
            outcome = Retry(MISCONFIGURED, f"HTTP {status}: {body} (check region or base_url)", counted=False)
        return self._named(progress, outcome)

    def _out_of_time(self, progress: _Progress) -> Outcome:
        """The deadline came before the call could be made."""
        if progress.failure is not None:
            return progress.failure
        if progress.is_first:
            return NOT_SENT
        return Retry(TIMEOUT, f"{progress.call.name}: no time was left for it, the calls before it took too long")

    def _named(self, progress: _Progress, outcome: Outcome) -> Outcome:
        """The same, saying which call it was and which host."""
        if not isinstance(outcome, Retry):
            return outcome
        text = f"{progress.call.name} at {progress.host.partition('://')[2]}: {outcome.error}"
        if progress.failure is not None:
            text = f"{progress.failure.error}; {text}"
        return msgspec.structs.replace(outcome, error=clip(redact(text, progress.secrets), ERROR_CHARACTERS))


def open_tencent_im(
    settings: TencentIm, lane: str, publish_timeout_s: float, member_control: bool = False
) -> TencentImPublisher:
    """The publisher. Raises PublisherError. lane: unused, since events carry theirs."""
    return TencentImPublisher(settings, publish_timeout_s, member_control)
