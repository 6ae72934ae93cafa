"""The `outbox_worker` and `lanes` sections: settings of all lanes, overridden by each, and the rules between them."""

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from outboxd.config import schema
from outboxd.config.document import UNUSABLE
from outboxd.config.durations import format_duration
from outboxd.config.keys import (
    Key,
    Section,
    boolean,
    duration,
    entries,
    items,
    kind_of,
    one_of,
    read_text,
    section,
    size,
    whole,
)
from outboxd.config.queues import LAUNCH
from outboxd.config.report import Bad, Place, suggest

QUEUE_TYPES = ("rocketmq", "redis_streams", "kafka")
"""Types of publishers that may be a lane's `mq`."""
_DEFAULTS = schema.Lane(name="")
_LANE_NAME = re.compile(r"[A-Za-z0-9_]{1,48}")
_OWN_TABLES = "outboxd_"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def read_lanes(worker: object, lanes: object, root: Place, publishers: Mapping[str, object]) -> dict[str, schema.Lane]:
    """Every lane, enabled or not. publishers: those that a lane may name, and their types."""
    at_worker, at_lanes = root.child("outbox_worker"), root.child("lanes")
    common = section(worker, at_worker, KEYS, _DEFAULTS)
    _check(common, Section(), at_worker, publishers)
    named = dict(entries(lanes, at_lanes)) or {"room_outbox": {}, "room_robot_outbox": {"enabled": False}}
    result = {name: _lane(name, value, common, at_lanes.child(name), publishers) for name, value in named.items()}
    if common.values.get("on_dead") == schema.BLOCK and not any(lane.is_ordered for lane in result.values()):
        at_worker.child("on_dead").warn("block does nothing, since no lane is ordered: set ordering: room, too")
    if not any(lane.enabled for lane in result.values()):
        at_lanes.warn("no lane is enabled, so nothing is relayed")
    return result


def _lane(name: str, value: object, common: Section, place: Place, publishers: Mapping[str, object]) -> schema.Lane:
    if _LANE_NAME.fullmatch(name) is None:
        place.problem("a lane is named like its table: letters, digits and _, at most 48 of them")
    elif name.lower().startswith(_OWN_TABLES):
        place.problem(f"tables whose names begin with {_OWN_TABLES} belong to outboxd itself, rename the table")
    own = section(value, place, KEYS, dataclasses.replace(_DEFAULTS, **common.values))
    _check(own, common, place, publishers)
    settings = {**common.values, **own.values}
    if "lease_s" not in settings:
        settings["lease_s"] = max(_DEFAULTS.lease_s, schema.least_lease_s(_setting(settings, "publish_timeout_s")))
    lane = schema.Lane(name=name, first=_first(name, settings.get("direct", ()), publishers), **settings)
    if own.values.get("on_dead") == schema.BLOCK and not lane.is_ordered and "ordering" not in own.bad | common.bad:
        place.child("on_dead").warn("block does nothing, since the lane is not ordered: set ordering: room, too")
    _check_cleanup(own, common, lane, place)
    if lane.enabled and lane.publish_mode != "mq" and not lane.direct and "direct" not in own.bad | common.bad:
        known = f"known here: {', '.join(publishers)}" if publishers else "define one under publishers first"
        place.problem(f"names no publisher, list some in direct, here or in outbox_worker.direct ({known})")
    if lane.enabled and not own.bad | common.bad:
        _check_publishers(lane, place, publishers)
    return lane


def _first(name: str, direct: Sequence[str], publishers: Mapping[str, object]) -> tuple[str, ...]:
    """Those that schedule wake-ups. What the section rocketmq switches on is for the lane of facts."""
    switched_on = [LAUNCH] if name == "room_outbox" and LAUNCH in publishers else []
    return tuple(dict.fromkeys([*switched_on, *(name for name in direct if publishers.get(name) == LAUNCH)]))


def _check_publishers(lane: schema.Lane, place: Place, publishers: Mapping[str, object]) -> None:
    if lane.publish_mode != "direct" and publishers.get(lane.mq) not in QUEUE_TYPES:
        what = "is no queue's publisher" if lane.mq in publishers else "does not exist"
        place.child("publish_mode").problem(
            f"{lane.publish_mode} needs an enabled queue publisher, and {lane.mq}, which mq names, {what}: set "
            "rocketmq.enabled and rocketmq.room_outbox.enabled, or name in mq a publisher of type redis_streams or "
            "kafka, or use direct"
        )
    if len(lane.publishers) > schema.MAX_DIRECT:
        place.problem(f"has {len(lane.publishers)} publishers in all, the most is {schema.MAX_DIRECT}")


def _check(own: Section, common: Section, place: Place, publishers: Mapping[str, object]) -> None:
    """The rules between keys, for what is given at this place; what is inherited was checked where it stands."""
    settings = {**common.values, **own.values}
    bad = own.bad | common.bad
    for index, name in enumerate(own.values.get("direct", ())):
        at = place.child("direct").item(index)
        if name not in publishers:
            at.problem(f"unknown publisher {at.show(name)}, {suggest(name, publishers)}")
    _check_backoff(own, settings, bad, place)
    _check_workers(own, settings, bad, place)
    if own.values.keys() & {"lease_s", "publish_timeout_s"} and not bad & {"lease_s", "publish_timeout_s"}:
        least_s = schema.least_lease_s(_setting(settings, "publish_timeout_s"))
        if settings.get("lease_s", least_s) < least_s:
            place.child("lease").problem(
                f"{format_duration(settings['lease_s'])} is too short for publish_timeout "
                f"{format_duration(_setting(settings, 'publish_timeout_s'))}, give at least "
                f"{format_duration(least_s)} (3 x publish_timeout + 2s)"
            )


