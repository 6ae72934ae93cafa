"""What a silent or lost session holds is free again in time, and no sooner."""

import re
from pathlib import Path

import pytest

from outboxd.relay.link import JITTER, LONGEST_PAUSE_S
from tests.services.chaos import FULL
from tests.services.daemon import LANE, Daemon, write_config
from tests.services.proxy_rules import BLACKHOLE, SILENCE
from tests.services.wired import CLAIM, SETTLE, wired

FREE_WITHIN_S = 60.0
"""The server ends a session of ours that is silent for 30 s."""
PUBLISH_TIMEOUT_S = 1.0
OTHERS_PAUSE_S = LONGEST_PAUSE_S * (1 + JITTER)
LOOKED = re.compile("SELECT .* AND claim_token = N AND status = 'delivering'")
MARGIN_S = 5.0
"""For a loaded machine."""


def test_rows_that_a_vanished_node_has_locked_are_delivered_by_another(mysql_url: str, tmp_path: Path) -> None:
    """G1, G2: a node goes silent between SELECT … FOR UPDATE and COMMIT. Its connection stays open, and no lease was
    written that could run out: its locks end with its session, by the server's limit for sessions of ours."""
    with wired(mysql_url, tmp_path, 20, concurrency=1) as run:
        run.wait_for_end()
        rule = run.proxy.rule("WHERE due_at_ms = N .* FOR UPDATE SKIP LOCKED", BLACKHOLE, after=True)
        run.fill(50)
        run.daemon.wait_until(lambda: rule.hits, "a claim")
        free = len(run.table.connection.query(f"SELECT id FROM {LANE} WHERE status = 'pending' FOR UPDATE SKIP LOCKED"))
        assert 0 < free < 50, "the silent claim holds some of them"
        web = {"web": {"type": "http", "url": run.receiver.url}}
        write_config(tmp_path / "other.yaml", mysql_url, web, node_id="other")
        with Daemon(tmp_path / "other.yaml", tmp_path / "other.log") as other:
            other.wait_until(lambda: len(run.receiver.requests) >= 20 + free, "what is free to be delivered")
            other.wait_until(run.table.is_done, "what was locked to be delivered", FREE_WITHIN_S)
            other.drain(3.0)
        assert {str(row["worker_id"])[:6] for row in run.table.rows()[20:]} == {"other/"}
        run.proxy.heal()
        run.fill(20)
        run.wait_for_end()
        run.check(outages=1)


def test_leases_that_ran_out_during_an_outage_are_left_alone_for_a_while(mysql_url: str, tmp_path: Path) -> None:
    """G3, G8: back again, a worker settles what it had published by its token, although its lease has run out; another
    one's lost leases it takes only `publish_timeout` after the longest pause between two tries to connect, so that the
    other may do the same."""
    with wired(mysql_url, tmp_path, 20, concurrency=1, lease="5s") as run:
        run.wait_for_end()
        run.lose(lock_until_ms=1)
        run.wait_for_end()  # the worker's first connection is older than publish_timeout now
        rule = run.proxy.rule(SETTLE, BLACKHOLE)
        run.fill(8)
        run.daemon.wait_until(lambda: rule.hits, "a settle")
        lost = run.lose(run.table.now_ms() + 100)
        run.daemon.wait_until(
            lambda: not run.table.rows(f"status = 'delivering' AND lock_until_ms > {run.table.now_ms()}"),
            "every lease to run out",
        )
        run.proxy.heal()
        run.wait_for_end()
        (request,) = (request for request in run.receiver.requests if request.event_id == lost)
        waits_s = OTHERS_PAUSE_S + PUBLISH_TIMEOUT_S
        assert waits_s <= request.received_s - run.proxy.accepted_s[-1] < waits_s + MARGIN_S
        run.check(outages=1)


@pytest.mark.skipif(not FULL, reason="OUTBOXD_CHAOS=full only: it waits for a lease")
def test_a_claim_that_is_committed_after_its_worker_has_looked_waits_for_its_lease(
    mysql_url: str, tmp_path: Path
) -> None:
    """G1, G8: as it is today. One connection stalls at the COMMIT while another one lives: there the worker sees
    nothing of its claim, and forgets it. The COMMIT comes through later: nobody holds those events until their lease
    has run out, which counts. Nothing is lost, nothing is published twice."""
    with wired(mysql_url, tmp_path, 20, concurrency=1, lease="5s") as run:
        run.wait_for_end()
        rule = run.proxy.rule("^commit", SILENCE, within=CLAIM)
        run.fill(3)
        stalled = run.ids[-3:]
        run.daemon.wait_until(lambda: rule.hits, "a claim")
        run.daemon.wait_until(lambda: any(map(LOOKED.match, run.proxy.statements)), "the worker to look for its claim")
        assert {run.table.row(event_id)["status"] for event_id in stalled} == {"pending"}
        run.proxy.heal()
        run.daemon.wait_until(lambda: run.table.by_status().get("delivering"), "the late COMMIT")
        run.counted |= dict.fromkeys(stalled, 1)
        run.check(outages=1)
