"""The worker's hold on a database that comes and goes."""

import time
from typing import Any, cast

import pytest

from outboxd import log
from outboxd.errors import StoreUnavailable
from outboxd.relay.link import FIRST_PAUSE_S, LONGEST_PAUSE_S, PROVEN_S, QUIET_S, Link
from outboxd.store.api import Store


class Session:
    """All that Link asks of a store."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Log events, in order."""
    events: list[str] = []

    def note(event: str, **_fields: Any) -> None:
        events.append(event)

    monkeypatch.setattr(log, "info", note)
    monkeypatch.setattr(log, "warning", note)
    return events


def link() -> Link:
    """To a database that lets every session in."""
    return Link(lambda: cast(Store, Session()), lambda: 0.5)


def test_a_server_that_lets_in_but_takes_no_write_is_asked_ever_more_rarely(said: list[str]) -> None:
    """G10: read-only, or a full disk: one line, and pauses that grow, although each session opens."""
    held = link()
    pauses_s = []
    for _ in range(10):
        assert held.connect(held.retry_at_s + 1)
        before_s = time.monotonic()
        held.lost(StoreUnavailable("read-only (1290)"))
        pauses_s.append(round(held.retry_at_s - before_s, 2))
    assert said == [log.DATABASE_UNAVAILABLE]
    assert (pauses_s[0], pauses_s[-1]) == (FIRST_PAUSE_S, LONGEST_PAUSE_S)
    assert pauses_s == sorted(pauses_s)


def test_no_pause_is_longer_than_others_are_told() -> None:
    """G8: those who are back first wait so long for the rest; a first session waits for nobody."""
    held = Link(lambda: cast(Store, Session()), lambda: 0.999)
    assert held.others_pause_s() == 0
    for _ in range(10):
        held.connect(held.retry_at_s + 1)
        held.lost(StoreUnavailable("gone"))
        assert held.retry_at_s - time.monotonic() <= held.others_pause_s()
    held.connect(held.retry_at_s)
    assert held.others_pause_s() > 0, "until it is settled"
    held.used(time.monotonic() + PROVEN_S, wrote=True)
    assert held.others_pause_s() == 0


def test_the_database_is_back_when_it_goes_on_taking_writes(said: list[str]) -> None:
    """G10: once per change of state; and the next outage begins with the first pause again."""
    held = link()
    held.connect(0.0)
    held.lost(StoreUnavailable("gone"))
    held.connect(held.retry_at_s)
    now_s = time.monotonic()
    held.used(now_s, wrote=True)
    held.used(now_s + PROVEN_S + 0.1, wrote=False)
    held.used(now_s + PROVEN_S + 0.2, wrote=True)
    assert said == [log.DATABASE_UNAVAILABLE, log.DATABASE_AVAILABLE]
    before_s = time.monotonic()
    held.lost(StoreUnavailable("gone again"))
    assert held.retry_at_s - before_s == pytest.approx(FIRST_PAUSE_S, abs=0.05)


def test_a_disk_that_is_nearly_full_is_one_outage(said: list[str]) -> None:
    """G9, G10: it takes a small write in each session and refuses the next one: one line."""
    held = link()
    for _ in range(10):
        held.connect(held.retry_at_s + 1)
        now_s = time.monotonic()
        held.used(now_s, wrote=True)
        held.used(now_s + PROVEN_S / 2, wrote=True)
        held.lost(StoreUnavailable("the table is full (1114)"))
    assert said == [log.DATABASE_UNAVAILABLE]
    assert held.retry_at_s - now_s == pytest.approx(FIRST_PAUSE_S, abs=0.1), "what it takes is worth the trying"


def test_a_session_with_nothing_to_write_is_believed_after_a_while(said: list[str]) -> None:
    """An idle lane must not stay "unavailable" in the log until its next event."""
    held = link()
    held.connect(0.0)
    held.lost(StoreUnavailable("gone"))
    held.connect(held.retry_at_s)
    now_s = time.monotonic()
    held.used(now_s + QUIET_S - 0.5, wrote=False)
    assert said == [log.DATABASE_UNAVAILABLE]
    held.used(now_s + QUIET_S + 0.5, wrote=False)
    assert said == [log.DATABASE_UNAVAILABLE, log.DATABASE_AVAILABLE]
