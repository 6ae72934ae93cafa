"""Events to publish, and a loop that drives a publisher as the worker does: by what it says it waits for."""

import itertools
import selectors
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from outboxd.event import Event, Outcome
from outboxd.publishers.api import Publisher

PUBLISH_TIMEOUT_S = 2.0

_numbers = itertools.count(1)


class Opens(Protocol):
    """Makes HTTP publishers that are closed at the end of the test. changes: of the settings, `url` too."""

    def __call__(self, publish_timeout_s: float = PUBLISH_TIMEOUT_S, **changes: object) -> Publisher: ...


def make_event(**columns: object) -> Event:
    """An event with what matters to the test; each has an id of its own."""
    number = next(_numbers)
    usual: dict[str, object] = {
        "id": number,
        "event_id": f"event-{number}",
        "event_type": "RoomCreated",
        "room_id": "room-1",
        "app_code": "app",
        "envelope": b'{"a": 1}',
        "content_type": "application/json",
        "headers": None,
        "retry_count": 0,
        "created_at_ms": 1_700_000_000_123,
        "published_to": "",
        "last_error": None,
        "lane": "room_outbox",
    }
    return Event(**{**usual, **columns})  # type: ignore[arg-type]


def step(publisher: Publisher, until_s: float) -> list[tuple[Event, Outcome]]:
    """Wait for what the publisher waits for, at the longest until until_s; then collect."""
    waits = publisher.wait_on()
    wake_s = until_s if waits.until_s is None else min(until_s, waits.until_s)
    with selectors.DefaultSelector() as selector:
        for descriptors, mask in ((waits.read, selectors.EVENT_READ), (waits.write, selectors.EVENT_WRITE)):
            for descriptor in descriptors:
                selector.register(descriptor, mask)
        selector.select(max(0.0, wake_s - time.monotonic()))
    return publisher.collect()


def collect(publisher: Publisher, count: int, timeout_s: float = 10) -> list[tuple[Event, Outcome]]:
    """So many outcomes; fails if they are not there in time."""
    outcomes: list[tuple[Event, Outcome]] = []
    until_s = time.monotonic() + timeout_s
    while len(outcomes) < count:
        assert time.monotonic() < until_s, f"{len(outcomes)} of {count} outcomes after {timeout_s:g} s"
        outcomes += step(publisher, until_s)
    return outcomes


def publish_all(publisher: Publisher, events: Iterable[Event], timeout_s: float = 30) -> list[tuple[Event, Outcome]]:
    """Every event's outcome, with the publisher kept full."""
    waiting = list(events)[::-1]
    count = len(waiting)
    outcomes: list[tuple[Event, Outcome]] = []
    until_s = time.monotonic() + timeout_s
    while len(outcomes) < count:
        assert time.monotonic() < until_s, f"{len(outcomes)} of {count} outcomes after {timeout_s:g} s"
        while waiting and publisher.submit(waiting[-1], time.monotonic() + 5):
            waiting.pop()
        outcomes += step(publisher, until_s)
    return outcomes


def publish(publisher: Publisher, event: Event, timeout_s: float = 2) -> Outcome:
    """One event's outcome, with so long for the publish."""
    assert publisher.submit(event, time.monotonic() + timeout_s)
    ((came_back, outcome),) = collect(publisher, 1, timeout_s + 1)
    assert came_back is event
    return outcome


def seconds(action: Callable[[], object]) -> float:
    """How long it took."""
    start_s = time.monotonic()
    action()
    return time.monotonic() - start_s
