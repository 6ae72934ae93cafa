"""Lists of ids as they stand in a statement."""

from collections.abc import Iterable, Iterator, Sequence

CHUNK = 1000
"""Ids in one IN list: longer ones make the server scan the primary key instead of looking ids up."""


def listed(numbers: Iterable[int]) -> str:
    """What stands between the parentheses of IN."""
    return ",".join(map(str, map(int, numbers)))


def chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """At most CHUNK of them at a time."""
    return (ids[start : start + CHUNK] for start in range(0, len(ids), CHUNK))
