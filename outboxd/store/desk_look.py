"""What the tables tell of a lane around one event: who works on it, what comes first, when something last went out."""

from collections.abc import Mapping
from dataclasses import dataclass

from outboxd.config.schema import Lane
from outboxd.store.api import FRESH
from outboxd.store.connection import Connection
from outboxd.store.desk_find import Desk, Found, now_ms, text
from outboxd.store.spread import share

LOOK_CAP = 10_000
"""Rows that one look reads at the most; twice as many where each partition is looked at by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """A lane as seen from one of its events.

    ahead: events that a claim takes before it, LOOK_CAP at the most. holders: worker -> events that it holds under a
    lease that runs. last_delivery_ms: when the newest of the delivered events was delivered, 0 if there is none.
    last_failure_ms, last_failure: when, and of what, an event failed last that waits for another try; 0 and "".
    """

    paused: bool
    paused_by: str
    ahead: int
    holders: Mapping[str, int]
    last_delivery_ms: int
    last_failure_ms: int
    last_failure: str


def around(connection: Connection, lane: Lane, event: Found) -> Around:
    """Look around an event. Reads so many rows of each range at the most."""
    desk = Desk(connection, lane)
    paused = desk.query("lane", {"lane": lane.name})
    delivered = desk.query("newest_delivered")
    failed = desk.query("newest_failure", {"high": FRESH - 1, "each": share(LOOK_CAP, desk.is_parted)})
    return Around(
        paused=bool(paused and paused[0][0]),
        paused_by=text(paused[0][1]) if paused else "",
        ahead=_ahead(desk, event),
        holders=_holders(desk),
        last_delivery_ms=int(delivered[0][0]) if delivered else 0,
        last_failure_ms=int(failed[0][0]) if failed else 0,
        last_failure=text(failed[0][1]) if failed else "",
    )


def _ahead(desk: Desk, event: Found) -> int:
    params = {"due": event.due_at_ms, "id": event.id, "most": LOOK_CAP}
    count = int(desk.query("ahead_equal", params)[0][0])
    if event.due_at_ms != FRESH:  # fresh and due ones are claimed side by side: only the own class comes first
        count += int(desk.query("ahead_range", {"due": event.due_at_ms, "most": LOOK_CAP})[0][0])
    return min(count, LOOK_CAP)


def _holders(desk: Desk) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for low, high in ((FRESH, FRESH), (0, now_ms(desk))):
        params = {"low": low, "high": high, "each": share(LOOK_CAP, desk.is_parted)}
        for worker, count in desk.query("holders", params):
            found[text(worker)] = found.get(text(worker), 0) + int(count)
    return found


def envelope_of(connection: Connection, lane: Lane, row_id: int) -> bytes | None:
    """An event's payload, None if the row is gone."""
    rows = Desk(connection, lane).query("envelope", {"id": row_id})
    if not rows:
        return None
    payload = rows[0][0]
    return payload.encode() if isinstance(payload, str) else bytes(payload)
