"""How much the fault tests do: a small seeded sample, or with OUTBOXD_CHAOS=full all of it."""

import os

SEED = 20_240_602
FULL = os.environ.get("OUTBOXD_CHAOS") == "full"


def scaled(full: int, sample: int) -> int:
    """An amount of work for the run that was asked for."""
    return full if FULL else sample
