"""Receivers that are away for long, with restarts of the daemon in it: no event pays for it, all goes on behind it.

`OUTBOXD_CHAOS=full` makes many restarts of what is otherwise a small sample.
"""

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outboxd.config.schema import Config
from tests.services.chaos import scaled
from tests.services.daemon import Daemon, write_config
from tests.services.lanes import Table, lanes_of
from tests.services.outages import Outage, outages
from tests.services.receiver import Receiver

RESTARTS = scaled(15, 4)
WORKERS = scaled(2, 1)
EVENTS = scaled(20, 6)
"""In each lane: more than a breaker needs, few enough for each to be tried more often than it may fail."""
BACKLOG = scaled(3000, 400)
PROBES = scaled(7, 4)
"""Of each worker and receiver in each run."""
MAX_RETRIES = 3
DISTINCT_EVENTS = 5
INITIAL_PROBE_S, MAX_PROBE_S = 0.1, 0.3
STEADY = "lane_steady"
DNS = "lane_dns"
"""Away from the start: a name once found is kept for a minute."""


@dataclass(frozen=True)
class Scene:
    """Six lanes, each with a receiver that breaks down in its own way, and one whose receiver does not."""

    directory: Path
    outages: dict[str, Outage]
    environ: dict[str, str]
    steady: Receiver
    tables: dict[str, Table]

    @contextmanager
    def daemon(self) -> Iterator[Daemon]:
        """A run of it."""
        with Daemon(self.directory / "outbox.yaml", self.directory / "daemon.log", **self.environ) as daemon:
            yield daemon

    def fill(self, count: int) -> None:
        """So many events in every lane."""
        for table in self.tables.values():
            table.fill(count)

    def break_down(self, daemon: Daemon) -> None:
        """All that still work, once they have worked."""
        working = set(self.outages) - {DNS}
        daemon.wait_until(lambda: all(self.tables[lane].is_done() for lane in working), "them to work")
        for lane in working:
            self.outages[lane].begin()

    def is_done(self) -> bool:
        """Has every event come to an end?"""
        return all(table.is_done() for table in self.tables.values())

    def by_status(self) -> set[str]:
        """The statuses that occur."""
        return {status for table in self.tables.values() for status in table.by_status()}

    def tried(self) -> dict[str, int]:
        """Lane -> how often its receiver was tried, where that can be seen."""
        return {lane: outage.asked() for lane, outage in self.outages.items() if outage.asked is not None}

    def wait_for_probes(self, daemon: Daemon, probes: int) -> None:
        """Let it try for a while."""
        assert "failed" not in self.by_status()  # which also keeps the test's own connection alive
        wanted = {lane: count + probes * WORKERS for lane, count in self.tried().items()}
        daemon.wait_until(lambda: all(count >= wanted[lane] for lane, count in self.tried().items()), "probes")

    def recover(self, daemon: Daemon, lane: str, outages: int = 1) -> float:
        """End an outage; how long it takes until all is delivered, save the few that failed before it was known to be
        one: they rest for as long as a failed event does. outages: of that lane so far."""
        since_s = time.monotonic()
        self.outages[lane].end()
        resting = outages * WORKERS * DISTINCT_EVENTS
        daemon.wait_until(lambda: self.tables[lane].unfinished() <= resting, f"{lane} to be done", timeout_s=30)
        return time.monotonic() - since_s


def configure(directory: Path, url: str, found: dict[str, Outage], steady: Receiver, **worker: Any) -> Config:
    """Each lane with a publisher of its own."""
    probes = {"initial_probe": f"{INITIAL_PROBE_S}s", "max_probe": f"{MAX_PROBE_S}s"}
    breaker = {**probes, "distinct_events": DISTINCT_EVENTS}
    publishers = {lane: {"type": "http", **outage.settings, "breaker": breaker} for lane, outage in found.items()}
    publishers[STEADY] = {"type": "http", "url": steady.url, "breaker": breaker}
    return write_config(
        directory / "outbox.yaml", url, publishers, lanes={lane: {"direct": [lane]} for lane in publishers},
        max_retry_count=MAX_RETRIES, concurrency=WORKERS, **worker,
    )  # fmt: skip


@contextmanager
def scene(url: str, directory: Path, **worker: Any) -> Iterator[Scene]:
    """Every lane's table with one event, and all receivers; they still work, save that of the DNS lane."""
    with ExitStack() as stack:
        kinds, environ = stack.enter_context(outages(directory))
        steady = stack.enter_context(Receiver(keep_bodies=False))
        found = {f"lane_{kind}": outage for kind, outage in kinds.items()}
        config = configure(directory, url, found, steady, **worker)
        made = Scene(directory, found, environ, steady, stack.enter_context(lanes_of(config)))
        made.fill(1)
        found[DNS].begin()
        yield made


