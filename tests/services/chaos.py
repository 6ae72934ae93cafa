"""How much the fault tests do: a small seeded sample in every run, the full amount with OUTBOXD_CHAOS=full."""

import os
from typing import TypeVar

Amount = TypeVar("Amount")

SEED = 20_240_602
FULL: bool = os.environ.get("OUTBOXD_CHAOS") == "full"


def scaled(full: Amount, sample: Amount) -> Amount:
    """The amount of work, or of what stands for it, in this run."""
    return full if FULL else sample
