"""Which ticks of a job fire when the clock is looked at, and which are missed. Pure; both clocks come in.

A tick is known by its *nominal time*, a second of UTC. It fires when the wall clock gets there, once in the life of a
watch. Whoever keeps one looks about once a second; nothing depends on how exactly:

- **Late** (load, a slow loop): what lies between two looks is seen by the second one. A tick that is late by at most
  `Schedule.late_s` (3 s; under `#` all of its minute) fires, several of them in their order; an older one is *missed*.
- **The process or the machine stood still**: the same. All but the last late_s of what came meanwhile is missed.
- **The clock is set forwards**: the same. The ticks that it jumped over are missed, and are not made up for.
- **The clock is set back**: jobs go on by the new clock at once. But the times that this watch has lived through are
  remembered for REMEMBERED_S, and their ticks are *held*: they have fired, and do not a second time. So after a step of
  an hour a job pauses for an hour at most; a clock that was a year ahead, or wrong only since the watch began, holds
  nothing up. What the clock had jumped over before, and so was missed, fires when it comes to it again.
- **A new watch** (a start, a resume, a change of the job) has no past: what was due before is neither fired nor missed.

Nodes do not know of each other here: what makes a tick single among them is the row of its nominal time.
"""

from dataclasses import dataclass
from math import floor

from outboxd.schedule.cron import Schedule

REMEMBERED_S = 2 * 3600
"""More than the hour by which clocks are set wrong, and little enough for a job to be silent. A step back by more holds
nothing, and a time that comes again then fires again.
"""

Span = tuple[int, int]
"""Seconds after the first number, up to the second one inclusive."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What is known of one job's time. seen_s: the wall clock's last second that was looked at; seen_monotonic_s: when
    that was. lived: times whose ticks have had their chance, ascending, apart.
    """

    seen_s: int
    seen_monotonic_s: float
    lived: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Due:
    """fire: nominal times, ascending. missed: how many ticks came too late to fire. held: how many were reached again
    after the clock was set back.
    """

    fire: tuple[int, ...] = ()
    missed: int = 0
    held: int = 0


def begin(wall_s: float, monotonic_s: float) -> Watch:
    """Ticks from the next second on."""
    return Watch(floor(wall_s), monotonic_s)


def until_next_s(wall_s: float) -> float:
    """How long until the clock shows another second, the only time when a look can find more: above 0, at most 1."""
    return floor(wall_s) + 1 - wall_s


def look(watch: Watch, schedule: Schedule, wall_s: float, monotonic_s: float) -> tuple[Watch, Due]:
    """wall_s: time.time(), monotonic_s: time.monotonic(), read together."""
    now_s = floor(wall_s)
    start_s = watch.seen_s
    if now_s < start_s:  # set back: had it always been right, the last look would have been then
        start_s = floor(wall_s - max(0.0, monotonic_s - watch.seen_monotonic_s))
    late_s = max(start_s, now_s - schedule.late_s - 1)  # what is after this is not too late
    reached = [at_s for at_s in range(late_s + 1, now_s + 1) if schedule.matches(at_s)]
    fire = tuple(at_s for at_s in reached if not any(after < at_s <= upto for after, upto in watch.lived))
    missed = sum(schedule.count(after, upto) for after, upto in _without((start_s, late_s), watch.lived))
    lived = _with((late_s, now_s), watch.lived, now_s)
    return Watch(now_s, monotonic_s, lived), Due(fire, missed, len(reached) - len(fire))


def _without(span: Span, others: tuple[Span, ...]) -> list[Span]:
    """What is left of it."""
    left: list[Span] = []
    after, end = span
    for other_after, other_upto in others:
        if after < min(other_after, end):
            left.append((after, min(other_after, end)))
        after = max(after, other_upto)
    if after < end:
        left.append((after, end))
    return left


def _with(span: Span, others: tuple[Span, ...], now_s: int) -> tuple[Span, ...]:
    """Joined where they touch; what is far from now is forgotten."""
    joined: list[Span] = []
    for after, upto in sorted([*others, span]):
        after, upto = max(after, now_s - REMEMBERED_S), min(upto, now_s + REMEMBERED_S)
        if after >= upto:
            continue
        if joined and after <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], upto))
        else:
            joined.append((after, upto))
    return tuple(joined)
