"""For the tests of applications that write an outbox (docs/producing.md, "Testing"): what did this transaction record,
and what becomes of it when it is relayed? With the real tables and the real store, without a daemon.

    from outboxd.testing import OutboxRecorder, relay_all

    with OutboxRecorder(connection) as outbox:
        create_room(connection, "room-42")
    assert outbox.types == ["RoomCreated"]
    assert relay_all(url, receiver).failures == {}

Two databases serve: SQLite, and MySQL or MariaDB. `make_tables` makes what `outboxd init-db` would.
"""

from outboxd.testing.faults import FAIL, HANG, LOSE_ANSWER, Faulty
from outboxd.testing.recorder import OutboxRecorder, Recorded
from outboxd.testing.relaying import Relay, Relayed, make_tables, relay_all

__all__ = [
    "FAIL", "HANG", "LOSE_ANSWER", "Faulty", "OutboxRecorder", "Recorded", "Relay", "Relayed", "make_tables",
    "relay_all",
]  # fmt: skip
