"""A message in the bridge's hands: what it is, where it stands, and what the queue is still to be told of it."""

from collections.abc import Callable

from outboxd.bridge.api import Delivery
from outboxd.event import Event
from outboxd.inbox import check_names
from outboxd.message import InvalidMessage, Message, decode
from outboxd.publishers.route import Item

UNCHECKED, READY, OFFERED, OWED = "unchecked", "ready", "offered", "owed"
"""Not looked up yet · to be published when its time comes · with the publisher · settled, and the queue not told."""


class Hand:
    """message: None for what is none, and then `problem` says why. try_at_s: READY ones are published from then on.
    tries: uncounted failures so far. owed: tells the queue; raises SubscriptionError.
    """

    __slots__ = ("delivery", "item", "message", "owed", "problem", "state", "tries", "try_at_s", "until_s")

    def __init__(self, delivery: Delivery, until_s: float) -> None:
        self.delivery = delivery
        self.until_s = until_s
        self.state = UNCHECKED
        self.try_at_s = 0.0
        self.tries = 0
        self.owed: Callable[[], None] | None = None
        self.item: Item | None = None
        self.message, self.problem = _read(delivery.body)

    def extend(self, delivery: Delivery, until_s: float) -> None:
        """It stays ours until then, under this name."""
        self.delivery, self.until_s = delivery, until_s
        if self.item is not None:
            self.item.lease_s = until_s

    def owe(self, tell: Callable[[], None]) -> None:
        """Settled: only the queue is still to be told."""
        self.state, self.owed, self.item = OWED, tell, None

    def put_off(self, try_at_s: float) -> None:
        """To be published again then."""
        self.state, self.try_at_s, self.item = READY, try_at_s, None

    def offered(self, message: Message) -> Item:
        """It goes to the publisher."""
        self.state = OFFERED
        self.item = Item(event_of(message), 0, self.until_s)
        return self.item

    def named(self) -> dict[str, object]:
        """As the log has it."""
        message = self.message
        if message is None:
            return {}
        return {"event_id": message.event_id, "event_type": message.event_type, "room_id": message.room_id}


def event_of(message: Message) -> Event:
    """The event as the relay had it."""
    return Event(
        id=message.outbox_id,
        event_id=message.event_id,
        event_type=message.event_type,
        room_id=message.room_id,
        app_code=message.app_code,
        envelope=message.envelope,
        content_type=message.content_type,
        headers=None,
        retry_count=0,
        created_at_ms=message.created_at_ms,
        published_to="",
        last_error=None,
        lane=message.lane,
    )


def _read(body: bytes) -> tuple[Message | None, str]:
    try:
        message = decode(body)
        check_names("bridge", message.event_id, message.app_code)
    except (InvalidMessage, ValueError) as error:
        return None, str(error)
    return message, ""
