"""Puts a lane's publishers together: each behind its filter, its breaker and its rate."""

from collections.abc import Callable, Iterable

from outboxd.config.schema import Lane, PublisherSettings
from outboxd.publishers.api import Publisher
from outboxd.publishers.fanout import Fanout
from outboxd.publishers.filters import wants
from outboxd.publishers.ordered_fanout import OrderedFanout
from outboxd.publishers.route import Route
from outboxd.relay.breaker import Breaker


def open_fanout(
    lane: Lane,
    publishers: Iterable[PublisherSettings],
    open_publisher: Callable[[PublisherSettings, str, float, bool], Publisher],
) -> Fanout:
    """The lane's publishers, opened. Raises PublisherError."""
    routes = [
        Route(
            settings.name,
            open_publisher(settings, lane.name, lane.publish_timeout_s, lane.is_ordered),
            Breaker(settings.breaker),
            wants(settings.events),
            settings.max_rate,
            lane.max_backoff_s,
            settings.name in lane.first,
        )
        for settings in publishers
    ]
    if lane.is_ordered:
        return OrderedFanout(routes, lane.publish_timeout_s, lane.blocks_on_dead)
    return Fanout(routes, lane.publish_timeout_s)
