"""POSTs events to one URL, many at a time over kept-alive connections.

Imported only in the process that publishes: it loads pycurl.
"""

import time

import pycurl

from outboxd.config.schema import Http
from outboxd.event import DELIVERED, INVALID, Dead, Event, Outcome
from outboxd.message import InvalidEvent
from outboxd.publishers.api import Waits
from outboxd.publishers.curl_loop import NOT_SENT, NOT_STARTED, CurlLoop, Ended
from outboxd.publishers.curl_options import make_handle
from outboxd.publishers.http_answer import answered, failed
from outboxd.publishers.http_headers import Requests
from outboxd.publishers.transfer import MAX_BODY_BYTES, Transfer


class HttpPublisher:
    """A Publisher; see api.py. Raises PublisherError where the settings cannot work."""

    def __init__(self, settings: Http, lane: str, publish_timeout_s: float) -> None:
        self._requests = Requests(settings, lane)
        self._permanent = settings.permanent_statuses
        handles = [make_handle(settings, publish_timeout_s) for _ in range(settings.connections)]
        self._loop = CurlLoop(Transfer(handle) for handle in handles)
        self._outcomes: list[tuple[Event, Outcome]] = []

    @property
    def capacity(self) -> int:
        """The number of connections."""
        return self._loop.capacity

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Build the request. It leaves in the next `collect`, which wait_on asks for at once."""
        if self._loop.is_full or len(self._outcomes) >= self._loop.capacity:
            return False
        try:
            headers, body = self._requests.build(event)
        except InvalidEvent as error:
            self._outcomes.append((event, Dead(INVALID, str(error))))
            return True
        self._loop.load(event, deadline_s, headers, body)
        return True

    def collect(self) -> list[tuple[Event, Outcome]]:
        """Let curl work, and turn what it has finished into outcomes."""
        for ended in self._loop.run():
            self._outcomes.append((ended.transfer.event, self._outcome_of(ended)))
            self._loop.release(ended.transfer)
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def wait_on(self) -> Waits:
        """What curl waits for; nothing, while there are outcomes to collect."""
        waits = self._loop.wait_on()
        return waits._replace(until_s=time.monotonic()) if self._outcomes else waits

    def close(self, deadline_s: float) -> None:
        """Drop every connection."""
        self._loop.close(deadline_s)

    def _outcome_of(self, ended: Ended) -> Outcome:
        transfer, status, failure = ended
        if failure is None and 200 <= status < 300:
            return DELIVERED
        if status == NOT_STARTED:
            return NOT_SENT
        body, headers = bytes(transfer.answer), transfer.headers
        if failure is None or (failure.code == pycurl.E_WRITE_ERROR and transfer.read_bytes > MAX_BODY_BYTES):
            return answered(status, body, headers, self._permanent, time.time())
        return failed(failure, body, headers, self._permanent, time.time())
