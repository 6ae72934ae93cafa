"""What is counted between two writes of the metrics: plain numbers, cheap enough for every event. Pure."""

from bisect import bisect_left
from collections.abc import Sequence

LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of what takes as long as a call."""
AGE_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)
"""Upper bounds of the buckets of what may wait for a day."""

RUN_S = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""Upper bounds of the buckets of what is done in the background, and may be long."""


class Buckets:
    """A histogram's numbers: how many values were at most as great as each bound, and above the last one before."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.clear()

    def clear(self) -> None:
        """Start anew."""
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Tally:
    """What became of the publishes of one publisher."""

    __slots__ = ("accepted", "failed", "latency")

    def __init__(self) -> None:
        self.latency = Buckets(LATENCY_S)
        self.clear()

    def clear(self) -> None:
        """Start anew."""
        self.accepted = 0
        self.failed: dict[str, int] = {}
        self.latency.clear()

    def fail(self, reason: str) -> None:
        """Count one failure; reason: of event.REASONS."""
        self.failed[reason] = self.failed.get(reason, 0) + 1
