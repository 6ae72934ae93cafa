"""Which partitions of an ordered lane this worker owns, and what it does to have its share. Over the store."""

import random
from collections.abc import Collection, Iterable, Sequence

from outboxd import log
from outboxd.relay.shares import next_step
from outboxd.store.api import PARTITIONS, Ownership, Partitions

TICK_S = 2.0
"""So often the partitions' owners are looked at; four times as often while anything changes."""
ABANDONED_S = 4.0
"""A partition that has been free so long may be taken by anybody, whatever his share."""


class Tenure:
    """numbers: what is owned. clean: those of them that were given back in order by whoever had them before. leaving:
    those that somebody else is to have. peers: workers that are known."""

    def __init__(self, worker_id: str, lease_s: float, peers: int, owner: int) -> None:
        self._worker_id = worker_id
        self._lease_ms = round(lease_s * 1000)
        self._keep_every_s = lease_s / 3
        self._peers = peers
        self.owner = owner
        self.numbers: frozenset[int] = frozenset()
        self.clean: frozenset[int] = frozenset()
        self.leaving: frozenset[int] = frozenset()
        self.tick_at_s = 0.0
        self._kept_s = 0.0
        self._free_since_s: dict[int, float] = {}
        self._is_first = True
        self._is_shared = False

    def connected(self, partitions: Partitions, now_s: float) -> None:
        """On a new session: what is still ours is ours, and a look at the rest is due."""
        self.keep(partitions, now_s, is_due=True)
        self.tick_at_s = now_s
        self._free_since_s.clear()

    def keep(self, partitions: Partitions, now_s: float, is_due: bool = False) -> None:
        """Lengthen the leases, if it is time; what is lost is not among the numbers any more."""
        if self.numbers and (is_due or now_s - self._kept_s >= self._keep_every_s):
            self.numbers = partitions.keep(sorted(self.numbers), self.owner, self._lease_ms)
            self._kept_s = now_s

    def kept(self, now_s: float) -> None:
        """A claim has lengthened them."""
        self._kept_s = now_s

    def disowned(self, numbers: Iterable[int]) -> None:
        """A claim has found them to be somebody else's."""
        self.numbers -= frozenset(numbers)

    def tick(self, partitions: Partitions, now_s: float, in_hand: Collection[int | None]) -> None:
        """Take, ask and leave. in_hand: partitions of which something is claimed and not settled: they cannot be left
        yet."""
        table = partitions.owners()
        if not self._is_first:
            self._look_for_namesake(table)
        # Those whose acquisition got no answer: nobody else takes them.
        forgotten = {one.number for one in table if one.token == self.owner} - self.numbers
        if forgotten:
            self.clean -= forgotten
            self.numbers |= partitions.keep(sorted(forgotten), self.owner, self._lease_ms)
        free = {one.number for one in table if one.lease_ms <= 0 and one.token != self.owner}
        self._free_since_s = {number: self._free_since_s.get(number, now_s) for number in free}
        abandoned = {number for number in free if now_s - self._free_since_s[number] >= ABANDONED_S}
        step = next_step(table, self._worker_id, self.owner, self._peers, abandoned, random.shuffle)
        acquire = self._with_former(table, step.acquire)
        if acquire:
            before = self.numbers
            former = self._worker_id if self._is_first else ""
            args = self._worker_id, self.owner, self._lease_ms, former
            self.numbers = partitions.acquire(acquire, *args)
            given_back = frozenset(one.number for one in table if not one.worker_id)
            self.clean = (self.clean & before) | ((self.numbers - before) & given_back)
            if not before:
                self._kept_s = now_s
        self._is_first = False
        partitions.withdraw(step.withdraw, self._worker_id)
        partitions.ask(step.ask, self._worker_id, self._lease_ms)
        self.leaving = frozenset(step.leave) & self.numbers
        left = [number for number in self.leaving if number not in in_hand]
        if left:
            partitions.release(left, self.owner)
            self.numbers -= frozenset(left)
            self.leaving -= frozenset(left)
        is_settled = not (acquire or step.ask or step.leave) and bool(self.numbers)
        self.tick_at_s = now_s + (TICK_S if is_settled else TICK_S / 4) * random.uniform(0.9, 1.1)

    def _look_for_namesake(self, table: Sequence[Ownership]) -> None:
        """What its own last life had is taken at the first tick; who has any under its name after that, lives."""
        theirs = [
            one.number for one in table
            if one.worker_id == self._worker_id and one.token != self.owner and one.lease_ms > 0
        ]  # fmt: skip
        if theirs and not self._is_shared:
            log.warning(log.NODE_ID_SHARED, partitions=len(theirs))
        self._is_shared = bool(theirs)

    def _with_former(self, table: Sequence[Ownership], acquire: tuple[int, ...]) -> list[int]:
        """At the start also those of this worker's own last life: it is over, so nobody writes to them any more."""
        if not self._is_first:
            return list(acquire)
        former = [one.number for one in table if one.worker_id == self._worker_id and one.token != self.owner]
        return sorted({*acquire, *former})

    def leaves_none(self, partitions: Partitions) -> bool:
        """Is every partition somebody's, or about to be, and some of them ours?"""
        return bool(self.numbers) and all(
            one.lease_ms > 0 or (one.wanted_ms > 0 and one.wanted_by != self._worker_id)
            for one in partitions.owners()
        )  # fmt: skip

    def end(self, partitions: Partitions, is_done: bool = False) -> None:
        """Give all of them back, and wish for no others. is_done: all has been done that can be, so those that end
        with this worker need not look again; for them they are wanted, for anybody else free in a few seconds."""
        numbers, self.numbers = self.numbers, frozenset()
        partitions.release(sorted(numbers), self.owner)
        partitions.withdraw(range(PARTITIONS), self._worker_id)
        if is_done:
            partitions.ask(sorted(numbers), self._worker_id, self._lease_ms)
