"""The sections `rocketmq` and `bridge`: one server, and what is done with it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outboxd.config import schema
from outboxd.config.keys import Key, boolean, matching, one_of, read_text, section, whole
from outboxd.config.queue_keys import REDIS_KEY, ROCKETMQ, TOPIC, one_secret
from outboxd.config.report import Place

QUEUE, LAUNCH = "rocketmq", "rocket_launch"
"""Names of the publishers that the section `rocketmq` defines."""


@dataclass(frozen=True, slots=True)
class RocketMqSection:
    """What the section says. publishers: those that it enables. outbox: its part `room_outbox`."""

    server: schema.RocketMqServer
    publishers: tuple[schema.PublisherSettings, ...]
    enabled: bool
    outbox: Mapping[str, Any]


def read_rocketmq(value: object, place: Place) -> RocketMqSection:
    """The section, with the publishers that it enables."""
    read = section(value, place, SECTION, schema.RocketMqServer()).values
    outbox, launch = (read.pop(name, {}) for name in ("room_outbox", "rocket_launch"))
    enabled = read.pop("enabled", False)
    for name in OLDER:
        read.pop(name, None)
    for name in ("access_key", "secret_key"):
        one_secret(read, name, place)
    if bool(read.get("access_key")) != bool(read.get("secret_key")):
        place.problem("has one of access_key and secret_key, give both or neither")
    server = schema.RocketMqServer(**read)
    publishers: list[schema.PublisherSettings] = []
    if launch.get("enabled"):
        known = {"topic": launch["topic"]} if "topic" in launch else {}
        publishers.append(schema.RocketLaunch(name=LAUNCH, carrier="rocketmq", server=server, **known))
    if outbox.get("enabled"):
        known = {"topic": outbox["topic"]} if "topic" in outbox else {}
        publishers.append(schema.RocketMq(name=QUEUE, server=server, **known))
    if not enabled:
        for name, inner in (("room_outbox", outbox), ("rocket_launch", launch)):
            if inner.get("enabled"):
                place.child(name).warn("has no effect, since rocketmq.enabled is false")
        publishers = []
    return RocketMqSection(server, tuple(publishers), enabled, outbox)


def _explain_older(value: object, place: Place) -> None:
    """A key of clients before RocketMQ 5: accepted, so that an older file loads, and explained."""
    if value:
        place.warn(
            "is not used: the RocketMQ 5 client speaks to the proxy, whose address belongs into rocketmq.endpoints"
        )


def _explain_producer_group(value: object, place: Place) -> None:
    if value:
        place.warn("is not used: producers of RocketMQ 5 are in no group")


def read_bridge(value: object, place: Place, mq: RocketMqSection, redis: schema.Redis) -> schema.Bridge:
    """The section, completed from `rocketmq.room_outbox`, whose key switches the bridge on, too."""
    read = section(value, place, BRIDGE, schema.Bridge()).values
    outbox = mq.outbox
    if outbox.get("tencent_im_consumer_enabled") and mq.enabled:
        read["enabled"] = True
        for ours, theirs in (
            ("group", "tencent_im_consumer_group"),
            ("max_reconsume_times", "consumer_max_reconsume_times"),
        ):
            if theirs in outbox:
                read.setdefault(ours, outbox[theirs])
    if "topic" in outbox:
        read["topic"] = outbox["topic"]
    bridge = schema.Bridge(**read, server=mq.server, url=redis.url)
    if bridge.enabled and bridge.source == "rocketmq" and not mq.enabled:
        place.child("source").problem("rocketmq is not enabled: set rocketmq.enabled, or source: redis_streams")
    if bridge.enabled and bridge.source == "redis_streams" and redis.url is None:
        place.child("source").problem("redis_streams needs redis.url")
    return bridge


GROUP = Key(matching(re.compile(r"[!-~]{1,40}"), "no name of a group: visible ASCII, at most 40 characters"))
"""It is a key in tables and queues."""
OUTBOX: Mapping[str, Key] = {
    "enabled": boolean(),
    "topic": Key(matching(TOPIC, "no name of a topic: letters, digits, '_', '-' and '%'")),
    "producer_group": Key(_explain_producer_group),
    "tencent_im_consumer_enabled": boolean(),
    "tencent_im_consumer_group": GROUP,
    "consumer_max_reconsume_times": whole(1, 1000),
}
WAKEUPS: Mapping[str, Key] = {
    "enabled": boolean(),
    "topic": Key(matching(TOPIC, "no name of a topic: letters, digits, '_', '-' and '%'")),
    "producer_group": Key(_explain_producer_group),
    "consumer_group": Key(read_text),
    "consumer_max_reconsume_times": whole(1, 1000),
}
OLDER = ("name_servers", "name_server_domain")
SECTION: Mapping[str, Key] = {
    **ROCKETMQ,
    "room_outbox": Key(lambda value, place: section(value, place, OUTBOX, None).values),
    "rocket_launch": Key(lambda value, place: section(value, place, WAKEUPS, None).values),
    **dict.fromkeys(OLDER, Key(_explain_older)),
}
BRIDGE: Mapping[str, Key] = {
    "enabled": boolean(),
    "source": Key(one_of(schema.BRIDGE_SOURCES)),
    "stream": Key(matching(REDIS_KEY, "no name of a stream: visible ASCII, at most 255 characters")),
    "group": GROUP,
    "publisher": Key(read_text),
    "concurrency": whole(1, 64),
    "max_reconsume_times": whole(1, 1000),
}
