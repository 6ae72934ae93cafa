"""A receiver that takes its time: how long, chance decides, the same for the same seed."""

import random

from tests.services.receiver import Receiver
from tests.services.receiver_answers import Behaviour, Chosen, Request


class SlowReceiver(Receiver):
    """Accepts everything, after 0 to `longest_s`: more short ones than long ones."""

    def __init__(self, seed: int, longest_s: float) -> None:
        self._chance = random.Random(seed)
        self._longest_s = longest_s
        super().__init__(keep_bodies=False, rules=[Chosen(self._delayed)])

    def _delayed(self, request: Request) -> Behaviour:
        return Behaviour(delay_s=self._longest_s * self._chance.random() ** 2)

    def take_at_most(self, longest_s: float) -> None:
        """From the next request on."""
        self._longest_s = longest_s
