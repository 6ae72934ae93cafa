"""How workers come to their shares of the partitions, over a real table: fair, complete, and then at rest."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some

from outboxd.relay.tenure import ABANDONED_S, Tenure
from outboxd.store import connect, open_store
from outboxd.store.api import PARTITIONS, Partitions
from outboxd.store.connection import Connection
from outboxd.store.migrate import init_db
from tests.services.ordered_source import config_of, lane_file

ROUNDS = 40
LEASE_S = 600.0


class Workers:
    """Those of one lane, on as many nodes. Each ticks once in a round, half a second later."""

    def __init__(self, partitions: Partitions, connection: Connection, peers: int) -> None:
        self.partitions = partitions
        self.connection = connection
        self.peers = peers
        self.now_s = 0.0
        self.live: list[Tenure] = []
        self.moves = 0
        self._count = 0

    def join(self) -> None:
        """One more, whose name is new."""
        self._count += 1
        self.live.append(Tenure(f"n/w-{self._count}", LEASE_S, self.peers, 1000 + self._count))

    def leave(self, pick: int) -> None:
        """One ends in order."""
        if self.live:
            self.live.pop(pick % len(self.live)).end(self.partitions)

    def die(self, pick: int) -> None:
        """One is killed, and its leases and wishes run out."""
        if self.live:
            owner = self.live.pop(pick % len(self.live)).owner
            name = f"n/w-{owner - 1000}"
            self.connection.execute(f"UPDATE outboxd_partition SET lock_until_ms = 5 WHERE token = {owner}")
            self.connection.execute(f"UPDATE outboxd_partition SET wanted_until_ms = 5 WHERE wanted_by = '{name}'")

    def round(self) -> None:
        """Each ticks; nobody holds an event."""
        self.now_s += 0.5
        for tenure in self.live:
            before = tenure.numbers
            tenure.tick(self.partitions, self.now_s, ())
            self.moves += tenure.numbers != before

    @property
    def shares(self) -> list[int]:
        """How many each owns."""
        return [len(tenure.numbers) for tenure in self.live]

    def check(self) -> None:
        """What a worker believes is what the table says; nobody's are nobody's."""
        table = {one.number: one.token for one in self.partitions.owners() if one.lease_ms > 0}
        believed = {number: tenure.owner for tenure in self.live for number in tenure.numbers}
        assert sum(self.shares) == len(believed)
        assert table == believed

    @property
    def is_fair(self) -> bool:
        """Is everything owned, and each share as it should be?"""
        shares = self.shares
        if len(shares) < self.peers:  # of what workers that never come leave over, anybody may have any part
            is_even = min(shares) >= PARTITIONS // self.peers
        else:
            is_even = max(shares) - min(shares) <= 1
        return sum(shares) == PARTITIONS and is_even

    def settle(self) -> None:
        """Within so many rounds; then nothing moves."""
        for _ in range(ROUNDS):
            if self.is_fair:
                break
            self.round()
            self.check()
        assert self.is_fair, self.shares
        self.round()
        moves = self.moves
        for _ in range(5):
            self.round()
        assert self.moves == moves, "partitions go to and fro"
        self.check()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Partitions, Connection]]:
    """An embedded database: each statement is one of the relay's own."""
    config = config_of(lane_file(Path(tmp_path_factory.mktemp("tenure"))))
    lane = config.lanes["room_outbox"]
    with closing(connect(config.database)) as connection:
        init_db(connection, [lane])
        with closing(open_store(config.database, lane)) as store:
            assert store.partitions is not None
            yield store.partitions, connection


def start(table: tuple[Partitions, Connection], peers: int) -> Workers:
    """Nobody owns anything."""
    partitions, connection = table
    connection.execute(
        "UPDATE outboxd_partition SET worker_id = '', token = 0, lock_until_ms = 0, wanted_by = '', wanted_until_ms = 0"
    )
    return Workers(partitions, connection, peers)


