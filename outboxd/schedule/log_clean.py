"""Old lines of the job log are deleted: from the low end of the primary key, in small transactions."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outboxd.errors import StoreConflict
from outboxd.store import statements
from outboxd.store.connection import Connection, Row
from outboxd.store.lists import among, chunks

NO_DELETE = "DELETE FROM outboxd_job_log WHERE id = 0"
"""Primary key. No row has it: is there the right to delete?"""
BATCH_ROWS = 5_000
"""Of one transaction."""
MOST_CONFLICTS = 20
"""In a row; then something holds the lines that will not let go."""
CONFLICT_PAUSE_S = 0.2
LONGEST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Cleaned:
    """deleted: lines. is_complete: none that old is left, save those of runs that have not ended."""

    deleted: int
    is_complete: bool


def clean_log(
    connection: Connection,
    older_than_ms: int,
    most_rows: int,
    should_stop: Callable[[], bool] = lambda: False,
    pause: Callable[[float], None] = time.sleep,
) -> Cleaned:
    """Delete lines of runs whose time was more than older_than_ms ago by the database's clock, at most most_rows;
    runs that are requested or running stay.

    should_stop: asked before each transaction. pause: waits so many seconds, as long as the transaction before it took.
    Raises StoreConflict if locks stand in the way again and again, StoreUnavailable, StoreRefused; what was deleted
    before that is gone.
    """
    deleted = after = conflicts = 0
    while deleted < most_rows and not should_stop():
        start_s = time.monotonic()
        try:
            page = _oldest(connection, older_than_ms, after, min(BATCH_ROWS, most_rows - deleted))
            deleted += _delete(connection, [int(row[0]) for row in page if row[1] and not row[2]])
        except StoreConflict:
            conflicts += 1
            if conflicts > MOST_CONFLICTS:
                raise
            pause(CONFLICT_PAUSE_S)
            continue
        if not any(row[1] for row in page):
            return Cleaned(deleted, True)
        after, conflicts = int(page[-1][0]), 0
        pause(min(time.monotonic() - start_s, LONGEST_PAUSE_S))
    return Cleaned(deleted, False)


def _oldest(connection: Connection, older_than_ms: int, after: int, most: int) -> Sequence[Row]:
    sql = statements.load("job_clean")["oldest"].replace("{now}", statements.NOW[connection.dialect])
    return connection.query(sql, {"age": older_than_ms, "after": after, "most": most})


def _delete(connection: Connection, ids: Sequence[int]) -> int:
    if not ids:
        return 0
    sql = statements.load("job_clean")["delete"]
    connection.begin()
    try:
        deleted = sum(connection.execute(sql.replace("{rows}", among("id", chunk))) for chunk in chunks(ids))
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    return deleted
