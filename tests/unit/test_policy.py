"""What an outcome means for the row: delays, limits, texts."""

import random
from collections.abc import Callable

import pytest

from outboxd.config.schema import Lane
from outboxd.event import CONNECT, DELIVERED, REJECTED, SERVER_ERROR, THROTTLED, Dead, Delivered, Event, Outcome, Retry
from outboxd.redact import register
from outboxd.relay import policy
from outboxd.store.api import FAILED, RELEASED, RETRYABLE, Settlement
from tests.services.publishing import make_event

LANE = Lane(name="room_outbox", initial_backoff_s=5.0, max_backoff_s=300.0, max_retry_count=10, poll_interval_s=1.0)
FIXED = Lane(name="room_outbox", retry_strategy="fixed_interval", poll_interval_s=1.5, max_retry_count=3)
NOW_MS = 1_700_000_100_000.0
FAULT = Retry(SERVER_ERROR, "HTTP 500")
AWAY = Retry(CONNECT, "refused", counted=False)


def settle(outcome: Outcome, event: Event | None = None, lane: Lane = LANE, **changes: object) -> Settlement:
    """The settlement of an outcome; no jitter, no outage unless said."""
    usual: dict[str, object] = {"outage_s": 0.0, "now_ms": NOW_MS, "random": lambda: 0.5}
    event = event or make_event(created_at_ms=0)
    return policy.settlement_of(event, 77, outcome, lane, **{**usual, **changes})  # type: ignore[arg-type]


def delay_s(outcome: Retry, lane: Lane = LANE, outage_s: float = 0.0, chance: float = 0.5, **columns: object) -> float:
    """How long an event rests."""
    event = make_event(**{"created_at_ms": 0, **columns})
    return policy.retry_delay_s(event, outcome, lane, outage_s, NOW_MS, lambda: chance)


def test_a_delivered_row_clears_its_error_and_does_not_grow() -> None:
    """The status says that all accepted it; names are written only where some were there already."""
    assert settle(DELIVERED, make_event(id=5, last_error="HTTP 500")) == Settlement(5, 77, "delivered")
    assert settle(Delivered(("a", "b"))).published_to is None
    assert settle(Delivered(("a", "b")), make_event(published_to="a")).published_to == "a,b"


