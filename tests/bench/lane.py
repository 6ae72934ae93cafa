"""A lane of the benchmark: made by init-db, filled, looked at."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from outboxd.config.load import parse
from outboxd.config.schema import Config
from outboxd.store import connect as connect_store
from outboxd.store.migrate import init_db, patient
from tests.services.mariadb import connect
from tests.services.wait import wait_for

ENVELOPE = json.dumps(
    {"event_id": "e", "event_type": "RoomChanged", "room_id": "room-1", "body": {"user_id": 7, "text": "y" * 190}}
).encode()
"""About 300 bytes, as bareloop.py asks for; an EventEnvelope, which some publishers have to read."""

NODE = "bench"
SOCKET = f"/tmp/outboxd-bench-{os.getpid()}/admin.sock"
"""Of the daemons of this run: one after the other."""

CONFIG = """
node_id: {node}
database: {{url: "{url}"}}
admin: {{listen: "", socket: "{socket}"}}
lanes: {{room_outbox: {{}}, room_history: {{{history}}}}}
outbox_worker: {{direct: [{publisher}], concurrency: {workers}, batch_size: {batch}}}
publishers:
  nothing: {{type: "null"}}
  webhook: {{type: http, url: "{receiver}"}}
{more}
log: {{level: {log_level}, format: console}}
"""


def config(
    url: str,
    publisher: str,
    receiver: str = "http://127.0.0.1:9/",
    workers: int = 4,
    batch: int = 500,
    more: str = "",
    history: str = "",
    node: str = NODE,
    log_level: str = "warning",
) -> Config:
    """The configuration of one run. more: lines of further publishers. history: settings of the lane room_history
    alone. node: another one than the usual one may run beside it.
    """
    text = CONFIG.format(
        url=url, publisher=publisher, receiver=receiver, workers=workers, batch=batch, more=more, history=history,
        node=node, log_level=log_level, socket=SOCKET if node == NODE else SOCKET.replace("admin", node),
    )  # fmt: skip
    return parse(text, {}, "the benchmark's configuration")


def make(settings: Config) -> None:
    """Empty tables, as init-db makes them."""
    known = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
    with closing(connect(settings.database.url)) as connection:
        cursor = connection.cursor()
        cursor.execute(known)
        ours = [name for (name,) in cursor.fetchall() if name in settings.lanes or name.startswith("outboxd_")]
        if ours:
            cursor.execute(f"DROP TABLE {', '.join(ours)}")
    store = connect_store(patient(settings.database))
    try:
        init_db(store, list(settings.lanes.values()))
    finally:
        store.close()


def fill(
    url: str,
    count: int,
    columns: Mapping[str, str] | None = None,
    prefix: str = "e",
    table: str = "room_outbox",
    envelope: bytes = ENVELOPE,
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
                f"INSERT INTO {table} (event_id, envelope, {names}) "  # ids in order: their index is filled at its end
                f"SELECT CONCAT('{prefix}', LPAD(seq, 9, '0')), %s, {values} FROM seq_{start}_to_{end}",
                (envelope,),
            )


def last_id(url: str, table: str) -> int:
    """The greatest id so far; 0: there is none."""
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(f"SELECT COALESCE(MAX(id), 0) FROM {table}")
        return int(cursor.fetchone()[0])


def relay_to_end(url: str, table: str, after: int, timeout_s: float) -> None:
    """Wait until everything behind an id is delivered or failed. Cheap to ask: the last row is looked at first."""
    with closing(connect(url)) as connection:
        cursor = connection.cursor()

        def is_relayed() -> bool:
            cursor.execute(f"SELECT status IN ('delivered', 'failed') FROM {table} ORDER BY id DESC LIMIT 1")
            if not cursor.fetchone()[0]:
                return False
            behind = f"FROM {table} FORCE INDEX (PRIMARY) WHERE id > {after}"
            cursor.execute(f"SELECT EXISTS (SELECT 1 {behind} AND due_at_ms >= 0)")
            return not cursor.fetchone()[0]

        wait_for(is_relayed, timeout_s, "the events to be delivered")


def calm_down(url: str, timeout_s: float = 60) -> None:
    """Wait until the server has purged what was changed before: else that falls on whoever comes next."""
    with closing(connect(url)) as connection:
        cursor = connection.cursor()

        def is_calm() -> bool:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'")
            return int(cursor.fetchone()[1]) < 100

        wait_for(is_calm, timeout_s, "the purge to end")


def relayed_in_s(url: str, table: str, after: int) -> float:
    """From the first settle of the rows behind an id to the last one; all of them must be delivered."""
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(
            "SELECT MIN(delivered_at_ms), MAX(delivered_at_ms), SUM(status <> 'delivered') "
            f"FROM {table} FORCE INDEX (PRIMARY) WHERE id > {after}"
        )
        first_ms, last_ms, others = cursor.fetchone()
        assert not others, f"{others} events of the benchmark were not delivered"
        return (int(last_ms) - int(first_ms)) / 1000


def last_delivery_ms(url: str) -> int:
    """When the last event was settled, by the server's clock; all of them must be delivered."""
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT MAX(delivered_at_ms), SUM(status <> 'delivered') FROM room_outbox")
        last_ms, others = cursor.fetchone()
        assert not others, f"{others} events of the benchmark were not delivered"
        return int(last_ms)


def start(settings: Config, *tables: str) -> int:
    """A daemon in a process of its own that relays room_outbox, or those lanes; the supervisor's pid."""
    from outboxd.cli.run import run_daemon  # noqa: PLC0415 - in the child that becomes the supervisor

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            lanes = [settings.lanes[table] for table in tables or ("room_outbox",)]
            code = run_daemon(settings, lanes, until_empty=False)
        finally:
            os._exit(code)
    return pid


@contextmanager
def daemon(settings: Config, *tables: str) -> Iterator[int]:
    """The same, ended in order afterwards."""
    pid = start(settings, *tables)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
