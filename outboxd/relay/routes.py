"""Puts a lane's publishers together: each behind its filter, its breaker and its rate."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from outboxd.config.schema import Lane, PublisherSettings
from outboxd.publishers.api import Publisher
from outboxd.publishers.fanout import Fanout
from outboxd.publishers.route import Route
from outboxd.relay.breaker import Breaker

REMEMBERED_TYPES = 4096


def wants(patterns: Sequence[str]) -> Callable[[str], bool]:
    """A filter over event types: globs, case-sensitive; `!` excludes and wins. Only exclusions mean: all but those."""
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    included = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]

    @lru_cache(maxsize=REMEMBERED_TYPES)
    def matches(event_type: str) -> bool:
        return _any(event_type, included) and not _any(event_type, excluded)

    return matches


def _any(event_type: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(event_type, pattern) for pattern in patterns)


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
        )
        for settings in publishers
    ]
    return Fanout(routes, lane.publish_timeout_s)
