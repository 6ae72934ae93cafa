"""Sends events in batches through a client that blocks: one thread, one batch at a time, everything else waits.

Invariant: an event comes out exactly once, by its deadline, also when the client does not return. Then nothing more is
handed to its thread until it does.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from queue import SimpleQueue

from outboxd.event import EXCEPTION, PARKED, Delivered, Event, Outcome, Retry, room_of
from outboxd.publishers.api import Waits
from outboxd.publishers.mailbox import GIVEN_UP, Call, Mailbox
from outboxd.redact import clip, redact

NOT_SENT = Retry(PARKED, "not sent: the batch before it took too long", counted=False)
WEDGED_AFTER_S = 1.0
"""So long beyond the deadlines of all its events a batch may take before the client is held to be lost."""

BEHIND = Retry(PARKED, "not sent: an event before it in its room failed", counted=False)

Send = Callable[[Sequence[Event], float], Sequence[Outcome]]
"""Publish events by a deadline (time.monotonic()); an outcome for each, in their order."""


def behind_failures(events: Sequence[Event], failed: Collection[int]) -> list[int]:
    """Places of events behind one of their room that failed; failed: places."""
    rooms = {room_of(events[place]): place for place in sorted(failed, reverse=True)}
    return [
        place for place, event in enumerate(events)
        if place not in failed and rooms.get(room_of(event), place) < place
    ]  # fmt: skip


class Courier:
    """A Publisher; see api.py. Whoever uses it says how a batch is sent, and how the client is closed.

    is_ordered: then it `chains`: nothing is handed over behind a failure in its room. Within a batch `send` sees to it.
    """

    def __init__(
        self, name: str, capacity: int, send: Send, close_client: Callable[[], None], is_ordered: bool = False
    ) -> None:
        self.chains = is_ordered
        self._capacity = capacity
        self._send = send
        self._close_client = close_client
        self._mailbox = Mailbox()
        self._waiting: list[Call] = []
        self._handed: SimpleQueue[list[Call] | None] = SimpleQueue()
        self._busy_until_s: float | None = None  # the last deadline in the thread's hands
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def capacity(self) -> int:
        """Events that wait or are being sent."""
        return self._capacity

    @property
    def worn_out(self) -> bool:
        """Does the client not come back? Then the process has to go."""
        busy_until_s = self._busy_until_s
        return busy_until_s is not None and time.monotonic() > busy_until_s + WEDGED_AFTER_S

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Add an event to the next batch."""
        if len(self._mailbox) >= self._capacity or self._is_closed:
            return False
        self._waiting.append(self._mailbox.add(event, deadline_s, NOT_SENT))
        return True

    def collect(self) -> list[tuple[Event, Outcome]]:
        """What has come back, and what is given up."""
        outcomes = self._mailbox.collect()
        if self.chains and self._waiting:
            failed = {room_of(event) for event, outcome in outcomes if not isinstance(outcome, Delivered)}
            if failed:  # what came before these in their rooms has not arrived
                self._mailbox.drop_all((call, BEHIND) for call in self._waiting if room_of(call.event) in failed)
                self._waiting = [call for call in self._waiting if room_of(call.event) not in failed]
        self._hand_over()
        return outcomes

    def wait_on(self) -> Waits:
        """The bell that the thread rings, and the first deadline."""
        self._hand_over()
        return self._mailbox.wait_on()

    def close(self, deadline_s: float) -> None:
        """Let the thread close the client. One that hangs in it dies with the process."""
        self._is_closed = True
        self._handed.put(None)
        self._thread.join(max(0.0, deadline_s - time.monotonic()))
        self._mailbox.close()

    def _hand_over(self) -> None:
        if self._busy_until_s is not None or not self._waiting or self._is_closed:
            return
        batch = [call for call in self._waiting if call in self._mailbox]
        if self.chains and len(self._mailbox) > len(batch):
            return  # not all that became of the last batch has come out yet
        self._waiting.clear()
        if batch:
            for call in batch:
                call.late = GIVEN_UP
            self._busy_until_s = max(call.deadline_s for call in batch)
            self._handed.put(batch)

    def _work(self) -> None:
        while (batch := self._handed.get()) is not None:
            # The first deadline: what is not answered by then is told as late, event by event.
            outcomes = self._outcomes(batch, min(call.deadline_s for call in batch))
            self._busy_until_s = None  # before the bell: whoever hears it hands over the next batch
            self._mailbox.drop_all(zip(batch, outcomes, strict=True))
        self._close_client()

    def _outcomes(self, batch: Sequence[Call], deadline_s: float) -> Sequence[Outcome]:
        try:
            return self._send([call.event for call in batch], deadline_s)
        except Exception as error:  # noqa: BLE001  the thread must go on, whatever the client thinks of
            return [Retry(EXCEPTION, clip(redact(f"{type(error).__name__}: {error}"), 300))] * len(batch)
