"""How much of the fault tests runs: a small seeded sample for every change, the full amount with OUTBOXD_CHAOS=full."""

import os
from typing import TypeVar

Amount = TypeVar("Amount")

FULL = os.environ.get("OUTBOXD_CHAOS") == "full"
SEED = 20_240_602


def scaled(full: Amount, sample: Amount) -> Amount:
    """The amount of work, or what stands for it in the sample."""
    return full if FULL else sample
