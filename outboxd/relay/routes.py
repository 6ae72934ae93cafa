"""Puts a lane's publishers together: each behind its filter, its breaker and its rate."""

from collections.abc import Callable, Iterable

from outboxd.config.schema import Lane, PublisherSettings
from outboxd.publishers.api import Publisher
from outboxd.publishers.fanout import Fanout
from outboxd.publishers.filters import wants
from outboxd.publishers.route import Route
from outboxd.relay.breaker import Breaker


def open_fanout(
    lane: Lane,
    publishers: Iterable[PublisherSettings],
    open_publisher: Callable[[PublisherSettings, str, float], Publisher],
) -> Fanout:
    """The lane's publishers, opened. Raises PublisherError."""
    routes = [
        Route(
            settings.name,
            open_publisher(settings, lane.name, lane.publish_timeout_s),
            Breaker(settings.breaker),
            wants(settings.events),
            settings.max_rate,
            lane.max_backoff_s,
            settings.name in lane.first,
        )
        for settings in publishers
    ]
    return Fanout(routes, lane.publish_timeout_s)
