"""The connection to the database breaks at the worst moments of a transaction, under load, at the real daemon."""

import itertools
from pathlib import Path

from tests.services.chaos import scaled
from tests.services.lanes import event
from tests.services.proxy_rules import CUT, RESET
from tests.services.wired import CLAIM, SETTLE, wired

EVENTS = scaled(2000, 200)
CUTS = scaled(30, 3)
FEW_CUTS = scaled(20, 2)


def test_a_commit_without_an_answer_loses_and_repeats_nothing(mysql_url: str, tmp_path: Path) -> None:
    """G1, G8: cut before the COMMIT has reached the server, and when it is made but its answer is lost. The worker
    finds out which of the two: what it claimed it publishes at once, what it settled it does not publish again."""
    with wired(mysql_url, tmp_path, 2 * EVENTS) as run:
        cases = itertools.product((CLAIM, SETTLE), (False, True))
        rules = [
            run.proxy.rule("^commit", CUT, after=after, within=within, every=3, times=CUTS) for within, after in cases
        ]
        run.wait_for_end()
        assert [rule.hits for rule in rules] == [CUTS] * len(rules)
        run.check()


def test_a_connection_that_breaks_between_publish_and_settle_is_replaced(mysql_url: str, tmp_path: Path) -> None:
    """G1, G8: outcomes are settled from memory on the next connection, nothing is published again."""
    with wired(mysql_url, tmp_path, EVENTS) as run:
        rules = [run.proxy.rule(SETTLE, fault, every=3, times=CUTS) for fault in (CUT, RESET)]
        rules.append(run.proxy.rule(SETTLE, CUT, after=True, every=4, times=CUTS))
        run.wait_for_end()
        assert [rule.hits for rule in rules] == [CUTS] * 3
        run.check()


def test_an_attempt_is_counted_once_whatever_becomes_of_its_commit(mysql_url: str, tmp_path: Path) -> None:
    """G8: events whose first publish fails by their own fault; the outcome is written once, though it is sent again."""
    with wired(mysql_url, tmp_path, 50, initial_backoff="1s") as run:
        run.wait_for_end()
        cases = [("^commit", False), ("^commit", True), ("o_counted", True)]
        rules = [
            run.proxy.rule(text, CUT, after=after, within="o_counted", every=2, times=FEW_CUTS) for text, after in cases
        ]
        for _ in range(6 * FEW_CUTS):
            run.fill(10)
            run.fail_once([event(), event()], counted=True, status=500)
            run.fill(10)
        run.wait_for_end()
        # lease_lost: the outcome was written, but its event has been claimed again since, and nothing shows it now.
        run.check(told=("outbox_publish_retryable", "lease_lost"))
        assert all(rule.hits for rule in rules)
