"""Events that rest because a publisher is failing, woken when it works again: by primary key, in chunks.

Only what this process parked itself is remembered, up to a bound; the rest comes due by itself within `max_backoff`.
"""

from collections import deque

REMEMBERED = 200_000
CHUNK = 1000


class Parked:
    """(id, token) of parked rows: the token proves that nobody has touched the row since."""

    def __init__(self) -> None:
        self._resting: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
        self._waking: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)

    def note(self, row_id: int, token: int) -> None:
        """A row was parked."""
        self._resting.append((row_id, token))

    def wake_all(self) -> None:
        """The publisher works again."""
        self._waking.extend(self._resting)
        self._resting.clear()

    @property
    def waking(self) -> bool:
        """Are there rows to be pulled forward?"""
        return bool(self._waking)

    def chunk(self) -> list[tuple[int, int]]:
        """The next rows to pull forward; they stay until `woken`."""
        return [self._waking[i] for i in range(min(CHUNK, len(self._waking)))]

    def woken(self, count: int) -> None:
        """So many of the chunk are done."""
        for _ in range(count):
            self._waking.popleft()
