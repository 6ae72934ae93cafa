"""One worker's numbers on their way to the metrics: taken in plain integers, written with every settle.

Nothing depends on them: a folder that is full, corrupt or gone costs its metrics and one line in the log.
"""

from collections.abc import Iterable

from outboxd import log, metrics
from outboxd.errors import MetricsError
from outboxd.publishers.route import Route
from outboxd.series import Series, counter_key, histogram_keys
from outboxd.tally import AGE_S, LATENCY_S, Buckets

WRITE_EVERY_S = 1.0
TRY_AGAIN_S = 10.0


class Meter:
    """The counters and histograms of a worker. directory: where its files are; None: nothing is written."""

    def __init__(self, directory: str | None, slot: int, lane: str, routes: Iterable[Route]) -> None:
        self._directory = directory
        self._slot = slot
        self._lane = lane
        self._routes = tuple(routes)
        self._successes = {route.name: counter_key(metrics.PUBLISH_SUCCESS, lane, route.name) for route in self._routes}
        self._latencies = {
            route.name: histogram_keys(metrics.PUBLISH_LATENCY, lane, route.name) for route in self._routes
        }
        self.deliveries = Buckets(AGE_S)
        self.claims = Buckets(LATENCY_S)
        self.sweeps = Buckets(LATENCY_S)
        self._own = (
            (histogram_keys(metrics.DELIVERY_LATENCY, lane), self.deliveries),
            (histogram_keys(metrics.CLAIM_LATENCY, lane), self.claims),
            (histogram_keys(metrics.SWEEP_SECONDS, lane), self.sweeps),
        )
        self._series: Series | None = None
        self._is_broken = False
        self._write_at_s = 0.0

    def write(self, now_s: float, settled: bool = False) -> None:
        """Show what has been counted: before every settle, else about once a second."""
        if self._directory is None or (now_s < self._write_at_s and (self._is_broken or not settled)):
            return
        try:
            if self._series is None:
                self._series = Series(self._directory, self._slot)
            self._hand_over(self._series)
            self._series.write()
        except MetricsError as error:
            self._write_at_s = now_s + TRY_AGAIN_S
            self._note(error)
        else:
            self._write_at_s = now_s + WRITE_EVERY_S
            self._note(None)

    def _hand_over(self, series: Series) -> None:
        for route in self._routes:
            tally = route.tally
            series.count(self._successes[route.name], tally.accepted)
            for reason, count in tally.failed.items():
                series.count(counter_key(metrics.PUBLISH_FAILURE, self._lane, route.name, reason), count)
            series.observe(self._latencies[route.name], tally.latency)
            tally.clear()
        for keys, buckets in self._own:
            series.observe(keys, buckets)

    def _note(self, error: MetricsError | None) -> None:
        is_broken = error is not None
        if is_broken != self._is_broken:
            self._is_broken = is_broken
            if error is not None:
                log.warning(log.METRICS_UNAVAILABLE, error=str(error))
            else:
                log.info(log.METRICS_AVAILABLE)
