"""One relay worker as a program, its store timed: what each look and claim took, and from where it read.

python -m tests.services.timed_worker CONFIG NUMBER FILE PID relays the lane until it is empty, then writes FILE; PID
is the database server's.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from outboxd.config.load import load
from outboxd.config.schema import Lane
from outboxd.publishers import open_publisher
from outboxd.relay.routes import open_fanout
from outboxd.relay.worker import run_worker
from outboxd.store.api import ZERO, Claim, Floors, Peek, Pick, Settled, Settlement, Want
from outboxd.store.mysql import MysqlStore
from outboxd.store.mysql_connection import MysqlConnection
from outboxd.supervisor.scoreboard import Scoreboard
from outboxd.supervisor.signals import Stop
from outboxd.supervisor.spawn import ChildContext
from tests.services.daemon import LANE


class Call(msgspec.Struct, frozen=True):
    """One look or claim. at_s: time.monotonic() when it began. server_s: the processor time that the server spent on
    it, in which nobody shows who keeps the machine busy. sweep: it read from the start. rows: it claimed so many.
    """

    at_s: float
    took_s: float
    server_s: float
    sweep: bool
    rows: int = 0


class TimedStore(MysqlStore):
    """The store as it is, with a watch."""

    def __init__(self, connection: MysqlConnection, lane: Lane, server_pid: int) -> None:
        super().__init__(connection, lane)
        self.calls: list[Call] = []
        # One thread serves one session.
        thread = connection.query("SELECT tid FROM information_schema.processlist WHERE id = CONNECTION_ID()")[0][0]
        self._schedstat = Path(f"/proc/{server_pid}/task/{thread}/schedstat")

    def _served_s(self) -> float:
        return int(self._schedstat.read_text(encoding="ascii").split()[0]) / 1e9

    def _note(self, at_s: float, served_s: float, sweep: bool, rows: int = 0) -> None:
        took_s = time.monotonic() - at_s
        self.calls.append(Call(at_s, took_s, self._served_s() - served_s, sweep, rows))

    def peek(self, floors: Floors) -> Peek:
        at_s, served_s = time.monotonic(), self._served_s()
        found = super().peek(floors)
        self._note(at_s, served_s, floors == ZERO)
        return found

    def exchange(
        self, settlements: Sequence[Settlement], want: Want | Pick | None, floors: Floors
    ) -> tuple[Settled, Claim]:
        at_s, served_s = time.monotonic(), self._served_s()
        settled, claim = super().exchange(settlements, want, floors)
        if want is not None:
            self._note(at_s, served_s, floors == ZERO, len(claim.events))
        return settled, claim


def read(path: Path) -> list[Call]:
    """What a worker has written."""
    return msgspec.json.decode(path.read_bytes(), type=list[Call])


def main() -> None:
    """Relay until the lane is empty."""
    path, number, output, server_pid = sys.argv[1:]
    config = load(path, {})
    lane = config.lanes[LANE]
    stores: list[TimedStore] = []

    def open_store() -> TimedStore:
        stores.append(TimedStore(MysqlConnection(config.database, strict=False), lane, int(server_pid)))
        return stores[-1]

    name = f"{LANE}-{number}"
    board = Scoreboard(1)
    context = ChildContext(board.take(name), Stop(), os.getppid(), f"{config.node_id}/{name}", board)
    publishers = [config.publishers[publisher] for publisher in lane.direct]
    status = run_worker(context, lane, open_store, lambda: open_fanout(lane, publishers, open_publisher), True)
    Path(output).write_bytes(msgspec.json.encode([call for store in stores for call in store.calls]))
    sys.exit(status)


if __name__ == "__main__":
    main()
