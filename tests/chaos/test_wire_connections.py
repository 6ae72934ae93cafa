"""Connections to the database end in every way that TCP knows, while at work and while logging in."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.services.chaos import scaled
from tests.services.proxy import Proxy
from tests.services.proxy_rules import CUT, GREETING, LOGIN, RESET, SILENCE, Fault, error
from tests.services.wired import WORKERS, wired

ROUNDS = scaled(10, 1)
LIMIT_S = 1.0
"""connect_timeout and statement_timeout of `wired`."""
LONGEST_PAUSE_S = 0.6
"""Behind the second failure, with chance."""
MARGIN_S = 4.0
"""For a loaded machine."""
FAILURES = WORKERS
"""Of a login, over all workers."""

LOGINS: list[tuple[str, Fault, bool]] = [
    (GREETING, SILENCE, True),
    (GREETING, error(1040), True),  # too many connections
    (LOGIN, RESET, False),
    ("wait_timeout", SILENCE, False),
    (GREETING, CUT, True),
    (LOGIN, SILENCE, True),
][: scaled(6, 4)]

ENDS: dict[str, Callable[[Proxy], None]] = {
    "FIN": Proxy.cut,
    "RST": lambda proxy: proxy.cut(reset=True),
    "the client reads an end": lambda proxy: proxy.half_close(to_client=True),
    "the server reads an end": lambda proxy: proxy.half_close(to_client=False),
}


def test_connections_that_end_under_load_are_replaced(mysql_url: str, tmp_path: Path) -> None:
    """G1, G8, G10: whatever the end looks like, both workers say it once, settle from memory and go on."""
    with wired(mysql_url, tmp_path, 150) as run:
        outages = 0
        for end in list(ENDS.values()) * ROUNDS:
            run.wait_for_requests(50)
            end(run.proxy)
            outages += 1
            run.daemon.wait_for("database_unavailable", outages * WORKERS)
            run.wait_until_back()
            run.fill(150)
        run.check(outages)


def test_a_login_that_fails_is_tried_again(mysql_url: str, tmp_path: Path) -> None:
    """G9, G10: at whatever word of it; bounded by connect_timeout, said once, tried again until it succeeds."""
    with wired(mysql_url, tmp_path, 50) as run:
        run.daemon.workers(WORKERS)
        for outages, (word, fault, after) in enumerate(LOGINS, 1):
            run.wait_for_end()
            rule = run.proxy.rule(word, fault, after=after, times=FAILURES)
            since_s = time.monotonic()
            run.proxy.cut()
            run.daemon.wait_for("database_unavailable", outages * WORKERS)
            run.wait_until_back()
            took_s = time.monotonic() - since_s
            assert rule.hits == FAILURES
            assert took_s < FAILURES * (LIMIT_S + LONGEST_PAUSE_S) + MARGIN_S
        run.check(len(LOGINS))


def test_a_login_that_hangs_at_the_start_is_waited_for(mysql_url: str, tmp_path: Path) -> None:
    """G10: the daemon comes up, is not refused, and works as soon as the database speaks."""

    def fall_silent(proxy: Proxy) -> None:
        proxy.rule(GREETING, SILENCE, after=True, times=None)

    with wired(mysql_url, tmp_path, 50, before=fall_silent) as run:
        run.daemon.wait_for("database_unavailable", WORKERS)
        tried = len(run.proxy.accepted_s)
        run.daemon.wait_until(lambda: len(run.proxy.accepted_s) >= tried + WORKERS, "more tries")
        run.proxy.heal()
        run.check(outages=1)
