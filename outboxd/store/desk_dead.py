"""Dead letters of one lane: listed, counted, replayed, purged, skipped.

They are read in windows of the index on due_at_ms, so that no statement lasts, and changed by primary key.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from outboxd.config.schema import Lane
from outboxd.store.api import SKIPPED
from outboxd.store.connection import Connection
from outboxd.store.desk import COUNT_CAP
from outboxd.store.desk_find import Desk, Found, find, found_of, text

WINDOW = 1000
"""Dead letters that one statement looks at."""

_ABOVE_ALL = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFilter:
    """Which dead letters; None: any. event_type: `*` stands for anything. error: a part of last_error, case ignored.
    since_ms (included) to until_ms (not): when it died, UTC epoch milliseconds. limit: of how many at the most.
    unskipped: only those that nobody has skipped.
    """

    event_id: str | None = None
    event_type: str | None = None
    room: str | None = None
    app: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    error: str | None = None
    limit: int | None = None
    unskipped: bool = False


def dead_list(
    connection: Connection, lane: Lane, wanted: DeadFilter, limit: int = 50, before_id: int = _ABOVE_ALL
) -> list[Found]:
    """Dead letters with ids below before_id, newest first."""
    desk = Desk(connection, lane)
    most = limit if wanted.limit is None else min(limit, wanted.limit)
    found: list[Found] = []
    for ids in _windows(desk, wanted, "failed_down", before_id, WINDOW):
        found += [found_of(row) for row in desk.query("dead_rows", _params(desk, wanted), ids)]
        if len(found) >= most:
            break
    return found[:most]


def dead_page(
    connection: Connection, lane: Lane, wanted: DeadFilter, limit: int, before_id: int | None, look_at: int
) -> tuple[list[Found], int | None]:
    """A part of the list, and the before_id of what follows, None at its end. It may be short, or empty, before that:
    only about look_at dead letters are looked at.
    """
    desk = Desk(connection, lane)
    found: list[Found] = []
    looked = 0
    for ids in _windows(desk, wanted, "failed_down", _ABOVE_ALL if before_id is None else before_id, WINDOW):
        found += [found_of(row) for row in desk.query("dead_rows", _params(desk, wanted), ids)]
        looked += len(ids)
        if len(found) > limit:
            return found[:limit], found[limit - 1].id
        if looked >= look_at:
            return found, ids[-1]
    return found, None


def dead_count(
    connection: Connection, lane: Lane, wanted: DeadFilter, look_at: int = COUNT_CAP
) -> tuple[int, bool]:
    """(how many, is that a lower bound): about look_at dead letters are looked at, no more."""
    desk = Desk(connection, lane)
    count = seen = 0
    for ids in _windows(desk, wanted, "failed_up", -1, WINDOW):
        if seen >= look_at:
            return count, True
        seen += len(ids)
        count += len(desk.query("dead_published_to", _params(desk, wanted), ids))
    return count if wanted.limit is None else min(count, wanted.limit), False


def replay(
    connection: Connection, lane: Lane, wanted: DeadFilter, *, to_all: bool = False, batch: int = 500
) -> Iterator[int]:
    """Make dead letters pending again; yields how many, after every chunk that changed some.

    Each keeps its event_id and its last_error, until it is delivered; its attempts start anew. Publishers that accepted
    it are not asked again, those that refused it are; with to_all everyone is. In the order of ids; one that dies again
    meanwhile is not taken twice.
    """
    desk = Desk(connection, lane)
    for chunk in _chunks(desk, wanted, batch):
        ids_by_names: dict[str, list[int]] = defaultdict(list)
        for row_id, names in chunk:
            ids_by_names[names].append(row_id)
        done = 0
        for names, ids in ids_by_names.items():
            kept = "" if to_all else ",".join(name for name in names.split(",") if name and not name.startswith("!"))
            done += desk.execute("replay", {"names": kept or None, "seen": names}, ids)
        yield done


def purge(connection: Connection, lane: Lane, wanted: DeadFilter, *, batch: int = 500) -> Iterator[int]:
    """Delete dead letters for good; yields how many, after every chunk."""
    desk = Desk(connection, lane)
    for chunk in _chunks(desk, wanted, batch):
        yield desk.execute("purge", _params(desk, wanted), [row_id for row_id, _ in chunk])


def skip(connection: Connection, lane: Lane, wanted: DeadFilter, *, batch: int = 500) -> Iterator[int]:
    """Let rooms go on behind dead letters, which stay; yields how many, after every chunk. What was skipped before
    is left alone.
    """
    desk, wanted = Desk(connection, lane), replace(wanted, unskipped=True)
    for chunk in _chunks(desk, wanted, batch):
        yield desk.execute("skip", {**_params(desk, wanted), "mark": SKIPPED}, [row_id for row_id, _ in chunk])


def _chunks(desk: Desk, wanted: DeadFilter, batch: int) -> Iterator[Sequence[tuple[int, str]]]:
    """(id, published_to) of what the filter asks for, as it stands when its chunk comes up."""
    left = _ABOVE_ALL if wanted.limit is None else wanted.limit
    for ids in _windows(desk, wanted, "failed_up", -1, max(1, batch)):
        rows = desk.query("dead_published_to", _params(desk, wanted), ids)
        chunk = [(int(row[0]), text(row[1])) for row in rows][:left]
        left -= len(chunk)
        if chunk:
            yield chunk
        if left == 0:
            return


def _windows(desk: Desk, wanted: DeadFilter, name: str, position: int, most: int) -> Iterator[Sequence[int]]:
    """Ids of dead letters, window by window; of one event there is a shorter way to them."""
    if wanted.event_id is not None:
        rows = find(desk.connection, desk.lane, wanted.event_id, wanted.app)
        is_down = name == "failed_down"
        ids = sorted((row.id for row in rows if not is_down or row.id < position), reverse=is_down)
        if ids:
            yield ids
        return
    while ids := [int(row[0]) for row in desk.query(name, {"position": position, "most": most})]:
        yield ids
        position = ids[-1]


def _params(desk: Desk, wanted: DeadFilter) -> dict[str, object]:
    pattern = _like if desk.connection.dialect == "mysql" else _glob
    return {
        "event": wanted.event_id,
        "type": None if wanted.event_type is None else pattern(wanted.event_type),
        "room": wanted.room,
        "app": wanted.app,
        "since": wanted.since_ms,
        "until": wanted.until_ms,
        "unskipped": int(wanted.unskipped),
        "error": None if wanted.error is None else f"%{_escaped(wanted.error)}%",
    }


def _escaped(part: str) -> str:
    return part.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _like(glob: str) -> str:
    return _escaped(glob).replace("*", "%")


def _glob(glob: str) -> str:
    """SQLite's LIKE ignores case, its GLOB does not."""
    return "".join(f"[{letter}]" if letter in "?[" else letter for letter in glob)
