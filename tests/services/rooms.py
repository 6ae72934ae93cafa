"""Rooms, for the tests of order: events of many, a receiver with a plan for each of them, what must hold at last."""

import random
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from outboxd.config.schema import Config
from tests.services.chaos import SEED
from tests.services.daemon import write_config
from tests.services.lanes import Row, Table, event
from tests.services.receiver import Receiver
from tests.services.receiver_answers import Behaviour, Chosen, Request

TIMES: dict[str, Any] = {"publish_timeout": "500ms", "lease": "3500ms"}
"""Short, and long enough for a busy machine."""
LEASE_S = 3.5
RETRIES: dict[str, Any] = {"max_retry_count": 6, "initial_backoff": "50ms", "max_backoff": "500ms"}
"""More tries than workers die under one event: else what was accepted is a dead letter, and its followers are there."""
NEVER_OPEN = {"enabled": False}
"""A breaker that is closed from the start: what is planned are failures of events, more of them than an outage has."""

ANSWERS: Mapping[str, Behaviour] = {
    "500": Behaviour(status=500),
    "429": Behaviour(status=429),
    "400": Behaviour(status=400),
    "hang": Behaviour(hang=True),
    "reset": Behaviour(close="reset"),
    "unheard": Behaviour(hang=True),
}
"""By name. `unheard`: accepted, but its answer never comes."""
PLANS: Sequence[tuple[float, tuple[str, ...]]] = (
    (0.03, ("500",)),
    (0.01, ("429",)),
    (0.01, ("500", "reset")),
    (0.004, ("hang",)),
    (0.004, ("unheard",)),
    (0.008, ("400!",)),
    (0.008, ("500!",)),
)
"""Share of the events -> the answers to their first tries; `!`: and to all others. The last two make dead letters, also
where a worker dies before it has written down that it made one."""


def ordered_lane(
    path: Path, url: str, publishers: Mapping[str, Any], on_dead: str = "continue", **worker: Any
) -> Config:
    """The configuration of an ordered lane with short leases."""
    settings = {"ordering": "room", "on_dead": on_dead, "concurrency": 2, "batch_size": 50, **TIMES, **RETRIES}
    return write_config(path, url, publishers, **{**settings, **worker})


def over_http(receiver: Receiver, connections: int = 16) -> dict[str, Any]:
    """The publisher to a receiver."""
    return {"web": {"type": "http", "url": receiver.url, "connections": connections, "breaker": NEVER_OPEN}}


def events_of(rooms: int, count: int, chance: random.Random) -> list[Row]:
    """Producers' rows of two tenants with the same rooms: some rooms have many events, most of them few; a twentieth
    of the events has no room."""
    names = [f"room-{number}" for number in range(rooms)]
    weights = [1 / (number + 1) ** 0.7 for number in range(rooms)]
    chosen = chance.choices(names, weights, k=count)
    return [
        event(room_id="" if chance.random() < 0.05 else name, app_code=chance.choice(("one", "two")), event_type=kind)
        for name in chosen
        for kind in [chance.choice(("RoomCreated", "RoomClosed"))]
    ]


def plans_for(rows: Iterable[Row], chance: random.Random) -> dict[str, tuple[str, ...]]:
    """Event id -> the answers to its first tries, of those that are not accepted at once."""
    plans: dict[str, tuple[str, ...]] = {}
    shares = [share for share, _ in PLANS]
    for row in rows:
        if chance.random() < sum(shares):
            plans[str(row["event_id"])] = chance.choices([answers for _, answers in PLANS], shares)[0]
    return plans