EVENTS = some.lists(some.tuples(some.sampled_from(["join", "join", "leave", "die"]), some.integers(0, 9)), max_size=12)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EVENTS, some.integers(1, 5), some.integers(0, 12))
@example([("leave", 0), *[("join", 0)] * 4, ("leave", 0)], 1, 1)  # whoever is asked has given away its surplus by then
def test_whoever_comes_and_goes_shares_become_fair_and_rest(
    table: tuple[Partitions, Connection], events: list[tuple[str, int]], peers: int, rounds: int
) -> None:
    """Order, G2: every partition has one owner in the end, also when others join or die in the middle of sharing."""
    workers = start(table, peers)
    workers.join()
    for number, (what, pick) in enumerate(events):
        if what == "join":
            workers.join()
        elif len(workers.live) > 1:
            (workers.leave if what == "leave" else workers.die)(pick)
        for _ in range((rounds + number) % 4):
            workers.round()
            workers.check()
    workers.settle()


def test_a_partition_of_which_events_are_in_hand_is_left_when_they_are_settled(
    table: tuple[Partitions, Connection],
) -> None:
    """Order: whoever gets it next takes what was given back in order for what it is."""
    workers = start(table, 1)
    workers.join()
    workers.settle()
    (first,) = workers.live
    workers.join()
    second = workers.live[1]
    second.tick(workers.partitions, 1.0, ())
    in_hand = frozenset(range(PARTITIONS))
    first.tick(workers.partitions, 1.0, in_hand)
    assert len(first.numbers) == PARTITIONS
    assert len(first.leaving) == PARTITIONS // 2
    first.tick(workers.partitions, 2.0, ())
    assert (len(first.numbers), first.leaving) == (PARTITIONS // 2, frozenset())
    second.tick(workers.partitions, 2.0, ())
    assert second.numbers == frozenset(range(PARTITIONS)) - first.numbers
    assert second.clean == second.numbers


def test_what_a_dead_worker_had_is_not_clean(table: tuple[Partitions, Connection]) -> None:
    """It may only have seemed dead, and still write to it."""
    workers = start(table, 1)
    workers.join()
    workers.settle()
    workers.die(0)
    workers.join()
    workers.settle()
    assert workers.live[0].clean == frozenset()


def test_workers_that_never_come_leave_no_partition_without_an_owner(table: tuple[Partitions, Connection]) -> None:
    """Four are configured, and one runs: it takes its share at once and the rest after a while."""
    workers = start(table, 4)
    workers.join()
    workers.round()
    assert workers.shares == [PARTITIONS // 4]
    workers.now_s += ABANDONED_S
    workers.round()
    assert workers.shares == [PARTITIONS]


def test_what_was_released_for_a_worker_that_was_killed_meanwhile_is_taken(
    table: tuple[Partitions, Connection],
) -> None:
    """G1: its wish stands for the length of a lease; nobody relays those partitions until they are taken."""
    workers = start(table, 1)
    workers.join()
    workers.settle()
    workers.join()
    workers.live[1].tick(workers.partitions, 1.0, ())
    workers.live.pop(1)
    workers.round()
    assert workers.shares == [PARTITIONS // 2]
    workers.settle()
    assert workers.shares == [PARTITIONS]


def test_who_ends_in_order_leaves_no_wish_behind(table: tuple[Partitions, Connection]) -> None:
    """Nobody gives anything away for somebody who is gone."""
    workers = start(table, 1)
    workers.join()
    workers.settle()
    workers.join()
    workers.live[1].tick(workers.partitions, 1.0, ())
    workers.leave(1)
    workers.round()
    assert workers.shares == [PARTITIONS]


def test_who_has_more_than_his_share_gives_away_though_nobody_has_too_little(
    table: tuple[Partitions, Connection],
) -> None:
    """64 among 5: 16, 12, 12, 12 and 12 is not fair."""
    workers = start(table, 1)
    for number, share in enumerate((16, 12, 12, 12, 12)):
        workers.join()
        begin = 0 if not number else 4 + 12 * number
        tenure = workers.live[-1]
        name = f"n/w-{tenure.owner - 1000}"
        numbers = range(begin, begin + share)
        tenure.numbers = workers.partitions.acquire(numbers, name, tenure.owner, round(LEASE_S * 1000), "")
    workers.check()
    workers.settle()
