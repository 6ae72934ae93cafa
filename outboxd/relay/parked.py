"""Events that rest because a publisher is failing, woken when it works again: by primary key, in chunks.

One at a time is woken before, as a probe, where nothing else could be one: else a quiet lane would not notice that its
receiver is back before the first of them comes due.

Only what this process parked itself is remembered, up to a bound; the rest comes due by itself within `max_backoff`.
"""

from collections import deque
from collections.abc import Callable, Sequence

REMEMBERED = 200_000
CHUNK = 1000

Hurry = Callable[[Sequence[tuple[int, int]]], object]
"""Makes rows due now: Store.hurry."""


class Parked:
    """(id, token) of parked rows: the token proves that nobody has touched the row since."""

    def __init__(self) -> None:
        self._resting: dict[int, int] = {}  # in the order in which they were parked last
        self._waking: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)

    def note(self, row_id: int, token: int) -> None:
        """A row was parked."""
        self._resting.pop(row_id, None)
        self._resting[row_id] = token
        if len(self._resting) > REMEMBERED:
            self.take_one()

    def wake_all(self) -> None:
        """The publisher works again."""
        self._waking.extend(self._resting.items())
        self._resting.clear()

    @property
    def resting(self) -> bool:
        """Is any row known to rest?"""
        return bool(self._resting)

    def take_one(self) -> tuple[int, int]:
        """The row that has rested longest; it is forgotten here."""
        row_id = next(iter(self._resting))
        return row_id, self._resting.pop(row_id)

    @property
    def waking(self) -> bool:
        """Are there rows to be pulled forward?"""
        return bool(self._waking)

    def wake(self, hurry: Hurry) -> list[int]:
        """Pull some of them forward; which ones."""
        chunk = self.chunk()
        hurry(chunk)
        self.woken(len(chunk))
        return [row_id for row_id, _ in chunk]

    def wake_one(self, hurry: Hurry) -> list[int]:
        """Pull one forward that still rests; none, if none is known to."""
        if not self.resting:
            return []
        one = self.take_one()
        hurry([one])
        return [one[0]]

    def chunk(self) -> list[tuple[int, int]]:
        """The next rows to pull forward; they stay until `woken`."""
        return [self._waking[i] for i in range(min(CHUNK, len(self._waking)))]

    def woken(self, count: int) -> None:
        """So many of the chunk are done."""
        for _ in range(count):
            self._waking.popleft()
