"""`outboxd demo`: the real thing in a private directory, from an application's commit to an HTTP receiver."""

import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import click

from outboxd import log
from outboxd.cli import show
from outboxd.cli.demo_progress import Progress, open_progress
from outboxd.cli.demo_roles import Tally, produce, receive
from outboxd.cli.run import relay_roles
from outboxd.cli.shared import EXIT_DONE, EXIT_FAILED, Command, program
from outboxd.config.schema import Config, Database, Http, Lane
from outboxd.explain import words
from outboxd.store import connect
from outboxd.store.desk import Overview, overview
from outboxd.store.migrate import init_db
from outboxd.supervisor.loop import supervise
from outboxd.supervisor.reload import Plan
from outboxd.supervisor.scoreboard import Scoreboard
from outboxd.supervisor.spawn import Role

LANE = "room_outbox"
WORKERS = 4
STUCK_S = 30.0
"""The demo gives up when nothing has arrived for so long."""
MOST_EVENTS = 1_000_000

NEXT = """
Next, with a configuration (docs/configuration.md; etc/outbox.yaml needs nothing but itself):
  PROGRAM --config etc/outbox.yaml                       the daemon, until Ctrl-C; it prints events
  PROGRAM --config etc/outbox.yaml enqueue --type RoomCreated --room r1 '{"title": "hello"}'
  PROGRAM --config etc/outbox.yaml status --watch        what waits, what is stuck"""


@click.command(cls=Command)
@click.option("--events", type=click.IntRange(1, MOST_EVENTS), default=1000, metavar="N", help="Default: 1000.")
def demo(events: int) -> int:
    """See it work: an embedded database, a producer, 4 workers and an HTTP receiver, all on this machine.

    Needs no configuration and leaves nothing behind. Exit status 0 if every event arrived exactly once.
    """
    with (
        _interruptible(),
        tempfile.TemporaryDirectory(prefix="outboxd-demo-") as directory,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        return _run(_config(directory, listener.getsockname()[1]), listener, Tally(events))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Whatever asks us to end, the directory is removed first."""

    def interrupt(_signum: int, _frame: object) -> None:
        raise KeyboardInterrupt

    def pass_on(_signum: int, _frame: object) -> None:
        # Raising here could be lost inside a fork. The supervisor drains on SIGTERM; without one it interrupts.
        signal.raise_signal(signal.SIGTERM)

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, interrupt),
        signal.SIGHUP: signal.signal(signal.SIGHUP, pass_on),
    }
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _config(directory: str, port: int) -> Config:
    path = os.path.join(directory, "demo.db")
    return Config(
        node_id="demo",
        database=Database(url=f"sqlite:///{path}", path=path),
        lanes={LANE: Lane(name=LANE, direct=("receiver",), concurrency=WORKERS, poll_interval_s=0.05)},
        publishers={"receiver": Http(name="receiver", url=f"http://127.0.0.1:{port}/events", connections=4)},
    )


def _run(config: Config, listener: socket.socket, tally: Tally) -> int:
    lane = config.lanes[LANE]
    log.configure("warning", "console", config.node_id)
    connection = connect(config.database)
    init_db(connection, [lane])
    connection.close()  # no handle crosses a fork
    show.line(f"a producer commits {words.counted(tally.events, 'event')} to {config.database.shown}")
    show.line(f"{WORKERS} workers relay them to http://127.0.0.1:{listener.getsockname()[1]}/events")
    roles = [
        Role("receiver", partial(receive, listener=listener, tally=tally)),
        Role("producer", partial(produce, database=config.database, lane=lane, tally=tally)),
        *relay_roles(config, [lane]),
    ]
    plan = Plan(roles, config.supervisor, drain_limit_s=lane.publish_timeout_s + 2)
    with open_progress(tally.events) as progress:
        watch = Watch(tally, progress)
        supervise(plan, config.node_id, until_done=True, tick=watch.look)
    if not watch.is_over:
        raise KeyboardInterrupt
    return _sum_up(tally, _left(config.database, lane))


class Watch:
    """Looks on while the supervisor works, and asks it to end when all is done or nothing happens any more."""

    def __init__(self, tally: Tally, progress: Progress) -> None:
        self.is_over = False
        self._tally = tally
        self._progress = progress
        self._arrived = 0
        self._changed_s = time.monotonic()

    def look(self, board: Scoreboard) -> None:
        """One look."""
        now_s, arrived = time.monotonic(), self._tally.arrived
        self._progress.show(arrived)
        if arrived != self._arrived:
            self._arrived, self._changed_s = arrived, now_s
        known = sum(board.read(index).total("delivered") for index in range(len(board)))
        is_done = arrived == self._tally.events and known >= self._tally.events
        if not self.is_over and (is_done or now_s - self._changed_s > STUCK_S):
            self.is_over = True
            os.kill(os.getpid(), signal.SIGTERM)  # as a service manager would: everything drains


def _left(database: Database, lane: Lane) -> Overview:
    connection = connect(database)
    try:
        return overview(connection, lane)
    finally:
        connection.close()


def _sum_up(tally: Tally, left: Overview) -> int:
    waiting = left.fresh + left.scheduled + left.retrying + left.delivering
    latencies_s = tally.latencies_s()
    duplicates = words.counted(tally.repeated, "duplicate")
    show.line(f"delivered: {tally.arrived:,} of {words.counted(tally.events, 'event')}; {duplicates}")
    if waiting or left.failed:
        show.line(f"left: {waiting} not delivered, {left.failed} dead letters")
    if latencies_s:
        show.line(f"rate: {tally.arrived / tally.took_s:,.0f} events/s, over {tally.took_s:.1f} s")
        p50, p99 = (latencies_s[int((len(latencies_s) - 1) * share)] * 1000 for share in (0.5, 0.99))
        show.line(f"from commit to receiver: p50 {p50:.0f} ms, p99 {p99:.0f} ms")
    if tally.arrived != tally.events or tally.repeated or waiting or left.failed:
        show.line("not every event arrived exactly once")
        return EXIT_FAILED
    click.echo(NEXT.replace("PROGRAM", program()))
    return EXIT_DONE
