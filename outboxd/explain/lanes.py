"""Lanes as documents, and which one is meant."""

from dataclasses import asdict

from outboxd.config.schema import Config, Lane
from outboxd.errors import ConfigError
from outboxd.store.desk import Overview


def lane_named(config: Config, name: str | None) -> Lane:
    """The lane of that name; without a name the only one that is enabled, else room_outbox. Raises ConfigError."""
    lanes = config.lanes
    if name is None:
        enabled = [lane.name for lane in lanes.values() if lane.enabled]
        name = enabled[0] if len(enabled) == 1 else "room_outbox"
        if name not in lanes:
            raise ConfigError([f"which lane is meant? Say --lane with one of {', '.join(sorted(lanes))}"])
    if name not in lanes:
        raise ConfigError([f"there is no lane {name!r}: the configuration has {', '.join(sorted(lanes))}"])
    return lanes[name]


def lane_document(lane: Lane, seen: Overview | None, problem: str) -> dict[str, object]:
    """A lane's numbers for programs. problem: why there are none, or ""."""
    document: dict[str, object] = {"lane": lane.name, "enabled": lane.enabled, "problem": problem or None}
    if seen is not None:
        numbers = asdict(seen)
        del numbers["now_ms"]
        document |= {**numbers, "capped": sorted(seen.capped), "paused_by": seen.paused_by or None}
    return document
