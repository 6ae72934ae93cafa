"""A receiver for the soak, as a process of its own: a small share of its answers are failures, by a seeded chance.

python -m tests.bench.faulty prints its port and serves until it is killed.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services import children
from tests.services.daemon import ROOT
from tests.services.receiver import Receiver
from tests.services.receiver_answers import Behaviour, Request
from tests.services.wait import wait_for

SEED = 20_240_602
SHARES = {"500": 0.004, "429": 0.002, "hang": 0.0005, "reset": 0.0005}


class _Nothing(list[Request]):
    """Keeps nothing: a soak sends millions."""

    def append(self, request: Request) -> None:
        """Forget it."""


BEHAVIOURS = {
    "500": Behaviour(status=500),
    "429": Behaviour(status=429),
    "hang": Behaviour(hang=True),
    "reset": Behaviour(close="reset"),
}


def main() -> None:
    """Serve until killed."""
    chance = random.Random(SEED)
    names, shares = list(SHARES), list(SHARES.values())

    def chosen(request: Request) -> Behaviour | None:
        if chance.random() >= sum(shares):
            return None
        return BEHAVIOURS[chance.choices(names, shares)[0]]

    receiver = Receiver(requests=_Nothing())
    receiver.choose(chosen)
    print(receiver.port, flush=True)
    receiver.serve()


@contextmanager
def faulty_receiver(directory: Path) -> Iterator[str]:
    """One that runs: its URL."""
    log = directory / "faulty.log"
    process = children.start(["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.bench.faulty"], log)
    try:
        port = wait_for(lambda: log.exists() and log.read_text().strip(), 20, "the receiver to listen")
        yield f"http://127.0.0.1:{port}/events"
    finally:
        children.stop(process)


if __name__ == "__main__":
    main()