def test_a_counted_failure_uses_up_an_attempt_and_backs_off_by_its_number() -> None:
    """5 s, 10 s, 20 s, … 300 s, as configured."""
    settlement = settle(FAULT)
    assert (settlement.status, settlement.counted, settlement.delay_ms) == (RETRYABLE, True, 5000)
    assert [delay_s(FAULT, retry_count=count) for count in range(8)] == [5, 10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize(("chance", "expected_s"), [(0.0, 36.0), (0.5, 40.0), (0.99999, 44.0)])
def test_a_backoff_is_moved_by_a_tenth_at_the_most(chance: float, expected_s: float) -> None:
    """What failed together must not return together."""
    assert delay_s(FAULT, retry_count=3, chance=chance) == pytest.approx(expected_s, abs=0.01)


def test_jitter_never_exceeds_the_most() -> None:
    """`max_backoff` is a promise to whoever waits for the event."""
    assert delay_s(FAULT, retry_count=50, chance=0.99999) == 300.0
    assert delay_s(FAULT, retry_count=10**9) == 300.0


def test_the_last_attempt_ends_in_a_dead_letter() -> None:
    """`max_retry_count` is ten: the tenth counted failure, not the eleventh."""
    ninth, tenth = (settle(FAULT, make_event(retry_count=count)) for count in (8, 9))
    assert (ninth.status, tenth.status) == (RETRYABLE, FAILED)
    assert (tenth.counted, tenth.last_error) == (True, "HTTP 500")


def test_what_is_the_publishers_fault_is_never_a_last_attempt() -> None:
    """G6: an outage of any length puts nothing into `failed`."""
    for count in (0, 9, 10, 500):
        settlement = settle(AWAY, make_event(retry_count=count, created_at_ms=0))
        assert (settlement.status, settlement.counted) == (RETRYABLE, False)


@pytest.mark.parametrize(
    ("outage_s", "chance", "expected_s"),
    [
        (2.0, 0.0, 5.0),
        (2.0, 0.999, 7.5),
        (60.0, 0.0, 30.0),
        (60.0, 0.999, 45.0),
        (1e6, 0.0, 300.0),
        (1e6, 0.999, 300.0),
    ],
)
def test_an_uncounted_failure_rests_half_as_long_as_the_outage_has_lasted(
    outage_s: float, chance: float, expected_s: float
) -> None:
    """From initial_backoff to max_backoff, spread over half of it again so that a backlog does not return at once."""
    assert delay_s(AWAY, outage_s=outage_s, chance=chance) == pytest.approx(expected_s, abs=0.05)


def test_where_no_outage_is_known_the_events_own_age_counts() -> None:
    """A misconfiguration (404) is held by event, without a breaker that knows since when; unknown ages are zero."""
    assert delay_s(AWAY, chance=0.0, created_at_ms=int(NOW_MS) - 100_000) == 50.0
    assert delay_s(AWAY, chance=0.0, created_at_ms=0) == 5.0
    assert delay_s(AWAY, chance=0.0, created_at_ms=int(NOW_MS) + 9_000_000) == 5.0


def test_an_event_waits_at_least_as_long_as_the_far_side_asked() -> None:
    """Retry-After, clamped to max_backoff; a shorter one than our own changes nothing."""
    asked = [Retry(THROTTLED, "HTTP 429", False, retry_after_s=s) for s in (1.0, 60.0, 1e9)]
    assert [delay_s(outcome, chance=0.0) for outcome in asked] == [5.0, 60.0, 300.0]


def test_a_fixed_interval_retries_for_ever() -> None:
    """Every poll_interval, whatever the count."""
    for count in (0, 3, 100_000):
        settlement = settle(FAULT, make_event(retry_count=count), FIXED)
        assert (settlement.status, settlement.delay_ms) == (RETRYABLE, 1500)
    assert not policy.over_limit(make_event(retry_count=100_000), FIXED)


def test_a_retryable_row_is_never_due_at_zero() -> None:
    """A delay of nothing would make it a fresh row in front of the floor."""
    quick = Lane(name="room_outbox", retry_strategy="fixed_interval", poll_interval_s=0.0001)
    assert settle(FAULT, lane=quick).delay_ms == 1


def test_a_dead_outcome_is_a_dead_letter_at_once() -> None:
    """With the names of who refused it, so that a replay knows whom to ask."""
    settlement = settle(Dead(REJECTED, "HTTP 422", accepted=("a",), refused=("b",)))
    assert (settlement.status, settlement.counted, settlement.published_to) == (FAILED, True, "a,!b")


def test_attempts_used_up_before_the_claim_end_the_event_unpublished() -> None:
    """Workers died with it ten times: the reason says so and keeps what was known."""
    assert policy.over_limit(make_event(retry_count=10), LANE)
    assert not policy.over_limit(make_event(retry_count=9), LANE)
    settlement, dead = policy.limit_exceeded(make_event(retry_count=10, last_error="HTTP 500"), 77)
    assert settlement.last_error == "outbox retry limit exceeded: HTTP 500"
    assert (settlement.status, settlement.counted, dead.reason) == (FAILED, False, "retry_limit")
    unknown, _ = policy.limit_exceeded(make_event(retry_count=10), 77)
    assert str(unknown.last_error).startswith("outbox retry limit exceeded: ")


def test_an_oversize_event_says_how_large_it_is_and_what_is_allowed() -> None:
    """Whoever reads it must know which number to change."""
    settlement, _ = policy.oversize(make_event(envelope=b""), 77, 9_000_000, 8_388_608)
    assert settlement.status == FAILED
    assert "9000000" in str(settlement.last_error)
    assert "max_event_bytes (8388608)" in str(settlement.last_error)


def test_a_release_changes_neither_count_nor_error() -> None:
    """It was not published: nothing has happened to it."""
    assert policy.release(make_event(id=5), 77) == Settlement(5, 77, RELEASED)


ENDS: list[Callable[[str], Settlement]] = [
    lambda text: settle(Retry(SERVER_ERROR, text)),
    lambda text: settle(Retry(SERVER_ERROR, text), make_event(retry_count=9)),
    lambda text: settle(Dead(REJECTED, text)),
    lambda text: policy.limit_exceeded(make_event(last_error=text, retry_count=10), 77)[0],
]


@pytest.mark.parametrize("end", ENDS)
def test_an_error_has_512_characters_at_the_most(end: Callable[[str], Settlement]) -> None:
    """G9: characters, not bytes, cut on a character: emoji of four bytes each survive whole."""
    text = end("🚀" * 5000).last_error
    assert text is not None
    assert len(text) == 512
    assert text.endswith("🚀🚀")
    assert text.encode().decode() == text


def test_an_error_is_valid_utf8_whatever_came() -> None:
    """G9: half a surrogate pair, zero bytes and line breaks from an answer never reach the database as they are."""
    chance = random.Random(1)
    for _ in range(200):
        raw = "".join(chr(chance.choice((0, 10, 13, 0xD83D, 0xDE80, 0x1F680, 0x41, 0x2028))) for _ in range(600))
        text = settle(Retry(SERVER_ERROR, raw)).last_error
        assert text is not None
        assert len(text) <= 512
        text.encode("utf-8")
        assert not set(text) & {"\0", "\n", "\r", "\u2028"}


def test_an_error_shows_no_secret() -> None:
    """G11: also where the far side echoes it, and where the cut would go through it."""
    register(["s3cr3t-token-of-the-receiver"])
    text = settle(Retry(SERVER_ERROR, "x" * 500 + "s3cr3t-token-of-the-receiver")).last_error
    assert text is not None
    assert "s3cr" not in text
    shown = settle(Retry(CONNECT, "https://user:pw@host/path?key=1 failed", counted=False)).last_error
    assert shown is not None
    assert "pw" not in shown
    assert "key=1" not in shown
