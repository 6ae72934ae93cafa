"""The contract of a lane's store: several workers at once."""

import pickle
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

import pytest

from outboxd.config.schema import Database, Lane
from outboxd.errors import StoreConflict
from outboxd.store import open_store
from outboxd.store.api import DELIVERED, RETRYABLE, ZERO, Claim, Floors, Settled, Settlement, Store, Want
from tests.contract.conftest import LANE, Table

Wants = Callable[..., Want]

PROCESSES = 3
SOAK_TIMEOUT_S = 60
PUBLISH_S = 0.002
"""A worker that never rests would keep SQLite's only lock to itself."""


def take(store: Store, want: Want, floors: Floors = ZERO) -> Claim:
    """A claim alone."""
    return store.exchange((), want, floors)[1]


def test_two_stores_take_disjoint_rows(open_another: Callable[[], Store], table: Table, want: Wants) -> None:
    """G2: each starting from zero, neither waiting for the other to settle."""
    rows = table.insert_many(10)
    first, second = open_another(), open_another()
    taken = [take(store, want(limit=5)) for store in (first, second)]
    assert [event.id for claim in taken for event in claim.events] == rows


def test_a_store_sees_what_another_settled(open_another: Callable[[], Store], table: Table, want: Wants) -> None:
    """No snapshot outlives its call."""
    row_id = table.insert()
    first, second = open_another(), open_another()
    assert second.unfinished()
    claim = take(first, want())
    assert not second.peek(ZERO).fresh
    assert second.held(claim.token, [row_id]) == {row_id}
    first.exchange([Settlement(row_id, claim.token, DELIVERED)], None, ZERO)
    assert second.held(claim.token, [row_id]) == frozenset()
    assert not second.unfinished()


@pytest.mark.parametrize("columns", [{}, {"next_retry_at_ms": 1, "status": RETRYABLE}])
def test_processes_that_hammer_one_lane_never_share_a_row(
    database: Database, table: Table, columns: dict[str, object]
) -> None:
    """G1, G2: every row is taken, by one claim only; every settle finds its claim standing."""
    rows = table.insert_many(2000, **columns)
    command = [sys.executable, "-c", "from tests.contract.test_store_soak import hammer; hammer()"]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(PROCESSES)]
    try:
        for worker in workers:
            assert worker.stdin is not None
            pickle.dump(database, worker.stdin)
            worker.stdin.flush()
        for worker in workers:  # all of them are connected before the first begins
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"ready\n"
        answers = []
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(b"go\n")
            worker.stdin.flush()
        for worker in workers:
            output, _ = worker.communicate(timeout=SOAK_TIMEOUT_S)
            assert worker.returncode == 0
            answers.append(pickle.loads(output))
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    counts = Counter(row_id for taken, _ in answers for row_id in taken)
    assert counts == Counter(rows)
    assert sum(settled for _, settled in answers) == 2000
    assert all(taken for taken, _ in answers), "one worker did it all: nothing was tested"
    found = table.connection.query(f"SELECT status, COUNT(*), MAX(retry_count) FROM {LANE} GROUP BY status")
    assert [tuple(row) for row in found] == [("delivered", 2000, 0)]


def hammer() -> None:
    """One worker: claim and settle until nothing is left, then tell which rows it took and how many it settled."""
    database = pickle.load(sys.stdin.buffer)
    assert isinstance(database, Database)
    store = open_store(database, Lane(name=LANE))
    print("ready", flush=True)
    sys.stdin.buffer.readline()
    taken: list[int] = []
    settled = 0
    outcomes: list[Settlement] = []
    floors = ZERO
    while True:
        token = random.randrange(1, 2**62)
        want = Want(token, "node/room_outbox-01", 30_000, 20, 1 << 20, 1 << 20, idle=not outcomes)
        done, claim = _insist(store, outcomes, want, floors)
        settled += done.done
        taken += [event.id for event in claim.events]
        time.sleep(PUBLISH_S)
        outcomes = [Settlement(event.id, token, DELIVERED) for event in claim.events]
        if not outcomes and floors == ZERO:
            break
        floors = claim.floors if outcomes else ZERO
    store.close()
    sys.stdout.buffer.write(pickle.dumps((taken, settled)))


def _insist(store: Store, outcomes: list[Settlement], want: Want, floors: Floors) -> tuple[Settled, Claim]:
    """A conflict has changed nothing: the same call again."""
    deadline_s = time.monotonic() + SOAK_TIMEOUT_S
    while True:
        try:
            return store.exchange(outcomes, want, floors)
        except StoreConflict:
            if time.monotonic() > deadline_s:
                raise
