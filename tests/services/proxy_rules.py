"""Which statements meet which fault: what tests hand to `Proxy.rule`. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

GREETING = "the server's greeting"
LOGIN = "the client's login"


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a statement. `kind` says what, `number` how: an error's number, or seconds."""

    kind: str
    number: float = 0


CUT = Fault("cut")
"""Its connection is closed in order (FIN), to both sides."""
RESET = Fault("reset")
"""Its connection is reset (RST), to both sides."""
BLACKHOLE = Fault("blackhole")
"""From here on nothing is forwarded any more, on no connection: as Proxy.blackhole."""
SILENCE = Fault("silence")
"""From here on nothing is forwarded on this connection; others live."""


def delay(seconds: float) -> Fault:
    """It arrives so much later."""
    return Fault("delay", seconds)


def error(number: int) -> Fault:
    """The client is told of this error. Before: the server does not execute the statement; of 1213, and of any number
    at COMMIT, it is made to roll the transaction back, as it does by itself (a COMMIT that waits too long for a lock on
    all tables fails with 1205, and is undone). After: in place of the answer (of a statement without rows)."""
    return Fault("error", number)


class Rule:
    """A fault and the statements that meet it: `Proxy.rule` says what the arguments mean. hits: faults made so far."""

    def __init__(self, pattern: str, fault: Fault, after: bool, within: str, every: int, times: int | None) -> None:
        self.pattern = pattern
        self.fault = fault
        self.after = after
        self.hits = 0
        self._pattern = re.compile(pattern, re.IGNORECASE)
        self._within = re.compile(within, re.IGNORECASE)
        self._every = every
        self._times = times
        self._seen = 0

    def strikes(self, text: str, transaction: Sequence[str], after: bool) -> bool:
        """Does this statement meet the fault? Counts."""
        if self.after != after or (self._times is not None and self.hits >= self._times):
            return False
        if not self._pattern.search(text) or not any(map(self._within.search, [*transaction, text])):
            return False
        self._seen += 1
        if self._seen % self._every:
            return False
        self.hits += 1
        return True
