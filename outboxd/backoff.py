"""Delays: pure arithmetic, shared by retries, probes and crash loops. All in seconds; no clock, no sleep."""

from collections.abc import Callable

_MAX_DOUBLINGS = 1000
"""2 to this power is still a float; beyond it `2.0 ** n` raises OverflowError."""


def exponential(n: int, initial_s: float, max_s: float) -> float:
    """The wait after the n-th failure in a row: initial_s · 2^(n-1), at most max_s. Any n is safe; the first is 1."""
    doublings = min(max(n, 1) - 1, _MAX_DOUBLINGS)
    return min(max_s, initial_s * 2.0**doublings)


def jittered(delay_s: float, fraction: float, random: Callable[[], float]) -> float:
    """delay_s, moved at random by up to ±fraction of itself, so that what failed together does not return together.

    random: gives a float in [0, 1), such as `random.random`. The result may exceed a maximum that delay_s was cut to:
    a caller to whom that matters cuts again.
    """
    return delay_s * (1.0 + fraction * (2.0 * random() - 1.0))
