"""The page of metrics: workers' files merged, the scoreboard, and what the sampler last saw of the tables.

Imported in the admin role only: it loads prometheus_client.
"""

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.multiprocess import MultiProcessCollector

from outboxd import __version__, metrics
from outboxd.admin.sampler import Sample
from outboxd.config.schema import Lane
from outboxd.metrics import COUNTER, KEPT_IN_FILES, Metric
from outboxd.vitals import BRIDGE, RESTARTS, Board, SlotView, State

_FILED = {metric.name: metric for metric in KEPT_IN_FILES}
_STATES = ("fresh", "scheduled", "retrying", "delivering")
_CAPPED = (*_STATES, "failed")
BRIDGED = (("done", "delivered"), ("repeated", "unmatched"), ("again", "retried"), ("dead", "dead"))
"""What the metric calls the totals of a bridge's slot."""


class Exposition:
    """Collects everything anew at each scrape; implements prometheus_client's Collector."""

    def __init__(
        self, node_id: str, lanes: Sequence[Lane], board: Board, folder: str | None, sample: Callable[[], Sample]
    ) -> None:
        self._node_id = node_id
        self._lanes = lanes
        self._board = board
        self._folder = folder
        self._sample = sample
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def page(self, accept: str) -> tuple[bytes, str]:
        """(the page, its content type), in the newest format that the scraper accepts."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterator[Family]:
        """Every family."""
        yield from merged(self._folder)
        yield from self._from_board()
        yield from self._from_tables(self._sample())
        yield _family(metrics.INFO, [((__version__, self._node_id), 1)])

    def _from_board(self) -> Iterator[Family]:
        views: dict[str, list[SlotView]] = {lane.name: [] for lane in self._lanes}
        for index in range(len(self._board)):
            lane = self._board.name(index).rpartition("-")[0]
            if lane:  # what serves the workers has no number
                views.setdefault(lane, []).append(self._board.read(index))
        yield _family(metrics.BRIDGE_MESSAGES, _bridged(views.pop(BRIDGE, ())))
        totals = (
            (metrics.CLAIMED, "claimed"), (metrics.DEAD_LETTERS, "dead"), (metrics.UNMATCHED, "unmatched"),
            (metrics.LEASE_LOST, "lease_lost"), (metrics.EVENT_GONE, "event_gone"), (metrics.DOORBELL_RINGS, "rings"),
            (metrics.STALE_DISCARDED, "stale_discarded"),
        )  # fmt: skip
        for metric, name in totals:
            yield _family(metric, [((lane,), sum(v.total(name) for v in seen)) for lane, seen in views.items()])
        released = [((lane, "drain"), sum(v.total("released") for v in seen)) for lane, seen in views.items()]
        yield _family(metrics.RELEASED, released)
        yield _family(metrics.CLEANUP_DELETED, [
            ((lane, state), sum(v.total(f"cleaned_{state}") for v in seen))
            for lane, seen in views.items()
            for state in ("active", "terminal")
        ])  # fmt: skip
        # A lane that a reload has taken away keeps its counters; of a gauge it would say 0 for ever.
        present = {lane.name: views[lane.name] for lane in self._lanes}
        in_flight = [((lane,), sum(v.in_flight for v in seen)) for lane, seen in present.items()]
        yield _family(metrics.IN_FLIGHT_EVENTS, in_flight)
        restarts = [
            ((lane, reason), sum(v.restarts[i] for v in seen))
            for lane, seen in views.items()
            for i, reason in enumerate(RESTARTS)
        ]
        yield _family(metrics.WORKER_RESTARTS, restarts)
        yield _family(metrics.WORKERS, [sample for lane, seen in present.items() for sample in _states(lane, seen)])
        yield _family(metrics.BREAKER_OPEN, [
            ((lane.name, publisher), sum(v.breakers >> i & 1 for v in views[lane.name]))
            for lane in self._lanes
            for i, publisher in enumerate(lane.publishers)
        ])  # fmt: skip

    def _from_tables(self, seen: Sample) -> Iterator[Family]:
        yield _family(metrics.DATABASE_UP, [((), int(seen.is_up))])
        lanes = seen.lanes.items()
        yield _family(metrics.PENDING_EVENTS, [
            ((lane, state), getattr(found, state))
            for lane, found in lanes
            for state in _STATES
        ])  # fmt: skip
        yield _family(metrics.COUNT_CAPPED, [
            ((lane, state), int(state in found.capped))
            for lane, found in lanes
            for state in (_CAPPED if found.blocked_rooms is None else (*_CAPPED, "blocked_rooms"))
        ])  # fmt: skip
        ages = [((lane,), (found.oldest_age_ms or 0) / 1000) for lane, found in lanes]
        yield _family(metrics.OLDEST_PENDING_AGE, ages)
        yield _family(metrics.FAILED_EVENTS, [((lane,), found.failed) for lane, found in lanes])
        blocked = [((lane,), found.blocked_rooms) for lane, found in lanes if found.blocked_rooms is not None]
        yield _family(metrics.BLOCKED_ROOMS, blocked)


def merged(folder: str | None) -> Iterator[Family]:
    """The families of workers' files. A file that cannot be read costs its own numbers only."""
    if folder is None:
        return
    files = sorted(glob.glob(os.path.join(glob.escape(folder), "*.db")))
    try:
        families = list(MultiProcessCollector.merge(files))
    except Exception:  # noqa: BLE001  whatever a corrupt file makes of the library
        families = list(MultiProcessCollector.merge([path for path in files if _is_readable(path)]))
    for family in families:
        if family.name in _FILED:  # what a stray file calls itself is not shown
            yield family


def _is_readable(path: str) -> bool:
    try:
        list(MultiProcessCollector.merge([path]))
    except Exception:  # noqa: BLE001  whatever a corrupt file makes of the library
        return False
    return True


def _bridged(seen: Sequence[SlotView]) -> Iterator[tuple[tuple[str], int]]:
    """None on a node without a bridge."""
    for result, total in BRIDGED if seen else ():
        yield (result,), sum(view.total(total) for view in seen)


def _states(lane: str, seen: Iterable[SlotView]) -> Iterator[tuple[tuple[str, str], int]]:
    found = Counter(view.state for view in seen)
    for state in (State.STARTING, State.RUNNING, State.STOPPING, State.BACKOFF):
        yield (lane, state.name.lower()), found[state] + (found[State.KILLING] if state is State.STOPPING else 0)


def _family(metric: Metric, samples: Iterable[tuple[tuple[str, ...], float]]) -> Family:
    make = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
    family = make(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
