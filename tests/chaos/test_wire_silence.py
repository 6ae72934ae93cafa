"""The network to the database falls silent without a word, or answers late, under load, at the real daemon."""

import itertools
import time
from pathlib import Path

from tests.services.chaos import scaled
from tests.services.lanes import event
from tests.services.proxy_rules import BLACKHOLE
from tests.services.wired import CLAIM, SETTLE, STATEMENT_TIMEOUT_S, WORKERS, wired

ROUNDS = scaled(5, 1)
EVENTS = 150
"""More of them come after each fault."""
MARGIN_S = 4.0
"""For a loaded machine."""
BLOCKED_S = 3.0
"""statement_timeout, where a test wants it to be longer than publish_timeout."""
PUBLISH_TIMEOUT_S = 1.0
DIRECTIONS = {"both ways": (True, True), "answers vanish": (False, True), "statements vanish": (True, False)}


def test_a_half_open_connection_is_given_up_and_nothing_is_lost(mysql_url: str, tmp_path: Path) -> None:
    """G1, G8, G9, G10: the worker notices within its limits, says it once and stays; healed, it settles from memory.
    What the silence held back, a COMMIT perhaps, reaches the server then, from a client that has left."""
    with wired(mysql_url, tmp_path, EVENTS) as run:
        outages = 0
        for to_server, to_client in list(DIRECTIONS.values()) * ROUNDS:
            run.wait_for_requests(50)
            run.proxy.blackhole(to_server, to_client)
            since_s = time.monotonic()
            outages += 1
            run.daemon.wait_for("database_unavailable", outages * WORKERS)
            assert time.monotonic() - since_s < STATEMENT_TIMEOUT_S + MARGIN_S
            run.pass_time(STATEMENT_TIMEOUT_S / 2)
            run.proxy.heal()
            run.wait_until_back()
            run.fill(EVENTS)
        run.wait_for_end()
        run.check(outages)


def test_a_commit_that_is_on_its_way_for_long_does_no_harm(mysql_url: str, tmp_path: Path) -> None:
    """G1, G8: silence falls at the COMMIT, or at its answer; what was on its way arrives when the client has given up
    long ago and is about to find out on another connection what became of it."""
    with wired(mysql_url, tmp_path, EVENTS) as run:
        outages = 0
        for within, after in list(itertools.product((CLAIM, SETTLE), (False, True))) * ROUNDS:
            run.wait_for_requests(20)
            rule = run.proxy.rule("^commit", BLACKHOLE, after=after, within=within)
            outages += 1
            run.daemon.wait_for("database_unavailable", outages * WORKERS)
            assert rule.hits == 1
            run.proxy.heal()
            run.wait_until_back()
            run.fill(EVENTS)
        run.wait_for_end()
        run.check(outages)


def test_late_answers_are_no_fault(mysql_url: str, tmp_path: Path) -> None:
    """G10: every answer takes 50 to 200 ms, and nobody is alarmed."""
    with wired(mysql_url, tmp_path, scaled(1000, 20)) as run:
        run.daemon.workers(WORKERS)
        run.proxy.delay(0.05, 0.2)
        run.wait_for_end()
        run.check(outages=0)


def test_publishes_in_flight_end_while_a_statement_blocks(mysql_url: str, tmp_path: Path) -> None:
    """G4: as it is today, one thread serves both sides. An answer that came in time counts, however late it is read; a
    publish that gets none is given up when the statement is, `statement_timeout` later at the most."""
    statement_timeout = {"statement_timeout": f"{BLOCKED_S}s", "connect_timeout": "1s"}
    with wired(mysql_url, tmp_path, 20, concurrency=1, database=statement_timeout, initial_backoff="100ms") as run:
        run.wait_for_end()
        run.receiver.answer(delay_s=0.3, times=7)
        hanging = event()
        run.fail_once([hanging], counted=True, hang=True)
        run.fill(7)
        run.wait_for_requests(8)
        run.proxy.blackhole()
        since_s = time.monotonic()
        (line,) = run.daemon.wait_for("outbox_publish_retryable")
        took_s = time.monotonic() - since_s
        assert (line["event_id"], line["reason"]) == (hanging["event_id"], "timeout")
        assert took_s < PUBLISH_TIMEOUT_S + BLOCKED_S + MARGIN_S
        run.proxy.heal()
        run.check(outages=1, told=("outbox_publish_retryable",))