def _check_backoff(own: Section, settings: Mapping[str, Any], bad: Collection[str], place: Place) -> None:
    keys = {"initial_backoff_s", "max_backoff_s"}
    if not own.values.keys() & keys or keys & set(bad):
        return
    initial_s, most_s = (_setting(settings, key) for key in ("initial_backoff_s", "max_backoff_s"))
    if most_s < initial_s:
        place.child("max_backoff").warn(
            f"{format_duration(most_s)} is below initial_backoff, raising it to {format_duration(initial_s)}"
        )
        own.values["max_backoff_s"] = initial_s


def _check_workers(own: Section, settings: Mapping[str, Any], bad: Collection[str], place: Place) -> None:
    keys = {"ordering", "concurrency"}
    if not own.values.keys() & keys or keys & set(bad):
        return
    count = _setting(settings, "concurrency")
    if _setting(settings, "ordering") == schema.BY_ROOM and count > schema.PARTITIONS:
        place.child("concurrency").problem(
            f"{count} workers are more than an ordered lane can use, give at most {schema.PARTITIONS}: its rooms are "
            "leased in so many parts"
        )


def _check_cleanup(own: Section, common: Section, lane: schema.Lane, place: Place) -> None:
    keys = {"cleanup_interval_s", "cleanup_active_after_s", "cleanup_terminal_after_s"}
    if not own.values.keys() & keys or keys & (own.bad | common.bad) or lane.cleans_up:
        return
    if lane.cleanup_interval_s > 0:
        place.child("cleanup_interval").warn(
            "deletes nothing, since neither cleanup_active_after nor cleanup_terminal_after is above zero"
        )
    elif max(lane.cleanup_active_after_s, lane.cleanup_terminal_after_s) > 0:
        place.warn("deletes nothing old, since cleanup_interval is not above zero: set it, e.g. to 1m")


def _setting(settings: Mapping[str, Any], name: str) -> Any:
    return settings.get(name, getattr(_DEFAULTS, name))


def _read_direct(value: object, place: Place) -> tuple[str, ...]:
    names = items(value, place, read_text)
    if len(names) > schema.MAX_DIRECT:
        raise Bad(f"names {len(names)} publishers, the most is {schema.MAX_DIRECT}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Bad(f"names {place.show(twice[0])} twice, keep one")
    return names


def _read_columns(value: object, place: Place) -> dict[str, str]:
    if value is not None and not isinstance(value, dict):
        raise Bad(f"expected a mapping (our column: the table's column), got {kind_of(value)}")
    columns: dict[str, str] = {}
    for ours, item in entries(value, place):
        at = place.child(ours)
        if ours not in schema.RENAMABLE:
            at.problem(f"unknown column, {suggest(ours, schema.RENAMABLE)}")
        elif item is UNUSABLE:
            continue
        elif not isinstance(item, str) or _IDENTIFIER.fullmatch(item) is None:
            at.problem("is no column's name: letters, digits and _, at most 64 of them")
        else:
            columns[ours] = item
    used: dict[str, str] = {}
    for ours in schema.RENAMABLE:
        theirs = columns.get(ours, ours)
        if theirs.lower() in used:
            raise Bad(f"{used[theirs.lower()]} and {ours} would be the same column, give each its own")
        used[theirs.lower()] = ours
    return columns


KEYS: Mapping[str, Key] = {
    "enabled": boolean(),
    "publish_mode": Key(one_of(schema.PUBLISH_MODES)),
    "direct": Key(_read_direct),
    "mq": Key(read_text),
    "concurrency": whole(1, 512, falls_back=True),
    "poll_interval": duration("1ms", "1h", falls_back=True),
    "batch_size": whole(1, 10_000, falls_back=True),
    "publish_timeout": duration("10ms", "10m", falls_back=True),
    "lease": duration("1s", "24h"),
    "max_inflight_bytes": size(1, 16 * 1024**3),
    "max_event_bytes": size(1, 1024**3),
    "retry_strategy": Key(one_of(schema.RETRY_STRATEGIES), nullable=True),
    "max_retry_count": whole(1, 1_000_000, falls_back=True),
    "initial_backoff": duration("1ms", "720h", falls_back=True),
    "max_backoff": duration("1ms", "720h", falls_back=True),
    "ordering": Key(one_of(schema.ORDERINGS)),
    "on_dead": Key(one_of(schema.ON_DEAD)),
    "stale_discard_after": duration("-87600h", "87600h"),
    "cleanup_interval": duration("-87600h", "720h"),
    "cleanup_active_after": duration("-87600h", "87600h"),
    "cleanup_terminal_after": duration("-87600h", "87600h"),
    "cleanup_batch_size": whole(1, 1_000_000, falls_back=True),
    "retention": duration("-87600h", "87600h"),
    "columns": Key(_read_columns),
}
