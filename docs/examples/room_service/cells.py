"""The Room Cells of a node, each with its lock and its lease."""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from room_service.domain import Room
from room_service.lease import Lease, Leases

MOST_CELLS = 10_000
"""In memory; the one that was used the longest time ago goes first."""
WAIT_S = 5.0
"""So long a command waits for its turn in a room."""


class Busy(Exception):
    """Other commands of the room take too long."""


@dataclass(slots=True)
class Cell:
    """A room in memory. room: None until it is loaded, and where it is in doubt."""

    room_id: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    lease: Lease | None = None
    epoch: int = 0
    room: Room | None = None
    is_gone: bool = False

    def forget(self) -> None:
        """What is in memory may not be what was saved."""
        self.room = None


class Cells:
    """By room."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._lock = threading.Lock()
        self._cells: OrderedDict[str, Cell] = OrderedDict()

    @contextlib.contextmanager
    def locked(self, room_id: str) -> Iterator[Cell]:
        """The room's cell, to oneself. Raises Busy."""
        while True:
            cell = self._get(room_id)
            if not cell.lock.acquire(timeout=WAIT_S):
                raise Busy(f"{room_id} has been busy for {WAIT_S:g} s")
            if not cell.is_gone:
                break
            cell.lock.release()  # it was put out of memory while we waited for it
        try:
            yield cell
        finally:
            cell.lock.release()

    def _get(self, room_id: str) -> Cell:
        with self._lock:
            cell = self._cells.get(room_id)
            if cell is None:
                cell = self._cells[room_id] = Cell(room_id)
            self._cells.move_to_end(room_id)
            leaving = self._make_room()
        for one in leaving:
            self._let_go(one)
        return cell

    def _make_room(self) -> list[Cell]:
        """Take cells that nobody uses out of memory; they stay locked until their lease is given back."""
        leaving: list[Cell] = []
        for cell in list(self._cells.values())[: len(self._cells) - MOST_CELLS]:
            if cell.lock.acquire(blocking=False):
                del self._cells[cell.room_id]
                leaving.append(cell)
        return leaving

    def _let_go(self, cell: Cell) -> None:
        cell.is_gone = True
        if cell.lease is not None:
            self._leases.release(cell.lease)
        cell.lock.release()

    def release_all(self) -> None:
        """At the end of the process."""
        with self._lock:
            cells = list(self._cells.values())
            self._cells.clear()
        for cell in cells:
            if cell.lock.acquire(timeout=WAIT_S):
                self._let_go(cell)
