"""How much the fault tests do: a small seeded sample in every run, all of it with OUTBOXD_CHAOS=full."""

import os

SEED = 20_240_602
FULL = os.environ.get("OUTBOXD_CHAOS") == "full"


def scaled(full: int, sample: int) -> int:
    """So many of what a test repeats."""
    return full if FULL else sample
