"""Accepts every event and does nothing with it: for benchmarks, and to empty a lane that nobody reads."""

from outboxd.event import DELIVERED, Event, Outcome
from outboxd.publishers.api import NOTHING, Waits

CAPACITY = 10_000

_AT_ONCE = Waits((), (), 0.0)


class NullPublisher:
    """A Publisher; see api.py."""

    capacity = CAPACITY
    chains = True

    def __init__(self) -> None:
        self._done: list[tuple[Event, Outcome]] = []

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Accept an event."""
        if len(self._done) >= CAPACITY:
            return False
        self._done.append((event, DELIVERED))
        return True

    def collect(self) -> list[tuple[Event, Outcome]]:
        """All that was submitted since the last call."""
        done, self._done = self._done, []
        return done

    def wait_on(self) -> Waits:
        """Nothing; outcomes are there at once."""
        return _AT_ONCE if self._done else NOTHING

    def close(self, deadline_s: float) -> None:
        """Forget what was not collected."""
        self._done.clear()
