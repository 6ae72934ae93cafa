"""A receiver that takes its time: how long, chance decides, the same for the same seed."""

import random

from tests.services.receiver import Receiver
from tests.services.receiver_answers import Behaviour, Request, Rule


class _Slow(Rule):
    """Matches every request; each gets a delay of its own."""

    def __init__(self, chance: random.Random, longest_s: float) -> None:
        self.times = None
        self.longest_s = longest_s
        self._chance = chance

    def matches(self, request: Request) -> bool:
        """Always, with another delay each time: more short ones than long ones."""
        self.behaviour = Behaviour(delay_s=self.longest_s * self._chance.random() ** 2)
        return True


class SlowReceiver(Receiver):
    """Accepts everything, after 0 to `longest_s`."""

    def __init__(self, seed: int, longest_s: float) -> None:
        self._slow = _Slow(random.Random(seed), longest_s)
        super().__init__(keep_bodies=False, rules=[self._slow])

    def take_at_most(self, longest_s: float) -> None:
        """From the next request on."""
        self._slow.longest_s = longest_s
