"""What the bridge reads from: a consumer group of a queue. One contract suite runs against every implementation."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol


class Delivery(NamedTuple):
    """One message in our hands. body: the message's bytes. attempt: 1 for the first time. handle: the queue's own."""

    body: bytes
    attempt: int
    handle: object


class Subscription(Protocol):
    """A place in a consumer group, used by one thread. Every call ends within the time-out it was opened with.

    A message that is neither done nor buried comes again, here or at another consumer of the group, at the latest
    `invisible_s` after it was received or held. All calls raise SubscriptionError when the queue cannot be asked.
    """

    invisible_s: float

    def receive(self, limit: int, wait_s: float) -> list[Delivery]:
        """At most `limit` messages; waits up to about wait_s for the first."""

    def done(self, deliveries: Iterable[Delivery]) -> None:
        """These do not come again."""

    def hold(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """These stay ours for another invisible_s, and no attempt is counted; returned as they are to be named now."""

    def give_back(self, delivery: Delivery, after_s: float) -> None:
        """It comes again after about after_s, with one attempt more."""

    def release(self, deliveries: Iterable[Delivery], after_s: float) -> None:
        """They come again after about after_s. No attempt is counted, where the queue can be told so."""

    def bury(self, delivery: Delivery, reason: str) -> None:
        """It goes to the group's dead letters."""

    def close(self) -> None:
        """Leave the group. What is in our hands comes again elsewhere. Never raises."""
