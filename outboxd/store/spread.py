"""Statements along the index on due_at_ms, for lanes that have one and for those whose index begins with the partition.

An ordered lane on MySQL has the index rooms (room_partition, due_at_ms) alone: a second one would make every INSERT and
settle dearer. What is asked of such a lane as a whole is asked of each partition, in one statement:

- `{due_index}` names the index, `{part}` stands before a condition on due_at_ms: in any partition.
- `[[SELECT ... LIMIT n]]`, in the index's order: the rows of each partition, n of each at the most; `[then ...]`: what
  is done with all of those.
- `{in_order}`: the first ones, where the index has that order; elsewhere any.
"""

import re

from outboxd.config.schema import PARTITIONS, Lane
from outboxd.errors import StoreRefused
from outboxd.store.connection import Connection

_NO_INDEX = frozenset({1054, 1176})
"""The server's numbers of an unknown column, and of an unknown index."""
_EACH, _THEN = re.compile(r"\[\[(.*?)\]\]"), re.compile(r"\[then (.*?)\]")


def is_parted(connection: Connection, lane: Lane) -> bool:
    """Does the lane's index begin with the partition?"""
    return lane.is_ordered and connection.dialect == "mysql"


def lacks_index(error: StoreRefused) -> bool:
    """Did the server refuse a statement because the index that it names, or its column, is not there?"""
    cause = error.__cause__
    return cause is not None and bool(cause.args) and cause.args[0] in _NO_INDEX


def share(most: int, parted: bool) -> int:
    """How many rows of each partition to look at, where about `most` of all are meant; rooms are not spread evenly."""
    return -(-most * 2 // PARTITIONS) if parted else most


def along_due(sql: str, index: str) -> str:
    """The statement for a lane that has an index on due_at_ms alone. index: how a table is made to use it."""
    sql = _THEN.sub("", _EACH.sub(lambda found: found[1], sql))
    return sql.replace("{due_index}", index).replace("{part}", "").replace("{in_order}", "ORDER BY due_at_ms, id")


def along_rooms(sql: str) -> str:
    """The same, for MySQL, along the index rooms."""
    sql = _EACH.sub(lambda found: " UNION ALL ".join(f"({_of(found[1], n)})" for n in range(PARTITIONS)), sql)
    sql = _THEN.sub(lambda found: found[1], sql)
    every = ", ".join(map(str, range(PARTITIONS)))
    sql = sql.replace("{part}", f"room_partition IN ({every}) AND ").replace("{in_order}", "")
    return sql.replace("{due_index}", "FORCE INDEX (rooms)")


def _of(select: str, number: int) -> str:
    return select.strip().replace("{part}", f"room_partition = {number} AND ")
