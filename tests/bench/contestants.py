"""Those that are compared: the bare loop, outboxd, and the relay loop that one would write first."""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

import MySQLdb
import requests

from outboxd import log
from outboxd.config.schema import Config
from tests.bench import bareloop, lane
from tests.bench.measure import cpu_s
from tests.services.mariadb import PrivateServer, connect, execute

LONGEST_S = 600
"""A run that takes longer has failed."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: events per second, and microseconds of CPU per event of the relay and of the database."""

    rate: float
    relay_us: float
    database_us: float


def measured(server: PrivateServer, count: int, go: Callable[[], float]) -> Run:
    """go returns the seconds it took; it forks what it measures."""
    database_s, relay_s = cpu_s(server.pid), cpu_s(os.getpid(), with_children=True)
    seconds = go()
    relay_us = (cpu_s(os.getpid(), with_children=True) - relay_s) / count * 1e6
    return Run(count / seconds, relay_us, (cpu_s(server.pid) - database_s) / count * 1e6)


def timed(server: PrivateServer, count: int, work: Callable[[], None]) -> Run:
    """What forks and waits for its children."""

    def go() -> float:
        start_s = time.perf_counter()
        work()
        return time.perf_counter() - start_s

    return measured(server, count, go)


def bare(server: PrivateServer, url: str, count: int, workers: int, batch: int) -> Run:
    """Claim and settle alone: the frozen ceiling."""
    execute(url, "DROP TABLE IF EXISTS room_outbox", bareloop.DDL)
    lane.fill(url, count)
    return measured(server, count, lambda: _bare_loop(url, workers, batch))


def _bare_loop(url: str, workers: int, batch: int) -> float:
    return float(bareloop.run(lambda: _manual(url), workers, batch))  # type: ignore[no-untyped-call]  # frozen


def _manual(url: str) -> MySQLdb.connections.Connection:
    connection = connect(url)
    connection.autocommit(False)
    return connection


def relay(server: PrivateServer, settings: Config, count: int) -> Run:
    """outboxd itself, from before the fork of its supervisor to the last settle."""
    url = settings.database.url
    lane.make(settings)
    lane.fill(url, count)

    def go() -> float:
        start_s = time.time()
        in_child(lambda: _supervise(settings))
        return lane.last_delivery_ms(url) / 1000 - start_s

    return measured(server, count, go)


def _supervise(settings: Config) -> int:
    from outboxd.cli.run import plan_of  # noqa: PLC0415 - in the child that becomes the supervisor
    from outboxd.supervisor.loop import supervise  # noqa: PLC0415

    log.configure(settings.log.level, settings.log.format, settings.node_id)
    with tempfile.TemporaryDirectory() as folder:  # metrics are written, as the daemon does
        plan = plan_of(settings, [settings.lanes["room_outbox"]], folder=folder, until_empty=True)
        return supervise(plan, settings.node_id, until_done=True)


def drained(
    server: PrivateServer,
    nodes: Sequence[Config],
    count: int,
    prefix: str,
    table: str,
    columns: Mapping[str, str] | None = None,
) -> Run:
    """outboxd on a table that holds something already: so many fresh events behind it, timed from the first settle to
    the last, so that the start of a process, the same whatever stands in the table, does not dilute the difference.

    nodes: one daemon for each. prefix: of the event ids, none of which may be there yet. columns: as for lane.fill.
    """
    url = nodes[0].database.url
    after = lane.last_id(url, table)
    lane.fill(url, count, columns, prefix, table)
    lane.calm_down(url)

    def go() -> float:
        with ExitStack() as running:
            for settings in nodes:
                running.enter_context(lane.daemon(settings, table))
            lane.relay_to_end(url, table, after, LONGEST_S)
        return lane.relayed_in_s(url, table, after)

    return measured(server, count, go)


def naive(server: PrivateServer, settings: Config, count: int, receiver: str) -> Run:
    """One process, one event at a time, published with requests and settled row by row."""
    url = settings.database.url
    lane.make(settings)
    lane.fill(url, count)

    def loop() -> int:
        with closing(connect(url)) as connection, requests.Session() as session:
            cursor = connection.cursor()
            while True:
                cursor.execute(
                    "SELECT id, event_id, event_type, envelope FROM room_outbox WHERE due_at_ms = 9007199254740991 "
                    "ORDER BY id LIMIT 100"
                )
                rows = cursor.fetchall()
                for row_id, event_id, event_type, envelope in rows:
                    headers = {"ce-id": event_id, "ce-type": event_type, "content-type": "application/json"}
                    session.post(receiver, data=envelope, headers=headers, timeout=3).raise_for_status()
                    cursor.execute("UPDATE room_outbox SET status = 'delivered' WHERE id = %s", (row_id,))
                if not rows:
                    return 0

    return timed(server, count, lambda: in_child(loop))


def in_child(work: Callable[[], int]) -> None:
    """Run it in a forked process and wait: a supervisor forks only from a process with one thread."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = work()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, f"a contestant ended with {os.waitstatus_to_exitcode(status)}"
