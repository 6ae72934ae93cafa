"""How the workers of an ordered lane share out its partitions, on any number of nodes: pure decisions, each by itself.

Every worker looks at the same table and takes what is free up to its share; one that has too little asks those that
have the most, who release a partition when they hold nothing of it. What nobody takes for a while anybody may.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import msgspec

from outboxd.store.api import Ownership


class Step(msgspec.Struct, frozen=True):
    """What to do next. acquire: partitions that are free; ask: those to be asked for; withdraw: those that were asked
    for, and whose owners have no more than their share by now; leave: ours that others want."""

    acquire: tuple[int, ...] = ()
    ask: tuple[int, ...] = ()
    withdraw: tuple[int, ...] = ()
    leave: tuple[int, ...] = ()


def next_step(
    partitions: Sequence[Ownership],
    worker_id: str,
    owner: int,
    peers: int,
    abandoned: Collection[int],
    shuffle: Callable[[list[int]], None],
) -> Step:
    """peers: workers that are known to come, this one too. abandoned: those that have been free for a while."""
    own = [one for one in partitions if one.token == owner]
    workers = {one.worker_id for one in partitions if one.lease_ms > 0}
    workers |= {one.wanted_by for one in partitions if one.wanted_ms > 0} | {worker_id}
    count = max(len(workers), peers)
    most, least = -(-len(partitions) // count), len(partitions) // count
    have_now = Counter(one.worker_id for one in partitions if one.lease_ms > 0)
    mine = [one for one in partitions if one.wanted_ms > 0 and one.wanted_by == worker_id]
    withdraw = [one.number for one in mine if one.lease_ms > 0 and have_now[one.worker_id] <= least]
    asked = [one.number for one in mine if one.number not in withdraw]
    free = [
        one.number for one in partitions
        if one.lease_ms <= 0 and one not in own and (one.wanted_ms <= 0 or one.wanted_by == worker_id)
    ]  # fmt: skip
    shuffle(free)  # workers that start together should not want the same ones
    acquire = free[: max(0, most - len(own))]
    # Also those that somebody wished for who is gone by now.
    idle = [one.number for one in partitions if one.lease_ms <= 0 and one not in own and one.number in abandoned]
    acquire += [number for number in idle if number not in acquire]
    have = len(own) + len({*acquire, *asked})
    ask = _of_the_richest(partitions, worker_id, least - have, least, shuffle)
    if not ask and have < most:  # whoever has more than anybody should gives it away, too
        ask = _of_the_richest(partitions, worker_id, most - have, most, shuffle)
    leave = [one.number for one in own if one.wanted_ms > 0 and one.wanted_by != worker_id]
    return Step(tuple(acquire), tuple(ask), tuple(withdraw), tuple(leave[: max(0, len(own) - least)]))


def _of_the_richest(
    partitions: Sequence[Ownership], worker_id: str, lacks: int, least: int, shuffle: Callable[[list[int]], None]
) -> list[int]:
    """One after the other from whoever would have the most left."""
    theirs: dict[str, list[int]] = {}
    for one in partitions:
        if one.lease_ms > 0 and one.worker_id != worker_id and one.wanted_ms <= 0:
            theirs.setdefault(one.worker_id, []).append(one.number)
    have = Counter(one.worker_id for one in partitions if one.lease_ms > 0 and one.wanted_ms <= 0)
    for numbers in theirs.values():
        shuffle(numbers)
    ask: list[int] = []
    while theirs and len(ask) < lacks:
        richest = max(theirs, key=lambda name: have[name])
        if have[richest] <= least:
            break
        ask.append(theirs[richest].pop())
        have[richest] -= 1
        if not theirs[richest]:
            del theirs[richest]
    return ask
