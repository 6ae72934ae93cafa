"""Does a claim cost more behind a long history? Claim and settle of the store alone, on one connection."""

import random
import statistics
import time

from outboxd.config.schema import Config
from outboxd.store import open_store
from outboxd.store.api import DELIVERED, ZERO, Settlement, Store, Want
from tests.bench import lane
from tests.services.mariadb import execute

CLAIMS = 40
TURNS = 6
SHORT, LONG = "room_outbox", "room_history"


def compare(url: str, delivered: int, batch: int) -> dict[str, float]:
    """Milliseconds of a claim with its settle, on an empty history and behind a long one, and their ratio.

    Two lanes of one database, measured in turn, so that what the server does in the background falls on both.
    """
    settings = lane.config(url, "nothing")
    lane.make(settings)
    lane.fill(url, delivered, {"status": "'delivered'", "delivered_at_ms": "1"}, "old", LONG)
    lane.fill(url, delivered // 10, {"status": "'failed'", "last_error": "'refused'"}, "bad", LONG)
    lane.fill(url, delivered // 10, {"next_retry_at_ms": "4102444800000 + seq"}, "later", LONG)
    execute(url, f"ANALYZE TABLE {LONG}")
    times: dict[str, list[float]] = {SHORT: [], LONG: []}
    for turn in range(TURNS + 1):
        for table, found in times.items():
            taken = _claims(url, settings, batch, f"turn{turn}-", table)
            found += taken if turn else []  # the first turn warms up
    empty, long = (statistics.median(found) for found in (times[SHORT], times[LONG]))
    return {"claim_empty_ms": empty * 1000, "claim_history_ms": long * 1000, "claim_with_history": long / empty}


def _claims(url: str, settings: Config, batch: int, prefix: str, table: str) -> list[float]:
    lane.fill(url, batch * CLAIMS, prefix=prefix, table=table)
    store = open_store(settings.database, settings.lanes[table])
    try:
        return _cycle(store, batch)
    finally:
        store.close()


def _cycle(store: Store, batch: int) -> list[float]:
    floors, times = ZERO, []
    owed: list[Settlement] = []
    for _ in range(CLAIMS):
        want = Want(random.getrandbits(62) | 1, "bench/room_outbox-01", 15_000, batch, 2**30, 2**20, idle=True)
        start_s = time.perf_counter()
        _, claim = store.exchange(owed, want, floors)
        times.append(time.perf_counter() - start_s)
        # Future rows are looked for as well, as a worker does; none of them is due.
        assert len(claim.events) == batch, f"a claim found {len(claim.events)} events of {batch}"
        owed = [Settlement(event.id, claim.token, DELIVERED) for event in claim.events]
        floors = claim.floors
    store.exchange(owed, None, floors)
    return times
