"""What a worker holds: claimed events, the leases they stand under, and when those must be renewed. Pure, no I/O.

Invariants: an event is held at most once; its claim is the newest one that took it. A lease's end is counted by this
process's monotonic clock from before the claim was sent, so it never seems longer here than in the database.
"""

from collections.abc import Iterable, Iterator

from outboxd.event import Event
from outboxd.publishers.route import Item


class Claimed:
    """The rows of one claim that are still held. `until_s`: when their lease runs out, time.monotonic()."""

    __slots__ = ("items", "renew_at_s", "token", "until_s")

    def __init__(self, token: int, since_s: float, lease_s: float) -> None:
        self.token = token
        self.items: dict[int, Item] = {}
        self.extend(since_s, lease_s)

    def extend(self, since_s: float, lease_s: float) -> None:
        """The lease now counts from since_s; it is to be renewed at half of its life."""
        self.until_s = since_s + lease_s
        self.renew_at_s = since_s + lease_s / 2
        for item in self.items.values():
            item.lease_s = self.until_s


class Flight:
    """All that one worker holds."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._claims: dict[int, Claimed] = {}
        self._count = 0
        self.payload_bytes = 0
        self.suspect: int | None = None
        """The id of the one suspect held, if any: then nothing else may be claimed."""

    def __len__(self) -> int:
        return self._count

    def add(self, token: int, events: Iterable[Event], since_s: float, suspect: bool = False) -> list[Item]:
        """Hold the events of a claim sent at since_s."""
        claimed = self._claims.get(token) or Claimed(token, since_s, self._lease_s)
        added: list[Item] = []
        for event in events:
            item = Item(event, token, claimed.until_s)
            claimed.items[event.id] = item
            added.append(item)
            self.payload_bytes += len(event.envelope)
            if suspect:
                self.suspect = event.id
        if added:  # a claim that found nothing would never be finished
            self._claims[token] = claimed
        self._count += len(added)
        return added

    def finish(self, items: Iterable[Item]) -> None:
        """No longer held: settled, released or lost."""
        for item in items:
            event = item.event
            claimed = self._claims.get(item.token)
            if claimed is None or claimed.items.pop(event.id, None) is None:
                continue
            self._count -= 1
            self.payload_bytes -= len(event.envelope)
            if self.suspect == event.id:
                self.suspect = None
            if not claimed.items:
                del self._claims[item.token]

    def holds(self, item: Item) -> bool:
        """Is this very claim of the event still held here?"""
        claimed = self._claims.get(item.token)
        return claimed is not None and item.event.id in claimed.items

    def claims(self) -> Iterator[Claimed]:
        """Every claim of which something is held."""
        return iter(tuple(self._claims.values()))

    def due_for_renewal(self, now_s: float) -> list[Claimed]:
        """Claims past half of their lease."""
        return [claimed for claimed in self._claims.values() if claimed.renew_at_s <= now_s]

    def next_renewal_s(self) -> float:
        """When the next one is, or forever."""
        return min((claimed.renew_at_s for claimed in self._claims.values()), default=float("inf"))
