"""Fixtures: a receiver, and HTTP publishers that send to it."""

import time
from collections.abc import Iterator

import pytest

from outboxd.config.schema import Http
from outboxd.publishers.http import HttpPublisher
from tests.services.publishing import PUBLISH_TIMEOUT_S, Opens
from tests.services.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A new one for each test."""
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def opens(receiver: Receiver) -> Iterator[Opens]:
    """Publishers to the receiver, four connections each."""
    made: list[HttpPublisher] = []

    def make(publish_timeout_s: float = PUBLISH_TIMEOUT_S, **changes: object) -> HttpPublisher:
        settings = Http(**{"name": "web", "url": receiver.url, "connections": 4, **changes})  # type: ignore[arg-type]
        made.append(HttpPublisher(settings, "room_outbox", publish_timeout_s))
        return made[-1]

    yield make
    for publisher in made:
        publisher.close(time.monotonic() + 1)
