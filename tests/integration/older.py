"""The table of an older room worker, rows as years leave them, and a producer that goes on writing."""

import itertools
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

import MySQLdb

from outboxd.config.schema import Database, Lane
from outboxd.store import connect
from outboxd.store.migrate import PATIENCE, init_db, patient, verify
from outboxd.store.migrate_mysql import Patience
from tests.services import mariadb
from tests.services.wait import wait_for

LANE = Lane(name="room_outbox", direct=("console",))

OLDER = """CREATE TABLE room_outbox (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, event_id VARCHAR(64) NOT NULL, event_type VARCHAR(64) NOT NULL,
  room_id VARCHAR(64) NOT NULL, app_code VARCHAR(32) NOT NULL DEFAULT '', envelope {envelope} NOT NULL,
  status VARCHAR(32) NOT NULL DEFAULT 'pending', worker_id VARCHAR(128) NULL, lock_until_ms BIGINT NULL,
  retry_count INT NOT NULL DEFAULT 0, next_retry_at_ms BIGINT NULL, last_error TEXT NULL, created_at_ms BIGINT NOT NULL,
  updated_at_ms BIGINT NULL, shard INT NULL, seen DATETIME NULL, UNIQUE KEY uk_event (event_id),
  KEY idx_due (status, next_retry_at_ms, created_at_ms)
) ENGINE=InnoDB DEFAULT CHARACTER SET {charset}"""

INSERT = (
    "INSERT INTO room_outbox (event_id, event_type, room_id, app_code, envelope, status, worker_id, created_at_ms) "
    "VALUES (%s, 'RoomCreated', 'room-1', 'app', %s, 'pending', NULL, %s)"
)
"""As the older producers write, NULLs and all."""

BECOMES = {"published": "delivered"}


@dataclass
class Older:
    """The older table, and a way to it past the store."""

    url: str
    link: "MySQLdb.connections.Connection"
    database: Database
    said: list[str] = field(default_factory=list)

    def run(self, sql: str, params: object = None) -> list[tuple[object, ...]]:
        with closing(self.link.cursor()) as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall())

    def create(self, envelope: str = "MEDIUMTEXT", charset: str = "utf8mb4") -> None:
        self.run(OLDER.format(envelope=envelope, charset=charset))

    def insert(self, event_id: str, envelope: object = "{}", **columns: object) -> None:
        row: Mapping[str, object] = {
            "event_id": event_id, "event_type": "RoomCreated", "room_id": "r", "envelope": envelope, "created_at_ms": 7,
            **columns,
        }  # fmt: skip
        self.run(f"INSERT INTO room_outbox ({', '.join(row)}) VALUES ({', '.join(['%s'] * len(row))})", row.values())

    def migrate(self, patience: Patience = PATIENCE) -> None:
        self.said.clear()
        with closing(connect(patient(self.database))) as connection:
            init_db(connection, [LANE], self.said.append, patience)
            verify(connection, LANE)

    def make(self) -> object:
        """The table's definition."""
        return self.run("SHOW CREATE TABLE room_outbox")[0][1]


def fill(older: Older, count: int) -> None:
    """Rows in all states, some with the oddities of long use."""
    statuses = ("pending", "delivering", "delivered", "retryable", "failed", "published", "Pending")
    rows = []
    for number in range(1, count + 1):
        status = statuses[number % len(statuses)]
        rows.append((
            f"event-{number}", f"Room{number % 5}", f"room-{number % 50}", f'{{"n":{number},"text":"Grüße 🚀"}}',
            status, None if number % 3 else f"node/{number % 9}", None if number % 4 else 9_999_999_999_999,
            number % 4, 0 if number % 2 else 5, None if number % 6 else "é" * (600 if number % 12 else 20),
            None if number % 5 else 1,
        ))  # fmt: skip
    sql = (
        "INSERT INTO room_outbox (event_id, event_type, room_id, envelope, status, worker_id, lock_until_ms, "
        "retry_count, next_retry_at_ms, last_error, created_at_ms, updated_at_ms) "
        f"VALUES ({', '.join(['%s'] * 10)}, 7, %s)"
    )
    with closing(older.link.cursor()) as cursor:
        for start in range(0, count, 5000):
            cursor.execute("START TRANSACTION")
            cursor.executemany(sql, rows[start : start + 5000])
            cursor.execute("COMMIT")


def content(older: Older) -> dict[int, tuple[object, ...]]:
    """What must survive, by id."""
    columns = "id, event_id, event_type, room_id, app_code, CAST(envelope AS BINARY), LOWER(status), retry_count, shard"
    return {int(str(row[0])): row[1:] for row in older.run(f"SELECT {columns} FROM room_outbox")}


def assert_kept(older: Older, before: Mapping[int, tuple[object, ...]]) -> None:
    """Every row is still there, with the same id and the same bytes, and its status or what it became."""
    after = content(older)
    for row_id, row in before.items():
        status = str(row[5])
        assert after[row_id] == (*row[:5], BECOMES.get(status, status), *row[6:]), f"row {row_id} changed"
    assert older.run("SELECT COUNT(*) FROM room_outbox WHERE CHAR_LENGTH(last_error) > 512 OR last_error = ''") == [
        (0,)
    ]


class Producer:
    """An older service that inserts all the time, on a connection of its own."""

    def __init__(self, url: str, prefix: str) -> None:
        self.written: list[str] = []
        self.longest_s = 0.0
        self.error: MySQLdb.Error | None = None
        self._url, self._prefix = url, prefix
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Producer":
        self._thread.start()
        wait_for(lambda: self.written or self.error, 10, "the producer's first INSERT")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        with closing(mariadb.connect(self._url)) as link, closing(link.cursor()) as cursor:
            for number in itertools.count(1):
                event_id = f"{self._prefix}-{number}"
                begun_s = time.monotonic()
                try:
                    cursor.execute(INSERT, (event_id, '{"n":1}', 7))
                except MySQLdb.Error as error:
                    self.error = error
                    return
                self.written.append(event_id)
                self.longest_s = max(self.longest_s, time.monotonic() - begun_s)
                if self._stop.wait(0.001):
                    return
