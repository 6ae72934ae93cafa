"""How a lane's publishers are put together: filters, rates, breakers."""

import pytest

from outboxd.config.schema import Breaker, Lane, Null, PublisherSettings
from outboxd.publishers.api import Publisher
from outboxd.publishers.filters import wants
from outboxd.publishers.null import NullPublisher
from outboxd.publishers.route import Item
from outboxd.relay.routes import open_fanout
from tests.services.publishing import make_event


@pytest.mark.parametrize(
    ("patterns", "matched", "not_matched"),
    [
        (["*"], ["RoomCreated", "", "üñí"], []),
        (["Room*"], ["Room", "RoomCreated"], ["roomCreated", "TheRoom", "Gift"]),
        (["Room*", "!RoomHeatChanged"], ["RoomCreated"], ["RoomHeatChanged", "Gift"]),
        (["!RoomHeatChanged", "Room*"], ["RoomCreated"], ["RoomHeatChanged"]),
        (["!Room*"], ["Gift"], ["RoomCreated"]),
        (["Gift?ent", "[AB]*"], ["GiftSent", "Apple", "Bee"], ["GiftSsent", "Cow"]),
        (["room.*.created"], ["room.a.b.created"], ["room.created"]),
    ],
)
def test_a_filter_takes_what_its_globs_say(patterns: list[str], matched: list[str], not_matched: list[str]) -> None:
    """Case matters, `!` wins wherever it stands, and exclusions alone mean all but those."""
    matches = wants(patterns)
    assert [event_type for event_type in matched if not matches(event_type)] == []
    assert [event_type for event_type in not_matched if matches(event_type)] == []


def test_every_publisher_gets_what_its_settings_say() -> None:
    """Name, filter, breaker and rate; the lane's time-out and longest pause."""
    lane = Lane(name="room_outbox", publish_timeout_s=2.5, max_backoff_s=77.0)
    settings = [
        Null(name="one", events=("Room*",), breaker=Breaker(distinct_events=2)),
        Null(name="two", max_rate=4.0, breaker=Breaker(enabled=False)),
    ]
    asked: list[tuple[PublisherSettings, str, float, bool]] = []

    def open_one(*arguments: object) -> Publisher:
        asked.append(arguments)  # type: ignore[arg-type]  # what is handed over is what is looked at
        return NullPublisher()

    fanout = open_fanout(lane, settings, open_one)
    assert asked == [(one, "room_outbox", 2.5, False) for one in settings]
    one, two = fanout.routes
    assert (one.name, two.name) == ("one", "two")
    assert (one.wants("RoomCreated"), one.wants("Gift"), two.wants("Gift")) == (True, False, True)
    assert (one.gate.closed, two.gate.closed) == (False, True)
    fanout.offer(Item(make_event(event_type="Gift"), 1, 1e9) for _ in range(3))
    fanout.pump(1000.0)
    assert 1 <= len(two.waiting) <= 2, "four a second"
