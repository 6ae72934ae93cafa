"""What init-db says of rows that stand in a table without a status, on every kind of database."""

from contextlib import closing

import pytest

from outboxd.config.schema import Database, Lane
from outboxd.store import connect
from outboxd.store.migrate import init_db

LANE = Lane(name="room_outbox")
NO_STATUS = "room_outbox: it has no status yet, so all of its 3 rows are pending and will be published"


@pytest.mark.parametrize("unique", ["", ", UNIQUE (app_code, event_id)"])
def test_rows_of_a_table_without_a_status_are_told_of_before_they_are_published(
    database: Database, unique: str
) -> None:
    """Nobody asked whether they were published already: all of them will be, and how many must be said."""
    said: list[str] = []
    with closing(connect(database)) as connection:
        number = "INTEGER" if connection.dialect == "sqlite" else "BIGINT AUTO_INCREMENT"
        text = "VARCHAR({}) CHARACTER SET ascii COLLATE ascii_bin" if connection.dialect == "mysql" else "VARCHAR({})"
        connection.execute(
            f"CREATE TABLE room_outbox (id {number} PRIMARY KEY, event_id {text.format(64)} NOT NULL, "
            f"event_type {text.format(64)} NOT NULL, room_id {text.format(64)} NOT NULL, "
            f"app_code {text.format(32)} NOT NULL DEFAULT '', envelope LONGBLOB NOT NULL{unique})"
        )
        for name in "abc":
            connection.execute(
                "INSERT INTO room_outbox (event_id, event_type, room_id, envelope) VALUES (:name, 't', 'r', 'x')",
                {"name": name},
            )
        init_db(connection, [LANE], said.append)
        assert said.count(NO_STATUS) == 1
        assert connection.query("SELECT COUNT(*) FROM room_outbox WHERE status = 'pending'")[0][0] == 3
        init_db(connection, [LANE], said.append)
        assert said.count(NO_STATUS) == 1, "it has one now"
