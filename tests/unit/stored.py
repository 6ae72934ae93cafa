"""A row of an ordered lane as a naive model of the table has it."""

from outboxd.relay.room import Row
from outboxd.store.api import FRESH, Settlement


class Stored:
    """A row as the table has it. held: by this worker's claim, whose outcome may be `owed`."""

    def __init__(self, row_id: int, room: str) -> None:
        self.id = row_id
        self.room = room
        self.status = "pending"
        self.due_s: float | None = None
        self.lease_s = 0.0
        self.is_skipped = False
        self.is_held = False
        self.owed: Settlement | None = None

    def seen(self, now_s: float, *, is_light: bool) -> Row:
        """What a statement gives."""
        due = FRESH if self.due_s is None else 1 + int(self.due_s * 1000)
        due = {"delivered": -1, "failed": -2}.get(self.status, due)
        wait_ms = 0 if self.due_s is None else round((self.due_s - now_s) * 1000)
        payload = None if is_light else b"{}"
        times = round((self.lease_s - now_s) * 1000), wait_ms, -1 if self.is_skipped else 0
        return (self.id, "", "", self.room, "app", payload, "", None, 0, 0, "", None, self.status, due, 2, 1, *times)
