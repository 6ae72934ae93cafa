"""A lane of the benchmark: made by init-db, filled, looked at."""

import json
import os
from collections.abc import Mapping
from contextlib import closing

from outboxd.config.load import parse
from outboxd.config.schema import Config
from outboxd.store import connect as connect_store
from outboxd.store.migrate import init_db, patient
from tests.services.mariadb import connect, execute

ENVELOPE = json.dumps(
    {"event_id": "e", "event_type": "RoomChanged", "room_id": "room-1", "body": {"user_id": 7, "text": "y" * 190}}
).encode()
"""About 300 bytes, as bareloop.py asks for; an EventEnvelope, which some publishers have to read."""

SOCKET = f"/tmp/outboxd-bench-{os.getpid()}/admin.sock"
"""Of the daemons of this run: one after the other."""

CONFIG = """
node_id: bench
database: {{url: "{url}"}}
admin: {{listen: "", socket: "{socket}"}}
lanes: {{room_outbox: {{}}, room_history: {{}}}}
outbox_worker: {{direct: [{publisher}], concurrency: {workers}, batch_size: {batch}}}
publishers:
  nothing: {{type: "null"}}
  webhook: {{type: http, url: "{receiver}"}}
{more}
log: {{level: warning, format: console}}
"""


def config(
    url: str, publisher: str, receiver: str = "http://127.0.0.1:9/", workers: int = 4, batch: int = 500, more: str = ""
) -> Config:
    """The configuration of one run. more: lines of further publishers."""
    text = CONFIG.format(
        url=url, publisher=publisher, receiver=receiver, workers=workers, batch=batch, socket=SOCKET, more=more
    )
    return parse(text, {}, "the benchmark's configuration")


def make(settings: Config) -> None:
    """Empty tables, as init-db makes them."""
    execute(settings.database.url, f"DROP TABLE IF EXISTS {', '.join(settings.lanes)}, outboxd_schema, outboxd_lane")
    connection = connect_store(patient(settings.database))
    try:
        init_db(connection, list(settings.lanes.values()))
    finally:
        connection.close()


def fill(
    url: str, count: int, columns: Mapping[str, str] | None = None, prefix: str = "e", table: str = "room_outbox"
) -> None:
    """Insert rows by the server itself; columns: more or other ones and their SQL, `seq` is the number from 1."""
    usual = {"event_type": "'RoomChanged'", "room_id": "CONCAT('room-', MOD(seq, 1000))", "created_at_ms": "1"}
    chosen = {**usual, **(columns or {})}
    names, values = ", ".join(chosen), ", ".join(chosen.values())
    with closing(connect(url, timeout_s=5)) as connection:
        cursor = connection.cursor()
        for start in range(1, count + 1, 100_000):
            end = min(count, start + 99_999)
            cursor.execute(
                f"INSERT INTO {table} (event_id, envelope, {names}) "
                f"SELECT CONCAT('{prefix}', seq), %s, {values} FROM seq_{start}_to_{end}",
                (ENVELOPE,),
            )


def last_delivery_ms(url: str) -> int:
    """When the last event was settled, by the server's clock; all of them must be delivered."""
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT MAX(delivered_at_ms), SUM(status <> 'delivered') FROM room_outbox")
        last_ms, others = cursor.fetchone()
        assert not others, f"{others} events of the benchmark were not delivered"
        return int(last_ms)


def start(settings: Config) -> int:
    """A daemon in a process of its own; the supervisor's pid."""
    from outboxd.cli.run import run_daemon  # noqa: PLC0415 - in the child that becomes the supervisor

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = run_daemon(settings, [settings.lanes["room_outbox"]], until_empty=False)
        finally:
            os._exit(code)
    return pid
