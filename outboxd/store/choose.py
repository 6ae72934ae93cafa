"""Which of the rows that a claim may take it takes: pure decisions, shared by the stores.

A candidate row is a tuple: the first 12 values are Event's fields in order (envelope None where it was too long to come
at once), then status, due_at_ms and the envelope's length in bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from outboxd.event import Event
from outboxd.store.api import FRESH, Floors, Want

Row = tuple[Any, ...]

_ID, _ENVELOPE, _RETRY_COUNT, _CREATED, _STATUS, _DUE, _SIZE = 0, 5, 8, 9, 12, 13, 14
_FIELDS = 12

_event: Callable[..., Event] = Event  # positional, from a row: what a row's values are, no type checker knows


class Choice(NamedTuple):
    """rows: taken, in order. suspect: the one row is a suspect. cut: the byte budget left rows. passed: the rows behind
    which the next claim starts (a suspect moves no floor: what stood before it was not taken)."""

    rows: Sequence[Row]
    suspect: bool
    suspects_wait: bool
    cut: bool
    passed: Sequence[Row]


def inline_bytes(want: Want) -> int:
    """How long a payload may be to come along with the first look, so that all of them fit the budget."""
    return max(0, want.budget_bytes // max(1, want.limit))


def choose(candidates: Sequence[Row], want: Want) -> Choice:
    """Suspects alone and only when idle; the rest in order, up to the byte budget, the first of any size when idle."""
    suspects = [row for row in candidates if row[_STATUS] == "delivering"]
    if suspects and want.idle and want.suspects:
        first = suspects[0]
        return Choice([first], True, len(suspects) > 1, False, ())
    usual = [row for row in candidates if row[_STATUS] != "delivering"] if suspects else candidates
    total = others = 0
    for count, row in enumerate(usual):
        size = 0 if row[_SIZE] > want.max_event_bytes else row[_SIZE]  # an oversize payload is never read
        if want.stale_before_ms and is_stale(row, want):
            size = 0
        else:
            others += 1
        total += size
        if (total > want.budget_bytes and not (count == 0 and want.idle)) or 0 < want.live_limit < others:
            passed = candidates[: candidates.index(row)] if suspects else usual[:count]
            return Choice(usual[:count], False, bool(suspects), True, passed)
    return Choice(usual, False, bool(suspects), False, candidates)


def is_stale(row: Row, want: Want) -> bool:
    """Will it be thrown away, unpublished?"""
    return bool(0 < row[_CREATED] < want.stale_before_ms)


def floors_after(floors: Floors, passed: Sequence[Row]) -> Floors:
    """Behind the last row of each class that the claim passed over or took."""
    fresh_id, due = floors.fresh_id, (floors.due_at_ms, floors.due_id)
    for row in reversed(passed):
        if row[_DUE] == FRESH:
            fresh_id = row[_ID]
            break
    for row in reversed(passed):
        if row[_DUE] != FRESH:
            due = (row[_DUE], row[_ID])
            break
    return Floors(fresh_id, *due)


def missing_payloads(rows: Sequence[Row], want: Want) -> list[int]:
    """Ids whose payload has yet to be read."""
    missing = [row for row in rows if row[_ENVELOPE] is None and row[_SIZE] <= want.max_event_bytes]
    return [row[_ID] for row in missing if not is_stale(row, want)]


def events_of(
    rows: Sequence[Row], lane: str, payloads: Mapping[int, bytes | str], max_event_bytes: int, suspect: bool
) -> tuple[tuple[Event, ...], tuple[tuple[Event, int], ...]]:
    """(events with their payloads, (event, size) of the oversize ones)."""
    events: list[Event] = []
    oversize: list[tuple[Event, int]] = []
    for row in rows:
        payload = row[_ENVELOPE]
        if row[_SIZE] > max_event_bytes:
            oversize.append((event_of(row, lane, b"", row[_RETRY_COUNT] + suspect), row[_SIZE]))
        elif suspect or type(payload) is not bytes:
            payload = payloads.get(row[_ID], b"") if payload is None else payload  # what is stale was not read
            events.append(event_of(row, lane, payload, row[_RETRY_COUNT] + suspect))
        else:
            events.append(_event(*row[:_FIELDS], lane))
    return tuple(events), tuple(oversize)


def event_of(row: Row, lane: str, payload: bytes | str, retry_count: int) -> Event:
    """The event of a row whose payload or count differs from what the row says."""
    raw = payload.encode() if isinstance(payload, str) else bytes(payload)
    head, middle, tail = row[:_ENVELOPE], row[_ENVELOPE + 1 : _RETRY_COUNT], row[_RETRY_COUNT + 1 : _FIELDS]
    return _event(*head, raw, *middle, retry_count, *tail, lane)
