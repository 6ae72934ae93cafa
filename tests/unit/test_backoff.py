"""Delays: what they are, and that no number breaks them."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outboxd.backoff import exponential, jittered

SECONDS = st.floats(min_value=0.0, max_value=1e9)


def test_a_delay_doubles_up_to_the_maximum() -> None:
    """The default of a retry: 5 s, 10 s, 20 s, ... 300 s."""
    assert [exponential(n, 5.0, 300.0) for n in range(1, 9)] == [5, 10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize("n", [0, -1, -(10**30)])
def test_what_comes_before_the_first_failure_counts_as_the_first(n: int) -> None:
    """A counter that was reset in between must not turn into a busy loop."""
    assert exponential(n, 5.0, 300.0) == 5.0


@pytest.mark.parametrize("n", [64, 1024, 1025, 2**31, 10**30])
@pytest.mark.parametrize(("initial_s", "max_s"), [(5.0, 300.0), (1e-9, 30.0), (1e300, math.inf)])
def test_no_number_of_failures_overflows(n: int, initial_s: float, max_s: float) -> None:
    """fixed_interval counts for ever, and 2.0 ** 1024 raises OverflowError."""
    assert exponential(n, initial_s, max_s) == max_s or not math.isfinite(max_s)


@given(st.integers(min_value=1, max_value=5000), SECONDS, SECONDS)
def test_a_delay_never_shrinks_and_never_exceeds_the_maximum(n: int, initial_s: float, max_s: float) -> None:
    """For any settings, also an initial delay above the maximum."""
    assert 0.0 <= exponential(n, initial_s, max_s) <= exponential(n + 1, initial_s, max_s) <= max_s


@given(SECONDS, st.integers())
def test_jitter_stays_within_its_fraction(delay_s: float, seed: int) -> None:
    """±10 %, and never negative."""
    moved_s = jittered(delay_s, 0.1, random.Random(seed).random)
    assert 0.9 * delay_s - 1e-6 <= moved_s <= 1.1 * delay_s + 1e-6


def test_jitter_spreads_over_all_of_its_span() -> None:
    """What failed together must not come back together."""
    assert jittered(10.0, 0.1, lambda: 0.0) == 9.0
    assert jittered(10.0, 0.1, lambda: 0.5) == 10.0
    assert jittered(10.0, 0.1, lambda: 0.999999) == pytest.approx(11.0, abs=1e-4)
    assert jittered(10.0, 0.0, lambda: 0.7) == 10.0
