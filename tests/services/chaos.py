"""How much chaos: the full amount with `OUTBOXD_CHAOS=full`, else a small sample of it, the same in every run."""

import os
from typing import TypeVar

Amount = TypeVar("Amount")

FULL: bool = os.environ.get("OUTBOXD_CHAOS") == "full"

SEED = 20_240_602


def scaled(full: Amount, sample: Amount) -> Amount:
    """The amount for this run: in the long form, in the short one."""
    return full if FULL else sample
