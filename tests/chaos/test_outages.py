"""Receivers that are away for long, with restarts of the daemon in it: no event pays for it (G6), and all goes on at once.

`OUTBOXD_CHAOS=full` makes many restarts of what is otherwise a small sample.
"""

import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

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
BACKLOG = scaled(3000, 600)
MAX_RETRIES = 3
DISTINCT_EVENTS = 5
PUBLISH_TIMEOUT_S = 0.2
INITIAL_PROBE_S, MAX_PROBE_S = 0.1, 0.3
STEADY = "lane_steady"
DNS = "lane_dns"
"""Away from the start: a name once found is kept for a minute."""


@dataclass(frozen=True)
class Scene:
    """Six lanes, each with a receiver that breaks down in its own way, and one whose receiver does not."""

    directory: Path
    url: str
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

    def tried(self) -> dict[str, int]:
        """Lane -> how often its receiver was tried, where that can be seen."""
        return {lane: outage.asked() for lane, outage in self.outages.items() if outage.asked is not None}


def configure(directory: Path, url: str, found: dict[str, Outage], steady: Receiver, **worker: object) -> Config:
    """Each lane with a publisher of its own."""
    breaker = {"initial_probe": f"{INITIAL_PROBE_S}s", "max_probe": f"{MAX_PROBE_S}s", "distinct_events": DISTINCT_EVENTS}
    publishers = {lane: {"type": "http", **outage.settings, "breaker": breaker} for lane, outage in found.items()}
    publishers[STEADY] = {"type": "http", "url": steady.url, "breaker": breaker}
    return write_config(
        directory / "outbox.yaml", url, publishers, lanes={lane: {"direct": [lane]} for lane in publishers},
        publish_timeout=f"{PUBLISH_TIMEOUT_S}s", lease="2600ms", max_retry_count=MAX_RETRIES, concurrency=WORKERS,
        **worker,  # type: ignore[arg-type]
    )  # fmt: skip


@contextmanager
def scene(
    url: str, directory: Path, initial_backoff: str = "100ms", max_backoff: str = "500ms"
) -> Iterator[Scene]:
    """Every lane's table, and all receivers, which still work."""
    with ExitStack() as stack:
        kinds, environ = stack.enter_context(outages(directory))
        steady = stack.enter_context(Receiver())
        found = {f"lane_{kind}": outage for kind, outage in kinds.items()}
        config = configure(directory, url, found, steady, initial_backoff=initial_backoff, max_backoff=max_backoff)
        yield Scene(directory, url, found, environ, steady, stack.enter_context(lanes_of(config)))


def test_a_long_outage_with_many_restarts_costs_nobody(mysql_url: str, tmp_path: Path) -> None:
    """G6: refused, 503, 500, hanging, TLS, DNS: every event is tried more often than it may fail; none is dead, and the
    receiver is not battered: only probes reach it."""
    with scene(mysql_url, tmp_path) as it:
        it.fill(1)
        it.outages[DNS].begin()
        with it.daemon() as daemon:
            it.break_down(daemon)
            before, since_s = it.tried(), time.monotonic()
            it.fill(EVENTS)
            wait_for_probes(it, daemon)
            daemon.drain(PUBLISH_TIMEOUT_S)
        for _ in range(RESTARTS):
            with it.daemon() as daemon:
                wait_for_probes(it, daemon)
                daemon.drain(PUBLISH_TIMEOUT_S)
        lasted_s = time.monotonic() - since_s
        tried = {lane: count - before[lane] for lane, count in it.tried().items()}
        assert min(tried.values()) > MAX_RETRIES * EVENTS, f"the outage was too short: {tried}"
        growing = math.log2(MAX_PROBE_S / INITIAL_PROBE_S)
        most = EVENTS + WORKERS * ((RESTARTS + 1) * (2 + growing) + lasted_s / MAX_PROBE_S)
        assert max(tried.values()) <= most, f"more than probes: {tried} in {lasted_s:.0f} s"
        print(f"{RESTARTS} restarts, {lasted_s:.1f} s, at most {most:.0f} probes: {tried}")
        for lane in it.outages:
            print(lane, Counter(row["retry_count"] for row in it.tables[lane].rows()))
            assert "failed" not in it.tables[lane].by_status(), lane
            assert max(int(str(row["retry_count"])) for row in it.tables[lane].rows()) < MAX_RETRIES, lane
        for outage in it.outages.values():
            outage.end()
        with it.daemon() as daemon:
            daemon.wait_until(it.is_done, "everything to come to an end")
        assert {lane: table.by_status() for lane, table in it.tables.items()} == dict.fromkeys(
            it.tables, {"delivered": 1 + EVENTS}
        )


def wait_for_probes(it: Scene, daemon: Daemon) -> None:
    """Let it try for a while."""
    wanted = {lane: count + scaled(7, 5) * WORKERS for lane, count in it.tried().items()}
    daemon.wait_until(lambda: all(count >= wanted[lane] for lane, count in it.tried().items()), "probes")


def test_after_an_outage_the_backlog_goes_at_full_speed(mysql_url: str, tmp_path: Path) -> None:
    """G6: what was parked, for a minute, is pulled forward as soon as a probe has succeeded. Only the few that failed
    before it was known to be an outage rest for as long as a failed event does."""
    with scene(mysql_url, tmp_path, initial_backoff="60s", max_backoff="60s") as it:
        it.fill(1)
        it.outages[DNS].begin()
        with it.daemon() as daemon:
            it.break_down(daemon)
            it.fill(BACKLOG)
            daemon.wait_for("breaker_opened", WORKERS * len(it.outages))
            daemon.wait_until(it.tables[STEADY].is_done, "the steady lane to be done")
            arrivals_s = [request.received_s for request in it.steady.requests[1:]]
            usual_s = max(arrivals_s) - min(arrivals_s)
            took_s = {lane: recover(it, daemon, lane) for lane in it.outages}
        print(f"usually {usual_s:.2f} s for {BACKLOG}; after the outage", took_s)
        assert max(took_s.values()) < 3 * usual_s + 5 * MAX_PROBE_S + 1
        assert {lane for lane in it.tables if "failed" in it.tables[lane].by_status()} == set()


def recover(it: Scene, daemon: Daemon, lane: str) -> float:
    """End the outage; how long it took until all but what failed while the breaker was closed was delivered."""
    since_s = time.monotonic()
    it.outages[lane].end()
    resting = WORKERS * DISTINCT_EVENTS
    daemon.wait_until(lambda: it.tables[lane].unfinished() <= resting, f"{lane} to be done", timeout_s=30)
    return time.monotonic() - since_s


def test_a_quiet_lane_notices_that_its_receiver_is_back(mysql_url: str, tmp_path: Path) -> None:
    """G6: nothing new comes in and everything is parked for a minute: one of them is pulled forward as a probe."""
    with scene(mysql_url, tmp_path, initial_backoff="60s", max_backoff="60s") as it:
        it.fill(1)
        it.outages[DNS].begin()
        with it.daemon() as daemon:
            it.break_down(daemon)
            it.fill(EVENTS + 2 * DISTINCT_EVENTS)
            daemon.wait_for("breaker_opened", WORKERS * len(it.outages))
            took_s = {lane: recover(it, daemon, lane) for lane in it.outages}
            print(took_s)
