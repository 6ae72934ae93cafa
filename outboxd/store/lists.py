"""Lists of ids as they stand in a statement."""

from collections.abc import Iterable, Iterator, Sequence

SHORTEST_RANGE = 3
"""Fewer ids in a row are looked up one by one."""
CHUNK = 1000
"""Ids in one IN list: longer ones make the server scan the primary key instead of looking ids up."""


def listed(numbers: Iterable[int]) -> str:
    """What stands between the parentheses of IN."""
    values = tuple(numbers)
    return ",".join(["%d"] * len(values)) % values


def chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """At most CHUNK of them at a time."""
    return (ids[start : start + CHUNK] for start in range(0, len(ids), CHUNK))


def among(column: str, ids: Sequence[int]) -> str:
    """A condition that is true for exactly these ids, which ascend. Neighbours are written as one range: the server
    takes half as long as for a list of them.

    The last id of a range stands by itself. A scan reads, and locks for a moment, one row beyond its range; that is
    then a row of ours, and none that another worker's SKIP LOCKED would have to pass over.
    """
    ranges: list[str] = []
    alone: list[int] = []
    start = 0
    ends = [end for end in range(1, len(ids)) if ids[end] != ids[end - 1] + 1]
    if len(ends) > len(ids) // 2:  # hardly any have a neighbour, as those of some rooms
        return f"({column} IN ({listed(ids)}))"
    for end in (*ends, len(ids)):
        first, last = ids[start], ids[end - 1]
        if last - first >= SHORTEST_RANGE:
            ranges.append(f"{column} BETWEEN {first:d} AND {last - 1:d}")
            alone.append(last)
        else:
            alone += ids[start:end]
        start = end
    return f"({' OR '.join((*ranges, f'{column} IN ({listed(alone)})'))})"
