"""`outboxd ring`: a lane's doorbell, by hand; and what `check` and `enqueue` want of it."""

import click

from outboxd.cli import show
from outboxd.cli.shared import Command, Options
from outboxd.config.schema import Lane
from outboxd.errors import ConfigError, OutboxdError, PublisherError
from outboxd.producer import channel
from outboxd.redact import clip, redact

TIMEOUT_S = 2.0


def ring_at(url: str, lane: str) -> int:
    """Ring; how many workers heard it. Raises PublisherError when Redis does not take it."""
    from redis.exceptions import RedisError

    from outboxd.clients.redis import connect

    redis = connect(url, TIMEOUT_S)
    try:
        heard = redis.publish(channel(lane), "1")
    except (RedisError, OSError) as error:
        raise PublisherError(_why(error, "the user of redis.url", "+publish", lane)) from error
    finally:
        redis.close()
    return int(str(heard))


def listen_at(url: str, lanes: list[Lane]) -> str:
    """For `outboxd check`: may each lane's workers listen? Raises PublisherError."""
    from redis.exceptions import RedisError

    from outboxd.errors import SubscriptionError
    from outboxd.relay.doorbell import subscribed

    for lane in lanes:
        try:
            with subscribed(url, lane.name):
                continue
        except (RedisError, OSError, SubscriptionError) as error:
            why = _why(error, "the daemon's user", "+subscribe +ping", lane.name)
            raise PublisherError(f"{why}: until then events wait for the next look, up to poll_interval") from error
    return f"redis answers, and lets us listen to {', '.join(channel(lane.name) for lane in lanes) or 'no lane'}"


def _why(error: Exception, user: str, commands: str, lane: str) -> str:
    text = clip(redact(str(error) or type(error).__name__), 300)
    if "NOPERM" in text or "permission" in text:
        text += f"; {user} needs {commands} &{channel(lane)}"
    return f"redis.url: {text}"


@click.command(cls=Command)
@click.argument("lane_name", metavar="LANE")
@click.pass_obj
def ring(options: Options, lane_name: str) -> None:
    """Ring a lane's doorbell: its idle workers, on all nodes, look at once instead of at their next poll."""
    lane = options.lane(lane_name)
    url = options.config.redis.url
    if url is None:
        raise ConfigError(["redis.url: none is set, so nobody listens: set it, and give producers the same"])
    try:
        heard = ring_at(url, lane.name)
    except PublisherError as error:
        raise OutboxdError(f"{error}: {lane.name} was not rung; its workers look every poll_interval") from error
    show.line(f"rang {lane.name}: heard by {heard} workers")
