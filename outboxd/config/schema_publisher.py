"""What every publisher's settings have; part of schema.py."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """When a publisher is given a rest: after `distinct_events` different events failed in a row (or `dead_brake` ended
    as dead letters) with no success between; then one probe at a time, `initial_probe_s` to `max_probe_s` apart.
    """

    enabled: bool = True
    distinct_events: int = 5
    dead_brake: int = 20
    initial_probe_s: float = 1.0
    max_probe_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherSettings:
    """What every publisher has. events: globs on event_type, `!` excludes. max_rate: events per second and process;
    0: no limit.
    """

    type: ClassVar[str] = ""

    name: str
    events: tuple[str, ...] = ("*",)
    max_rate: float = 0.0
    breaker: Breaker = Breaker()
