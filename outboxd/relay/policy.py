"""What an outcome means for the row: pure arithmetic over the lane's settings. `random` gives floats in [0, 1)."""

from collections.abc import Callable

from outboxd.backoff import exponential, jittered
from outboxd.config.schema import EXPONENTIAL, Lane
from outboxd.event import RETRY_LIMIT, Dead, Delivered, Event, Outcome, Retry
from outboxd.publishers.fanout import published_to
from outboxd.redact import clip, redact
from outboxd.store.api import DELIVERED, DISCARDED, FAILED, LAST_ERROR_CHARACTERS, RELEASED, RETRYABLE, Settlement

JITTER = 0.1


def settlement_of(
    event: Event, token: int, outcome: Outcome, lane: Lane, outage_s: float, now_ms: float, random: Callable[[], float]
) -> Settlement:
    """The row's new state. outage_s: how long the publishers have been failing, 0 while they work. now_ms: about the
    database's time; only an event's age is taken from it, to space out attempts that do not count."""
    if isinstance(outcome, Delivered):
        # One publisher, or all of them at once: the status says it; the row need not grow.
        names = published_to(outcome) if event.published_to else None
        return Settlement(event.id, token, DELIVERED, published_to=names)
    names = published_to(outcome)
    if isinstance(outcome, Dead):
        return Settlement(event.id, token, FAILED, True, 0, _text(outcome.error), names)
    if outcome.counted and is_last_attempt(event, lane):
        return Settlement(event.id, token, FAILED, True, 0, _text(outcome.error), names)
    delay_s = retry_delay_s(event, outcome, lane, outage_s, now_ms, random)
    error = _text(outcome.error)
    return Settlement(event.id, token, RETRYABLE, outcome.counted, max(1, round(delay_s * 1000)), error, names)


def is_last_attempt(event: Event, lane: Lane) -> bool:
    """Does one more counted failure end the event's life?"""
    return lane.retry_strategy == EXPONENTIAL and event.retry_count + 1 >= lane.max_retry_count


def over_limit(event: Event, lane: Lane) -> bool:
    """Have its attempts been used up before this claim (by workers that died with it)?"""
    return lane.retry_strategy == EXPONENTIAL and event.retry_count >= lane.max_retry_count


def retry_delay_s(
    event: Event, outcome: Retry, lane: Lane, outage_s: float, now_ms: float, random: Callable[[], float]
) -> float:
    """How long the event rests. A counted failure backs off by its number; one that is the publisher's fault waits half
    as long as the outage (or the event's own waiting) has lasted, spread out so that a backlog does not return as one.
    """
    if lane.retry_strategy != EXPONENTIAL:
        delay_s = lane.poll_interval_s
    elif outcome.counted:
        delay_s = exponential(event.retry_count + 1, lane.initial_backoff_s, lane.max_backoff_s)
        delay_s = min(lane.max_backoff_s, jittered(delay_s, JITTER, random))
    else:
        age_s = max(0.0, (now_ms - event.created_at_ms) / 1000) if event.created_at_ms else 0.0
        base_s = min(max((outage_s or age_s) / 2, lane.initial_backoff_s), lane.max_backoff_s)
        delay_s = min(lane.max_backoff_s, base_s * (1 + random() / 2))
    return max(delay_s, min(outcome.retry_after_s or 0.0, lane.max_backoff_s))


def limit_exceeded(event: Event, token: int) -> tuple[Settlement, Dead]:
    """The end of an event whose attempts are used up before it is published."""
    error = f"outbox retry limit exceeded: {event.last_error or 'its worker died or lost its lease each time'}"
    return Settlement(event.id, token, FAILED, False, 0, _text(error)), Dead(RETRY_LIMIT, error)


def oversize(event: Event, token: int, size_bytes: int, limit_bytes: int) -> tuple[Settlement, Dead]:
    """The end of an event that is larger than the lane allows."""
    error = f"envelope of {size_bytes} bytes is larger than max_event_bytes ({limit_bytes})"
    return Settlement(event.id, token, FAILED, False, 0, error), Dead("invalid", error)


def release(event: Event, token: int) -> Settlement:
    """Given back unpublished."""
    return Settlement(event.id, token, RELEASED)


def discard(event: Event, token: int) -> Settlement:
    """Deleted unpublished, since it is stale."""
    return Settlement(event.id, token, DISCARDED)


def is_discard(settlement: Settlement) -> bool:
    """Does it delete the row?"""
    return settlement.status == DISCARDED


def _text(error: str) -> str:
    return clip(redact(error), LAST_ERROR_CHARACTERS)
