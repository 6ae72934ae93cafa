"""The bridge's roles, put together: what it reads, what it remembers, what it publishes to."""

import contextlib
import time
from collections.abc import Iterator

from outboxd import publishers
from outboxd.bridge.memory import Memory, RedisMemory, TableMemory
from outboxd.config.schema import Config, RedisStreams, RocketMq, TencentIm
from outboxd.errors import PublisherError, StoreConflict, StoreError, StoreRefused, StoreUnavailable
from outboxd.publishers.fanout import Fanout
from outboxd.publishers.filters import wants
from outboxd.publishers.route import Route
from outboxd.redact import clip, redact
from outboxd.relay.breaker import Breaker
from outboxd.store import connect
from outboxd.supervisor.spawn import ChildContext, Role
from outboxd.vitals import BRIDGE

_LOOK = "SELECT 1 FROM outboxd_inbox WHERE consumer = ''"
LOOK_S = 5.0
LONGEST_PAUSE_S = 60.0
"""That Tencent may ask for."""
HEARTBEAT_MARGIN_S = 20.0
"""A queue's long poll may take so long, and nothing hangs."""


def bridge_roles(config: Config) -> list[Role]:
    """One for each of `bridge.concurrency`; none where the bridge is not enabled."""
    if not config.bridge.enabled:
        return []
    return [_role(config, number) for number in range(1, config.bridge.concurrency + 1)]


def _role(config: Config, number: int) -> Role:
    bridge = config.bridge

    def run(context: ChildContext) -> int:
        from outboxd.bridge import open_subscription
        from outboxd.bridge.role import run_bridge

        return run_bridge(
            context,
            bridge,
            lambda: open_subscription(bridge, context.worker_id),
            lambda: _memory(config, context),
            lambda: _fanout(config),
        )

    longest_s = max(bridge.publish_timeout_s, config.database.statement_timeout_s, config.database.connect_timeout_s)
    return Role(f"{BRIDGE}-{number:02d}", run, longest_s + HEARTBEAT_MARGIN_S)


def _memory(config: Config, context: ChildContext) -> Memory:
    if config.redis.url is not None:
        return RedisMemory(config.redis.url, config.bridge.group)
    beat = context.slot.beat
    return TableMemory(lambda: connect(config.database, lambda: beat(time.monotonic())), config.bridge.group)


def _fanout(config: Config) -> Fanout:
    from outboxd.publishers.tencent_im import open_tencent_im

    settings, timeout_s = config.publishers[config.bridge.publisher], config.bridge.publish_timeout_s
    assert isinstance(settings, TencentIm)
    publisher = open_tencent_im(settings, BRIDGE, timeout_s, member_control=True)
    breaker, chosen = Breaker(settings.breaker), wants(settings.events)
    return Fanout([Route(settings.name, publisher, breaker, chosen, settings.max_rate, LONGEST_PAUSE_S)], timeout_s)


def refusals(config: Config) -> Iterator[str]:
    """What keeps the bridge from working until a person has acted."""
    bridge = config.bridge
    if not bridge.enabled:
        return
    try:
        from outboxd.bridge import open_subscription

        open_subscription(bridge, "preflight").close()
    except PublisherError as error:
        yield f"bridge: {error}"
    if config.redis.url is None:
        yield from _without_inbox(config)


def _without_inbox(config: Config) -> Iterator[str]:
    from outboxd.store.migrate import REMEDY

    try:
        connection = connect(config.database)
    except (StoreUnavailable, StoreRefused):  # the look at the lanes tells of it
        return
    try:
        connection.query(_LOOK)
    except (StoreUnavailable, StoreConflict):
        return
    except StoreRefused as error:
        advice = "" if REMEDY in str(error) else f": {REMEDY}"
        yield f"bridge: its memory of what is done is the table outboxd_inbox ({error}){advice}"
    finally:
        connection.close()


def look(config: Config) -> str:
    """What the bridge is set up to do, for `outboxd check`: queue and memory are asked, nothing is received. Raises
    PublisherError.
    """
    for refusal in refusals(config):
        raise PublisherError(refusal.removeprefix("bridge: "))
    bridge = config.bridge
    if bridge.source == "redis_streams":
        found = _stream(config)
    else:
        assert bridge.server is not None  # with that source it is
        found = publishers.check(RocketMq(name="bridge", server=bridge.server, topic=bridge.topic), LOOK_S)
    return f"reads as {bridge.group}: {found}; remembers in {_remembers(config)}"


def _stream(config: Config) -> str:
    bridge = config.bridge
    found = publishers.check(RedisStreams(name="bridge", url=bridge.url, stream=bridge.stream), LOOK_S)
    lanes = [lane for lane in config.lanes.values() if lane.enabled]
    written = [config.publishers[name] for lane in lanes for name in lane.publishers]
    if not any(
        isinstance(settings, RedisStreams) and (settings.url, settings.stream) == (bridge.url, bridge.stream)
        for settings in written
    ):
        found += ", but no enabled lane of this node writes it"
    return found


def _remembers(config: Config) -> str:
    """In which memory; it answers. Raises PublisherError."""
    if config.redis.url is None:
        try:
            with contextlib.closing(connect(config.database)) as connection:
                connection.query(_LOOK)
        except StoreError as error:
            raise PublisherError(f"its memory of what is done, the table outboxd_inbox: {error}") from error
        return "outboxd_inbox"
    from redis.exceptions import RedisError

    from outboxd.clients.redis import connect as connect_redis

    redis = connect_redis(config.redis.url, LOOK_S)
    try:
        redis.ping()
    except (RedisError, OSError) as error:
        reason = f"{redact(config.redis.url)}: {clip(redact(str(error)), 300)}"
        raise PublisherError(f"its memory of what is done, in redis: {reason}") from error
    finally:
        redis.close()
    return "redis"