def test_a_long_outage_with_many_restarts_costs_nobody(mysql_url: str, tmp_path: Path) -> None:
    """G6: refused, 503, 500, hanging, TLS, DNS: every event is tried more often than it may fail; none is dead, and the
    receiver is not battered: only probes reach it."""
    timeout_s = 0.2
    times = {"initial_backoff": "100ms", "max_backoff": "500ms", "publish_timeout": f"{timeout_s}s", "lease": "2600ms"}
    with scene(mysql_url, tmp_path, **times) as it:
        with it.daemon() as daemon:
            it.break_down(daemon)
            before, since_s = it.tried(), time.monotonic()
            it.fill(EVENTS)
            it.wait_for_probes(daemon, PROBES)
            daemon.drain(timeout_s)
        for _ in range(RESTARTS):
            with it.daemon() as daemon:
                it.wait_for_probes(daemon, PROBES)
                daemon.drain(timeout_s)
        lasted_s = time.monotonic() - since_s
        tried = {lane: count - before[lane] for lane, count in it.tried().items()}
        assert min(tried.values()) > MAX_RETRIES * EVENTS, f"the outage was too short: {tried}"
        most = EVENTS + (RESTARTS + 1) * most_probes(0) + most_probes(lasted_s)
        print(f"{RESTARTS} restarts, {lasted_s:.1f} s, at most {most:.0f} probes: {tried}")
        assert max(tried.values()) <= most, f"more than probes: {tried} in {lasted_s:.0f} s"
        counts = {lane: {int(str(row["retry_count"])) for row in it.tables[lane].rows()} for lane in it.outages}
        print(f"attempts counted: {counts}")
        assert max(max(found) for found in counts.values()) < MAX_RETRIES
        assert it.by_status() == {"delivered", "retryable"}
        for outage in it.outages.values():
            outage.end()
        with it.daemon() as daemon:
            daemon.wait_until(it.is_done, "everything to come to an end")
        assert it.by_status() == {"delivered"}


def most_probes(lasting_s: float) -> float:
    """Of all workers to one receiver: one at once, those that double the distance, and the regular ones."""
    return WORKERS * (2 + math.log2(MAX_PROBE_S / INITIAL_PROBE_S) + lasting_s / MAX_PROBE_S)


def test_after_an_outage_all_goes_on_at_once(mysql_url: str, tmp_path: Path) -> None:
    """G6: what was parked, for a minute, is pulled forward as soon as a probe has succeeded. Where nothing but parked
    events is left, one of them is pulled forward to be the probe."""
    times = {"initial_backoff": "60s", "max_backoff": "60s", "publish_timeout": "800ms"}
    with scene(mysql_url, tmp_path, **times) as it, it.daemon() as daemon:
        it.break_down(daemon)
        it.fill(BACKLOG)
        daemon.wait_for("breaker_opened", WORKERS * len(it.outages))
        daemon.wait_until(it.tables[STEADY].is_done, "the steady lane to be done")
        arrivals_s = [request.received_s for request in it.steady.requests[1:]]
        usual_s = max(arrivals_s) - min(arrivals_s)
        before, since_s = it.tried(), time.monotonic()
        it.wait_for_probes(daemon, probes=2)
        most = most_probes(time.monotonic() - since_s)
        assert max(count - before[lane] for lane, count in it.tried().items()) <= most, "more than probes"
        took_s = {lane: it.recover(daemon, lane) for lane in it.outages}
        print(f"{BACKLOG} events take {usual_s:.2f} s, after an outage {took_s}")
        assert max(took_s.values()) < 5 * usual_s + 2 * MAX_PROBE_S + 2

        quiet = [lane for lane in it.outages if lane != DNS]
        for lane in quiet:
            it.outages[lane].begin()
            it.tables[lane].fill(4 * WORKERS * DISTINCT_EVENTS)
        daemon.wait_until(lambda: all(nothing_is_due(it.tables[lane]) for lane in quiet), "all of it to be parked")
        took_s = {lane: it.recover(daemon, lane, outages=2) for lane in quiet}
        print(f"quiet lanes: {took_s}")
        assert max(took_s.values()) < 10, "nobody noticed that the receiver is back before an event came due by itself"
        assert "failed" not in it.by_status()


def nothing_is_due(table: Table) -> bool:
    """Does everything rest?"""
    return set(table.by_status()) == {"delivered", "retryable"}
