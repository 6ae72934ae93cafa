"""Fixtures: a Tencent IM that answers, and publishers that send to it."""

import time
from collections.abc import Iterator

import pytest

from outboxd.publishers.api import Publisher
from outboxd.publishers.tencent_im import open_tencent_im
from tests.services.tencent import TencentServer
from tests.services.tencent_rooms import KEYS, PUBLISH_TIMEOUT_S, OpensIm, im_settings


@pytest.fixture
def server() -> Iterator[TencentServer]:
    """A new one for each test; at the end nothing that came in was against the protocol."""
    with TencentServer(KEYS) as server:
        yield server
        assert server.mistakes == []


@pytest.fixture
def opens_im(server: TencentServer) -> Iterator[OpensIm]:
    """Publishers to the server, unless `hosts` are given."""
    made: list[Publisher] = []

    def make(
        member_control: bool = False, publish_timeout_s: float = PUBLISH_TIMEOUT_S, **changes: object
    ) -> Publisher:
        settings = im_settings(server.url, **changes)
        made.append(open_tencent_im(settings, "room_outbox", publish_timeout_s, member_control))
        return made[-1]

    yield make
    for publisher in made:
        publisher.close(time.monotonic() + 1)
