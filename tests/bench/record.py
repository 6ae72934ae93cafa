"""What `record` costs an application beyond the INSERT itself: CPU of the client, beside the same transaction."""

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import count
from typing import Any

from sqlalchemy.orm import Session

from outboxd.producer import Event, record
from tests.bench import lane
from tests.services.callers import connector, engine_of

COLUMNS = "app_code, event_id, event_type, room_id, envelope, content_type, headers, next_retry_at_ms"
INSERT = f"INSERT INTO room_outbox ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
AT_ONCE = 100
"""Transactions between two looks at the clock: it counts 10 ms on some machines."""
TIMES = 25

_numbers = count()


def measure(url: str, rounds: int) -> dict[str, float]:
    """Microseconds of CPU for a transaction with one event, and what `record` adds to it: for mysqlclient, PyMySQL and
    SQLAlchemy on mysqlclient. The plain INSERT has its values ready, id and all. Of many runs the least counts:
    whatever else the machine does can only add to it.
    """
    lane.make(lane.config(url, "nothing"))
    report: dict[str, float] = {}
    for name in ("mysqlclient", "pymysql"):
        with closing(connector(name, url)()) as connection:
            insert = partial(connection.cursor().execute, INSERT)
            report |= _compare(name, rounds, insert, connection, connection.commit)
    engine = engine_of("mysqlclient", url)
    with Session(engine) as session:
        report |= _compare("sqlalchemy", rounds, partial(_through, session), session, session.commit)
    engine.dispose()
    return report


def _through(session: Session, row: Any) -> object:
    """As plain as it goes with a session."""
    return session.connection().exec_driver_sql(INSERT, row)


def _compare(
    name: str, rounds: int, plain: Callable[[Any], object], where: Any, commit: Callable[[], object]
) -> dict[str, float]:
    def with_insert() -> None:
        plain(("app", f"plain-{next(_numbers)}", "RoomChanged", "room-1", lane.ENVELOPE, "application/json", None, 0))
        commit()

    def with_record() -> None:
        record(where, Event(event_type="RoomChanged", room_id="room-1", app_code="app", envelope=lane.ENVELOPE))
        commit()

    _cpu_us(with_insert)
    _cpu_us(with_record)
    pairs = [(_cpu_us(with_insert), _cpu_us(with_record)) for _ in range(TIMES * rounds)]
    return {
        f"insert_{name}_us": min(insert for insert, _ in pairs),
        f"record_{name}_us": min(recorded for _, recorded in pairs) - min(insert for insert, _ in pairs),
    }


def _cpu_us(transaction: Callable[[], None]) -> float:
    """Of one, on average."""
    start_s = time.process_time()
    for _ in range(AT_ONCE):
        transaction()
    return (time.process_time() - start_s) / AT_ONCE * 1e6
