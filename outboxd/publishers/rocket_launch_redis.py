"""Schedules wake-ups of rockets in a Redis sorted set: the score is the time, the member the wake-up itself.

The same wake-up is the same member, so that an event published twice wakes once; ZADD NX leaves alone what is there,
since its score may be the lease of a consumer that has it in hand (outboxd.wakeups.redis).
Imported only in the process that publishes: it loads redis.
"""

from collections.abc import Sequence

from redis.exceptions import RedisError

from outboxd.clients.redis import connect
from outboxd.config.schema import RocketLaunch
from outboxd.envelope import NoProtobuf
from outboxd.errors import PublisherError
from outboxd.event import INVALID, MISCONFIGURED, Dead, Event, Outcome, Retry
from outboxd.message import InvalidEvent
from outboxd.publishers.courier import Courier
from outboxd.publishers.redis_pipe import Command, Pipe, text_of
from outboxd.redact import redact
from outboxd.wakeups import encode, wakeup_of

CAPACITY = 64


def open_redis_launch(settings: RocketLaunch, publish_timeout_s: float) -> Courier:
    """The publisher. Raises PublisherError."""
    pipe = Pipe(settings.url or "", publish_timeout_s)

    def send(events: Sequence[Event], deadline_s: float) -> Sequence[Outcome]:
        outcomes: dict[int, Outcome] = {}
        commands: dict[int, Command] = {}
        for place, event in enumerate(events):
            try:
                wakeup = wakeup_of(event)
            except InvalidEvent as error:
                outcomes[place] = Dead(INVALID, str(error))
            except NoProtobuf as error:
                outcomes[place] = Retry(MISCONFIGURED, str(error), counted=False)
            else:
                commands[place] = ("ZADD", settings.key, "NX", str(wakeup.launch_at_ms), encode(wakeup))
        if commands:
            outcomes |= zip(commands, pipe.exchange(tuple(commands.values()), deadline_s), strict=True)
        return [outcomes[place] for place in range(len(events))]

    return Courier(settings.name, CAPACITY, send, pipe.close)


def try_redis_launch(settings: RocketLaunch, timeout_s: float) -> str:
    """Log in, and look at the key; what was found. Raises PublisherError."""
    redis = connect(settings.url or "", timeout_s)
    try:
        kind = redis.type(settings.key)
        waiting = redis.zcard(settings.key) if kind == b"zset" else 0
    except (RedisError, OSError) as error:
        raise PublisherError(f"{redact(settings.url or '')}: {text_of(error)}") from error
    finally:
        redis.close()
    if kind not in (b"zset", b"none"):
        found = kind.decode() if isinstance(kind, bytes) else kind
        raise PublisherError(f"{settings.key} is a {found}, not a sorted set: name another key in key")
    return f"reachable, {waiting} wake-ups wait in {settings.key}"
