"""Deadlocks and lock waits at every kind of statement that a worker sends: the transaction is made again, no event
notices."""

import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from outboxd.store import statements
from tests.services.chaos import FULL, SEED, scaled
from tests.services.lanes import event
from tests.services.proxy_rules import CUT, LOGIN, Rule, error
from tests.services.wired import CLAIM, SETTLE, Wired, wired

CHANCE = random.Random(SEED)
LOCK_WAIT, DEADLOCK = 1205, 1213
OF_THE_LANE = re.compile("`room_outbox`|^START|^COMMIT")
"""Statements of a worker at work. All others open a session."""
MORE_THAN_REPEATED = 5
"""A transaction is made four times before its call fails."""
STALE = "robot_outbox_stale_discarded"
LARGE = b'{"a": "' + b"x" * 400 + b'"}'
"""Too long for its share of max_inflight_bytes: it is read by a statement of its own."""


@pytest.fixture
def run(mysql_url: str, tmp_path: Path) -> Iterator[Wired]:
    """At work, with little room for payloads and short pauses."""
    with wired(
        mysql_url, tmp_path, 20, max_inflight_bytes=4000, initial_backoff="200ms", stale_discard_after="1h"
    ) as run:
        run.daemon.workers(2)
        run.wait_for_end()
        yield run


def stir(run: Wired) -> None:
    """Bring about everything that makes a worker send something: work, payloads that are read by themselves, a session
    that is lost while events are published, COMMITs without an answer, a receiver that is away, a lost lease, events
    that are stale."""
    run.fill(20, envelope=LARGE)
    run.table.fill(3, created_at_ms=1)
    in_doubt = [run.proxy.rule("^commit", CUT, after=True, within=within) for within in (CLAIM, SETTLE)]
    run.fill(20)
    run.daemon.wait_until(lambda: all(rule.hits for rule in in_doubt), "both COMMITs to be cut")
    run.fill(20)
    run.wait_for_requests(5)
    run.proxy.cut()
    run.wait_for_end()
    run.fail_once([event() for _ in range(10)], counted=False, status=503)
    run.fill(30)
    run.lose(lock_until_ms=1)
    run.wait_for_end()
    del run.receiver.rules[:-1]  # those of events that are delivered


def kinds_of(run: Wired) -> list[str]:
    """Every kind of statement that the workers send: all that the relay has."""
    own = len(statements.load("mysql").keys() - {"unfinished"}) + len(("START TRANSACTION", "COMMIT"))
    run.proxy.statements.clear()
    for _ in range(10):
        stir(run)
        # ROLLBACK cannot fail so: what it would wait for is its own. A ping comes after ten seconds of silence.
        kinds = sorted(run.proxy.statements.keys() - {LOGIN, "ROLLBACK", "DO N"})
        if len([kind for kind in kinds if OF_THE_LANE.search(kind)]) == own and len(kinds) > own + 5:
            return kinds
    raise AssertionError(f"{own} statements are the relay's; only these were sent: {kinds}")


def fails(run: Wired, kind: str, number: int, times: int) -> Rule:
    """Let the next statements of that kind fail."""
    return run.proxy.rule(f"^{re.escape(kind)}$", error(number), times=times)


def stir_until_hit(run: Wired, rules: list[Rule]) -> None:
    """Each rule has made a fault; those that have not made all of theirs go on."""
    for _ in range(10):
        stir(run)
        if all(rule.hits for rule in rules):
            return
    raise AssertionError(f"never sent again: {[rule.pattern for rule in rules if not rule.hits]}")


def check(run: Wired, faults: int) -> None:
    """Nothing lost, nothing twice, no attempt counted, one line at the most for each fault."""
    run.check(told=("worker_batch_failed", "breaker_opened", "breaker_closed", "outbox_publish_retryable", STALE))
    lines = run.daemon.lines("worker_batch_failed")
    assert len(lines) <= faults
    assert {line["level"] for line in lines} <= {"info"}


def test_conflicts_everywhere_at_once_harm_no_event(run: Wired) -> None:
    """G1, G8: each kind of statement fails with either number, whatever the others do; then some of those of
    transactions so often that the call is given up and made again later."""
    kinds = kinds_of(run)
    rules = [fails(run, kind, number, 1) for kind, number in itertools.product(kinds, (LOCK_WAIT, DEADLOCK))]
    stir_until_hit(run, rules)
    of_the_lane = [kind for kind in kinds if OF_THE_LANE.search(kind)]
    often = CHANCE.sample(of_the_lane, scaled(len(of_the_lane), 4))
    rules += [fails(run, kind, CHANCE.choice((LOCK_WAIT, DEADLOCK)), MORE_THAN_REPEATED) for kind in often]
    stir_until_hit(run, rules)
    check(run, sum(rule.hits for rule in rules))


@pytest.mark.skipif(not FULL, reason="OUTBOXD_CHAOS=full only: minutes")
def test_conflicts_at_each_kind_of_statement_in_turn_harm_no_event(run: Wired) -> None:
    """G1, G8: one kind after the other, so that no fault hides another, and more often than a call repeats it."""
    rules: list[Rule] = []
    for kind, number in itertools.product(kinds_of(run), (LOCK_WAIT, DEADLOCK)):
        rules.append(fails(run, kind, number, MORE_THAN_REPEATED))
        stir_until_hit(run, rules)
    check(run, sum(rule.hits for rule in rules))
