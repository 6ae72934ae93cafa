"""The numbers of jobs on their way to the metrics' files. Counted by any thread, written by the role's loop."""

import threading
import time

from outboxd import log, metrics
from outboxd.errors import MetricsError
from outboxd.series import Series, counter_key, gauge_key, histogram_keys
from outboxd.tally import Buckets

RESULTS = ("succeeded", "failed", "skipped", "interrupted", "missed", "held")
"""missed: ticks that came too late. held: ticks whose time came again, after the clock had been set back."""
SUCCEEDED, FAILED, SKIPPED, INTERRUPTED, MISSED, HELD = RESULTS
MOST_NAMES = 100
"""Jobs with series of their own; those that come later share OTHER."""
OTHER = "other"
WRITE_EVERY_S = 1.0
TRY_AGAIN_S = 10.0


class Meter:
    """directory: where the files are; None: nothing is written."""

    def __init__(self, directory: str | None, slot: int) -> None:
        self._directory, self._slot = directory, slot
        self._mutex = threading.Lock()
        self._names: set[str] = set()
        self._counts: dict[tuple[str, str], int] = {}
        self._durations: dict[str, Buckets] = {}
        self._successes: dict[str, float] = {}
        self._series: Series | None = None
        self._is_broken = False
        self._write_at_s = 0.0

    def expect(self, job: str) -> None:
        """Show its counters before there is anything to count: Prometheus sees no increase in a series that is new."""
        for result in RESULTS:
            self.count(job, result, 0)

    def count(self, job: str, result: str, n: int = 1) -> None:
        """So many runs or ticks ended like this."""
        with self._mutex:
            key = self._label(job), result
            self._counts[key] = self._counts.get(key, 0) + n

    def ended(self, job: str, result: str, duration_s: float) -> None:
        """A run ended by itself."""
        self.count(job, result)
        with self._mutex:
            name = self._label(job)
            self._durations.setdefault(name, Buckets(metrics.JOB_DURATION.bounds)).observe(duration_s)
            if result == SUCCEEDED:
                self._successes[name] = time.time()

    def _label(self, job: str) -> str:
        if job not in self._names and len(self._names) >= MOST_NAMES:
            return OTHER
        self._names.add(job)
        return job

    def write(self, now_s: float, is_last: bool = False) -> None:
        """Show what has been counted, about once a second."""
        if self._directory is None or (now_s < self._write_at_s and not is_last):
            return
        try:
            if self._series is None:
                self._series = Series(self._directory, self._slot)
            if self._hand_over(self._series):
                self._series.write()
        except MetricsError as error:
            self._write_at_s = now_s + TRY_AGAIN_S
            self._note(error)
        else:
            self._write_at_s = now_s + WRITE_EVERY_S
            self._note(None)

    def _hand_over(self, series: Series) -> bool:
        """Is there anything new to be seen, or what could not be written before?"""
        with self._mutex:
            counts, durations, successes = self._counts, self._durations, self._successes
            self._counts, self._durations, self._successes = {}, {}, {}
        for (name, result), n in counts.items():
            series.count(counter_key(metrics.JOB_RUNS, name, result), n)
        for name, buckets in durations.items():
            series.observe(histogram_keys(metrics.JOB_DURATION, name), buckets)
        for name, at_s in successes.items():
            series.set(gauge_key(metrics.JOB_LAST_SUCCESS, name), at_s)
        return bool(counts) or self._is_broken

    def _note(self, error: MetricsError | None) -> None:
        is_broken = error is not None
        if is_broken != self._is_broken:
            self._is_broken = is_broken
            if error is not None:
                log.warning(log.METRICS_UNAVAILABLE, error=str(error))
            else:
                log.info(log.METRICS_AVAILABLE)