class OrderedReceiver(Receiver):
    """Answers each event's tries by its plan, then accepts it, after up to `longest_s`.

    What it accepts it accepts at the end of that time, whether somebody waits for the answer or not: a follower that
    is sent before its forerunner was answered may be through first.
    """

    def __init__(
        self, plans: Mapping[str, Sequence[str]] | None = None, longest_s: float = 0.01, seed: int = SEED
    ) -> None:
        self._plans = {event_id: deque(answers) for event_id, answers in (plans or {}).items()}
        self._chance = random.Random(seed)
        self._longest_s = longest_s
        self._arrivals: list[tuple[float, str]] = []
        super().__init__(keep_bodies=False, rules=[Chosen(self._answer)])

    def __enter__(self) -> "OrderedReceiver":
        super().__enter__()
        return self

    def _answer(self, request: Request) -> Behaviour:
        name = self._next(request.event_id)
        if name and name != "unheard":
            return ANSWERS[name]
        delay_s = self._longest_s * self._chance.random() ** 2
        self._arrivals.append((time.monotonic() + delay_s, request.event_id))
        return ANSWERS[name] if name else Behaviour(delay_s=delay_s)

    def _next(self, event_id: str) -> str:
        plan = self._plans.get(event_id)
        if not plan:
            return ""
        return plan[0].removesuffix("!") if plan[0].endswith("!") else plan.popleft()

    def plan(self, event_id: str, *answers: str, times: int = 1) -> None:
        """How to answer its next tries."""
        self._plans[event_id] = deque(answers * times)

    def forgive(self) -> None:
        """Accept everything from now on."""
        self._plans = {}

    @property
    def taken(self) -> int:
        """How many it has accepted, repeats too."""
        return len(self._arrivals)

    def arrivals(self) -> list[str]:
        """The event ids in the order in which they were accepted, repeats too."""
        return [event_id for _, event_id in sorted(self._arrivals)]


def first_of_each(accepted: Iterable[str]) -> dict[str, int]:
    """Event id -> the place of its first acceptance."""
    places: dict[str, int] = {}
    for place, event_id in enumerate(accepted):
        places.setdefault(event_id, place)
    return places


def check_order(table: Table, arrivals: Iterable[str]) -> None:
    """In every room of every tenant the first successful publishes are in the order of the ids."""
    places = first_of_each(arrivals)
    last: dict[tuple[object, object], dict[str, object]] = {}
    for row in table.rows("room_id <> ''"):
        event_id, room = str(row["event_id"]), (row["app_code"], row["room_id"])
        if event_id in places:
            before = last.get(room)
            assert before is None or places[str(before["event_id"])] < places[event_id], (
                f"in {room} the second one arrived first: {_told(before)}, {_told(row)}"
            )
            last[room] = row


def _told(row: Mapping[str, object]) -> str:
    names = ("id", "event_id", "status", "retry_count", "last_error", "worker_id", "delivered_at_ms")
    return ", ".join(f"{name} {row[name]}" for name in names)


def check_ended(table: Table, accepted: Iterable[str], ids: Iterable[str]) -> None:
    """G1: nothing is lost, every event is delivered or failed, and what is delivered has arrived."""
    rows = {str(row["event_id"]): row["status"] for row in table.rows()}
    assert rows.keys() == set(ids)
    assert set(rows.values()) <= {"delivered", "failed"}, Counter(rows.values())
    missing = {event_id for event_id, status in rows.items() if status == "delivered"} - set(accepted)
    assert not missing, f"{len(missing)} events are said to be delivered and have not arrived: {sorted(missing)[:5]}"


_HEADS = (
    "(SELECT app_code, room_id, MIN(id) AS head FROM {table} "
    "WHERE status = 'failed' AND next_retry_at_ms <> -1 AND room_id <> '' GROUP BY app_code, room_id) AS heads"
)
_BEHIND = "heads.app_code = e.app_code AND heads.room_id = e.room_id AND heads.head < e.id"


def held_back(table: Table) -> dict[str, str]:
    """Event id -> status of everything that stands behind a dead letter of its room that nobody has skipped."""
    heads = _HEADS.format(table=table.name)
    sql = f"SELECT e.event_id, e.status FROM {table.name} AS e JOIN {heads} ON {_BEHIND}"
    return {str(event_id): str(status) for event_id, status in table.connection.query(sql)}


def is_at_rest(table: Table) -> bool:
    """Is everything delivered, failed, or held back by a dead letter?"""
    heads = _HEADS.format(table=table.name)
    sql = (
        f"SELECT COUNT(*) FROM {table.name} AS e LEFT JOIN {heads} ON {_BEHIND} "
        "WHERE e.status NOT IN ('delivered', 'failed') AND heads.head IS NULL"
    )
    return not table.connection.query(sql)[0][0]
