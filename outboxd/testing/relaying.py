"""A lane relayed in the test's own process: claimed, published one by one, settled, through the store of the daemon."""

import json
import random
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from outboxd.config.load import parse
from outboxd.config.schema import Config
from outboxd.errors import Reject
from outboxd.event import DELIVERED, EXCEPTION, TIMEOUT, Event, Outcome, Retry, rejected
from outboxd.producer import bounded
from outboxd.producer.recording import DEFAULT_LANE
from outboxd.relay.policy import limit_exceeded, over_limit, oversize, settlement_of
from outboxd.store import connect, open_store
from outboxd.store.api import FRESH, ZERO, Settlement, Store, Want
from outboxd.store.migrate import init_db
from outboxd.store.statements import render

WORKER = "outboxd.testing"
LEASE_MS = 600_000
AT_ONCE = 500
MOST_EVENTS = 100_000
"""Of one call: a publisher that records an event for each that it gets would go on for ever."""
BUDGET_BYTES = 256 * 1024 * 1024

Publish = Callable[[Event], object]

_WAITING = "SELECT id FROM {table} WHERE due_at_ms >= 0 AND due_at_ms < :fresh AND status <> 'delivering' ORDER BY id"
_HASTEN = "UPDATE {table} SET next_retry_at_ms = 0 WHERE id = :key AND status IN ('pending', 'retryable')"


@dataclass(frozen=True, slots=True)
class Relayed:
    """What became of the events that were due. delivered: in the order in which they were published. failures: event id
    -> why; dead: those of them that are dead letters now, the others are tried again when they are due.
    """

    delivered: list[Event] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    dead: list[str] = field(default_factory=list)


def make_tables(url: str, lane: str = DEFAULT_LANE) -> None:
    """The lane's tables, as `outboxd init-db` makes them; what is there already stays."""
    config = _config(url, lane)
    with closing(connect(config.database)) as connection:
        init_db(connection, [config.lanes[lane]])


def relay_all(url: str, publish: Publish, *, lane: str = DEFAULT_LANE, publish_timeout_s: float = 5.0) -> Relayed:
    """Publish everything that is due by the database's clock, by id, and settle it as the daemon would, until nothing
    is left; also what is recorded meanwhile. publish: called with each event (its attributes: outboxd.event.Event); it
    fails by raising, for good with outboxd.Reject, or by not returning within publish_timeout_s.

    What failed waits for its next try, as long as the daemon would have it: `Relay.hasten` lets that time pass.

    >>> import sqlite3
    >>> from outboxd.producer import Event, record
    >>> from outboxd.testing import make_tables, relay_all
    >>> make_tables("sqlite:///" + path)
    >>> with sqlite3.connect(path) as connection:
    ...     _ = record(connection, Event(event_id="e1", event_type="RoomCreated", room_id="room-42", envelope="{}"))
    >>> relayed = relay_all("sqlite:///" + path, lambda event: print("published", event.event_id))
    published e1
    >>> len(relayed.delivered), relayed.failures
    (1, {})
    >>> connection.close()
    """
    return Relay(url, lane, publish_timeout_s)(publish)


class Relay:
    """The same for several rounds. url: as `database.url` of the daemon's configuration."""

    def __init__(self, url: str, lane: str = DEFAULT_LANE, publish_timeout_s: float = 5.0) -> None:
        self._config = _config(url, lane)
        self._lane = self._config.lanes[lane]
        self._timeout_s = publish_timeout_s

    def __call__(self, publish: Publish) -> Relayed:
        """One round: see relay_all."""
        done = Relayed()
        count = 0
        with closing(open_store(self._config.database, self._lane)) as store:
            while claimed := _claim_all(store, self._lane.max_event_bytes):
                count += len(claimed)
                if count > MOST_EVENTS:
                    raise AssertionError(f"more than {MOST_EVENTS:,} events were due: does publishing record new ones?")
                for token, event, size in sorted(claimed, key=lambda one: one[1].id):
                    store.exchange([self._relay(token, event, size, publish, done)], None, ZERO)
        return done

    def hasten(self) -> int:
        """Let the time pass that events wait for, delayed, held and failed ones: they are due now. How many those
        were."""
        with closing(connect(self._config.database)) as connection:
            dialect = connection.dialect
            waiting, hasten = (render(sql, dialect, self._lane.name, self._lane.columns) for sql in (_WAITING, _HASTEN))
            ids = [int(row[0]) for row in connection.query(waiting, {"fresh": FRESH})]
            return sum(connection.execute(hasten, {"key": key}) for key in ids)

    def _relay(self, token: int, event: Event, size: int | None, publish: Publish, done: Relayed) -> Settlement:
        lane = self._lane
        if over_limit(event, lane):
            settlement, dead = limit_exceeded(event, token)
        elif size is not None:
            settlement, dead = oversize(event, token, size, lane.max_event_bytes)
        else:
            return self._publish(token, event, publish, done)
        done.failures[event.event_id] = dead.error
        done.dead.append(event.event_id)
        return settlement

    def _publish(self, token: int, event: Event, publish: Publish, done: Relayed) -> Settlement:
        outcome = _outcome(bounded.call(publish, event, self._timeout_s))
        settlement = settlement_of(event, token, outcome, self._lane, 0.0, time.time() * 1000, random.random)
        if outcome is DELIVERED:
            done.delivered.append(event)
        else:
            done.failures[event.event_id] = settlement.last_error or ""
            if settlement.status == "failed":
                done.dead.append(event.event_id)
        return settlement


def _outcome(failure: BaseException | None) -> Outcome:
    if failure is None:
        return DELIVERED
    if isinstance(failure, Reject):
        return rejected(str(failure))
    if isinstance(failure, bounded.Unpublished):
        return Retry(TIMEOUT, str(failure))
    return Retry(EXCEPTION, f"{type(failure).__name__}: {failure}")


def _claim_all(store: Store, max_event_bytes: int) -> list[tuple[int, Event, int | None]]:
    """Everything that is due: (token, event, None or the size of one that is too large to be read)."""
    claimed: list[tuple[int, Event, int | None]] = []
    floors = ZERO
    while len(claimed) <= MOST_EVENTS:
        want = Want(secrets.randbelow(2**62) + 1, WORKER, LEASE_MS, AT_ONCE, BUDGET_BYTES, max_event_bytes, True)
        _, claim = store.exchange((), want, floors)
        floors = claim.floors
        claimed += [(claim.token, event, None) for event in claim.events]
        claimed += [(claim.token, event, size) for event, size in claim.oversize]
        if not (claim.events or claim.oversize):
            break
    return claimed


def _config(url: str, lane: str) -> Config:
    document: Mapping[str, object] = {
        "database": {"url": url},
        "lanes": {lane: {}},
        "outbox_worker": {"direct": ["test"]},
        "publishers": {"test": {"type": "null"}},
    }
    return parse(json.dumps(document), {}, WORKER)
