"""The worker's hold on the database: opened, lost, tried again with growing pauses; said once per change of state."""

import time
from collections.abc import Callable

from outboxd import log
from outboxd.backoff import exponential, jittered
from outboxd.errors import StoreUnavailable
from outboxd.store.api import Store

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
JITTER = 0.5
PROVEN_S = 1.0
"""A session that writes is believed after this time: a disk that is nearly full takes one write, not the next."""
QUIET_S = 5.0
"""A session that has nothing to write is believed after this time."""


class Link:
    """A store that may be away. `store` is None while it is."""

    def __init__(self, open_store: Callable[[], Store], random: Callable[[], float]) -> None:
        self._open = open_store
        self._random = random
        self.store: Store | None = None
        self.retry_at_s = 0.0
        self._failures = 0
        self._opened_s = 0.0
        self._wrote = False
        self._away_since_s: float | None = None

    def connect(self, now_s: float) -> bool:
        """Open the store if it is time to try; True if it was opened now. Raises StoreRefused."""
        if self.store is not None or now_s < self.retry_at_s:
            return False
        try:
            self.store = self._open()
        except StoreUnavailable as error:
            self._away(error)
            return False
        self._opened_s = time.monotonic()
        self._wrote = False
        return True

    def others_pause_s(self) -> float:
        """How long another worker that lost the database too may still pause before it tries again. How long this one
        was away tells nothing of that: it may have noticed when all was over."""
        return LONGEST_PAUSE_S * (1 + JITTER) if self._failures else 0.0

    def used(self, now_s: float, wrote: bool) -> None:
        """A call has succeeded. That a session opens says little: a read-only server and a full disk let one in, and
        refuse the first write. So pauses start anew once it has taken one, and the database counts as back once it has
        gone on for a while."""
        self._wrote = self._wrote or wrote
        lasted_s = now_s - self._opened_s
        if wrote or lasted_s >= QUIET_S:
            self._failures = 0
        if self._away_since_s is not None and lasted_s >= (PROVEN_S if self._wrote else QUIET_S):
            log.info(log.DATABASE_AVAILABLE, after_s=round(now_s - self._away_since_s, 1))
            self._away_since_s = None

    def lost(self, error: StoreUnavailable) -> None:
        """The session is of no use any more."""
        if self.store is not None:
            self.store.close()
            self.store = None
        self._away(error)

    def _away(self, error: StoreUnavailable) -> None:
        now_s = time.monotonic()
        if self._away_since_s is None:
            self._away_since_s = now_s
            log.warning(log.DATABASE_UNAVAILABLE, error=str(error))
        self._failures += 1
        pause_s = exponential(self._failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self.retry_at_s = now_s + jittered(pause_s, JITTER, self._random)

    def close(self) -> None:
        """Give the session back."""
        if self.store is not None:
            self.store.close()
            self.store = None
