"""Schedules a delayed wake-up for every rocket that is ignited; the carrier brings it to the room service in time."""

from outboxd.config.schema import RocketLaunch
from outboxd.publishers.api import Publisher

# The carriers' client libraries are loaded where they are used.
# ruff: noqa: PLC0415


def open_rocket_launch(settings: RocketLaunch, publish_timeout_s: float) -> Publisher:
    """The publisher. Raises PublisherError."""
    if settings.carrier == "rocketmq":
        from outboxd.publishers.rocket_launch_rocketmq import open_rocketmq_launch

        return open_rocketmq_launch(settings, publish_timeout_s)
    from outboxd.publishers.rocket_launch_redis import open_redis_launch

    return open_redis_launch(settings, publish_timeout_s)


def try_rocket_launch(settings: RocketLaunch, timeout_s: float) -> str:
    """One line on the carrier. Raises PublisherError."""
    if settings.carrier == "rocketmq":
        from outboxd.publishers.rocket_launch_rocketmq import try_rocketmq_launch

        return try_rocketmq_launch(settings, timeout_s)
    from outboxd.publishers.rocket_launch_redis import try_redis_launch

    return try_redis_launch(settings, timeout_s)
