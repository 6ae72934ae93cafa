"""The `publishers` section: one table of keys per type."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from outboxd.config import http_keys, queue_keys, schema
from outboxd.config.document import UNUSABLE
from outboxd.config.keys import (
    BREAKER,
    Key,
    Section,
    entries,
    items,
    kind_of,
    matching,
    read_number,
    read_text,
    section,
    whole,
)
from outboxd.config.report import Bad, Place, suggest
from outboxd.event import NAME_PATTERN

_MOST_PATTERNS = 100
_PATTERN_CHARACTERS = 128
_TARGET = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)


def read_publishers(
    value: object, place: Place, redis: schema.Redis, given: Iterable[schema.PublisherSettings] = ()
) -> dict[str, schema.PublisherSettings]:
    """The publishers that can be used; the problems of the others are reported. redis: the server of those that name
    none. given: what other sections define.
    """
    publishers = {publisher.name: publisher for publisher in given}
    for name, item in entries(value, place):
        at = place.child(name)
        if re.fullmatch(NAME_PATTERN, name) is None:
            at.problem("a name is a-z, 0-9 and _, begins with a letter and has at most 24 characters, e.g. my_hook")
        if name in publishers:
            at.problem("is the name of the publisher that the section rocketmq defines, choose another")
        publisher = _publisher(name, item, at, redis)
        if publisher is not None:
            publishers[name] = publisher
    return publishers


def _publisher(name: str, value: object, place: Place, redis: schema.Redis) -> schema.PublisherSettings | None:
    kind = _type(value, place)
    if kind is None or not isinstance(value, dict):
        return None
    rest = {key: item for key, item in value.items() if key != "type"}
    read = section(rest, place, KEYS[kind], None)
    if kind == "http":
        http_keys.finish(read.values, place)
    elif kind == "tencent_im":
        queue_keys.finish_tencent(read.values, place)
    elif kind in ("redis_streams", "rocket_launch"):
        _give_redis(kind, read, redis)
    missing = [key for key in REQUIRED.get(kind, ()) if key not in read.values]
    for key in missing:
        if key not in read.bad:
            place.problem(f"has no {key}, which type {kind} needs")
    return None if missing else CLASSES[kind](name=name, **read.values)


def _give_redis(kind: str, read: Section, redis: schema.Redis) -> None:
    """A publisher without a url of its own uses redis.url; that there is none is no problem until a lane names it."""
    if kind == "rocket_launch":
        read.values["carrier"] = "redis"  # those over RocketMQ are defined by the section rocketmq
    read.values.setdefault("url", redis.url)


def _type(value: object, place: Place) -> str | None:
    if not isinstance(value, dict):
        if value is not UNUSABLE:
            place.problem(f"expected a mapping with a type, got {kind_of(value)}, write e.g. {{type: console}}")
        return None
    if "type" not in value:
        place.problem(f"has no type, give one of {', '.join(KEYS)}")
        return None
    kind, at = value["type"], place.child("type")
    if isinstance(kind, str) and kind in KEYS:
        return kind
    if kind is None:
        at.problem('null without quotes means nothing at all in YAML, write type: "null"')
    elif not isinstance(kind, str):
        at.problem(f"expected text, got {kind_of(kind)}, give one of {', '.join(KEYS)}")
    elif kind is not UNUSABLE:
        at.problem(f"unknown type {at.show(kind)}, {suggest(kind, KEYS)}")
    return None


def _read_events(value: object, place: Place) -> tuple[str, ...]:
    def read(item: object, at: Place) -> str:
        glob = read_text(item, at)
        if len(glob) > _PATTERN_CHARACTERS or glob == "!":
            raise Bad("is no pattern of an event type, write e.g. Room* or !RoomHeatChanged")
        return glob

    globs = items(value, place, read)
    if len(globs) > _MOST_PATTERNS:
        raise Bad(f"has {len(globs)} patterns, the most is {_MOST_PATTERNS}")
    if isinstance(value, list) and all(isinstance(item, str) and item.startswith("!") for item in value):
        raise Bad('matches no event at all, begin with "*"')
    return globs


def _read_breaker(value: object, place: Place) -> schema.Breaker:
    read = section(value, place, BREAKER, schema.Breaker())
    settings = schema.Breaker(**read.values)
    if settings.max_probe_s < settings.initial_probe_s and not read.bad & {"initial_probe_s", "max_probe_s"}:
        place.child("max_probe").problem("is below initial_probe, raise it")
    return settings


OF_EVERY: Mapping[str, Key] = {
    "events": Key(_read_events),
    "max_rate": Key(read_number, 0, 1_000_000),
    "breaker": Key(_read_breaker),
}
KEYS: Mapping[str, Mapping[str, Key]] = {
    "console": OF_EVERY,
    "http": {**http_keys.KEYS, **OF_EVERY},
    "null": OF_EVERY,
    "redis_streams": {**queue_keys.STREAMS, **OF_EVERY},
    "kafka": {**queue_keys.KAFKA, **OF_EVERY},
    "rocket_launch": {**queue_keys.LAUNCH, **OF_EVERY},
    "activity_grpc": {**queue_keys.GRPC, **OF_EVERY},
    "tencent_im": {**queue_keys.TENCENT, **OF_EVERY},
    "python": {
        "target": Key(matching(_TARGET, 'not of the form "package.module:name"')),
        "threads": whole(1, 256),
        **OF_EVERY,
    },
}
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "http": ("url",),
    "python": ("target",),
    "kafka": ("bootstrap_servers", "topic"),
    "activity_grpc": ("target",),
    "tencent_im": ("apps",),
}
CLASSES: Mapping[str, type[Any]] = {
    "console": schema.Console,
    "http": schema.Http,
    "null": schema.Null,
    "redis_streams": schema.RedisStreams,
    "kafka": schema.Kafka,
    "rocket_launch": schema.RocketLaunch,
    "activity_grpc": schema.ActivityGrpc,
    "tencent_im": schema.TencentIm,
    "python": schema.PythonCallable,
}
