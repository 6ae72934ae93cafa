"""What every subscription promises (outboxd/bridge/api.py), asked of each of them."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from outboxd.bridge.api import Delivery, Subscription
from outboxd.bridge.redis import RedisSubscription
from outboxd.errors import SubscriptionError
from tests.services.find import free_port
from tests.services.publishing import seconds
from tests.services.redis_server import client, private_redis
from tests.services.rocketmq_queue import RocketMqQueue
from tests.services.wait import wait_for

KINDS = ("redis_streams", "rocketmq")
PATIENCE_S = 30


@dataclass(frozen=True)
class Kind:
    """One implementation, on a queue of its own that is empty.

    invisible_s: of its subscriptions. open: one in a group, "one" unless named; closed at the end. put: messages to the
    queue. dead_letters: the bodies in those of group "one". unreachable: one whose server is not there.
    """

    invisible_s: float
    open: Callable[..., Subscription]
    put: Callable[[Sequence[bytes]], None]
    dead_letters: Callable[[], list[bytes]]
    unreachable: Callable[[], Subscription]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    """Made anew for each test, and closed behind it."""
    yield from globals()[f"{request.param}_kind"](request.getfixturevalue)


def rocketmq_kind(fixture: Callable[[str], Any]) -> Iterator[Kind]:
    queue = RocketMqQueue(fixture("rocketmq"))
    opened: list[Subscription] = []

    def open_one(group: str = "one", endpoints: str | None = None) -> Subscription:
        opened.append(queue.subscribe(group, 4, endpoints))
        return opened[-1]

    unreachable = partial(open_one, endpoints=f"127.0.0.1:{free_port()}")
    yield Kind(4, open_one, queue.put, lambda: queue.dead_letters("one"), unreachable)
    for subscription in opened:
        subscription.close()


def redis_streams_kind(_: Callable[[str], Any]) -> Iterator[Kind]:
    opened: list[RedisSubscription] = []
    with private_redis() as server, contextlib.closing(client(server.url)) as redis:

        def open_one(group: str = "one", url: str = server.url) -> Subscription:
            consumer = f"node/im_bridge-{len(opened):02d}"
            opened.append(RedisSubscription(url, "s", group, consumer, invisible_s=2, timeout_s=2))
            return opened[-1]

        def put(messages: Sequence[bytes]) -> None:
            for body in messages:
                redis.xadd("s", {b"m": body})

        def dead_letters() -> list[bytes]:
            found: Any = redis.xrange("s:one:dead")
            return [fields[b"m"] for _, fields in found]

        unreachable = partial(open_one, url=f"redis://127.0.0.1:{free_port()}/0")
        yield Kind(2, open_one, put, dead_letters, unreachable)
        for subscription in opened:
            subscription.close()


def receive(subscription: Subscription, count: int, limit: int = 10, timeout_s: float = PATIENCE_S) -> list[Delivery]:
    """So many deliveries; fails if they are not there in time."""
    deliveries: list[Delivery] = []
    until_s = time.monotonic() + timeout_s
    while len(deliveries) < count:
        assert time.monotonic() < until_s, f"{len(deliveries)} of {count} deliveries after {timeout_s:g} s"
        received = subscription.receive(limit, 0.5)
        assert len(received) <= limit
        deliveries += received
    return deliveries


def bodies(deliveries: Sequence[Delivery]) -> list[bytes]:
    return sorted(delivery.body for delivery in deliveries)


def test_messages_come_once_and_as_they_are(kind: Kind) -> None:
    """At most as many at a time as are asked for; afterwards there is nothing to wait for but new ones."""
    subscription = kind.open()
    put = [b"%d \xff\x00" % number for number in range(7)]
    kind.put(put)
    deliveries = receive(subscription, 7, limit=3)
    assert bodies(deliveries) == put
    assert {delivery.attempt for delivery in deliveries} == {1}
    subscription.done(deliveries)
    start_s = time.monotonic()
    assert subscription.receive(10, 0.5) == []
    assert 0.4 < time.monotonic() - start_s < 2


def test_what_is_not_done_comes_again_elsewhere_and_what_is_held_does_later(kind: Kind) -> None:
    """G1: whoever had it may be dead. What takes long is held, which is no attempt."""
    subscription = kind.open()
    kind.put([b"done", b"neither", b"held"])
    deliveries = {delivery.body: delivery for delivery in receive(subscription, 3)}
    start_s = time.monotonic()
    subscription.done([deliveries[b"done"]])
    wait_for(lambda: time.monotonic() - start_s > kind.invisible_s / 2, kind.invisible_s, "half of the time")
    (held,) = subscription.hold([deliveries[b"held"]])
    assert (held.body, held.attempt) == (b"held", 1)
    subscription.close()
    other = kind.open()
    came: dict[bytes, float] = {}
    while len(came) < 2:
        for again in receive(other, 1):
            assert again.attempt == 2
            came[again.body] = time.monotonic() - start_s
            other.done([again])
    assert came.keys() == {b"neither", b"held"}
    assert kind.invisible_s * 0.9 < came[b"neither"] <= came[b"held"]
    assert came[b"held"] > kind.invisible_s * 1.4


def test_what_is_held_can_still_be_done(kind: Kind) -> None:
    """By the name that it has then."""
    subscription = kind.open()
    kind.put([b"a", b"b"])
    subscription.done(subscription.hold(receive(subscription, 2)))
    assert subscription.receive(10, 0.5) == []


def test_what_is_given_back_comes_again_with_one_attempt_more(kind: Kind) -> None:
    """And not before its time."""
    subscription = kind.open()
    kind.put([b"a"])
    (delivery,) = receive(subscription, 1)
    start_s = time.monotonic()
    subscription.give_back(delivery, 1.0)
    (again,) = receive(subscription, 1)
    assert time.monotonic() - start_s > 0.9
    assert (again.body, again.attempt) == (b"a", 2)
    subscription.done([again])


def test_what_is_buried_is_a_dead_letter_and_does_not_come_again(kind: Kind) -> None:
    """G7: nobody who works for the group sees it again; a person can look at it."""
    subscription = kind.open()
    kind.put([b"bad", b"good"])
    for delivery in receive(subscription, 2):
        if delivery.body == b"bad":
            subscription.bury(delivery, "no such tenant")
        else:
            subscription.done([delivery])
    assert wait_for(kind.dead_letters, PATIENCE_S, "the dead letter") == [b"bad"]
    assert subscription.receive(10, 0.5) == []


def test_consumers_of_a_group_share_and_other_groups_have_their_own(kind: Kind) -> None:
    """Each message goes to one consumer of each group."""
    first, second, other = kind.open(), kind.open(), kind.open("two")
    put = [b"%d" % number for number in range(10, 30)]
    kind.put(put)
    shared: list[Delivery] = []
    until_s = time.monotonic() + PATIENCE_S
    while len(shared) < len(put) and time.monotonic() < until_s:
        for subscription in (first, second):
            deliveries = subscription.receive(3, 0.1)
            subscription.done(deliveries)
            shared += deliveries
    assert bodies(shared) == put
    own = receive(other, len(put))
    assert bodies(own) == put
    other.done(own)


def test_a_queue_that_is_away_is_said_in_time(kind: Kind) -> None:
    """The bridge waits and tries again; it never hangs."""
    subscription = kind.unreachable()
    start_s = time.monotonic()
    with pytest.raises(SubscriptionError):
        subscription.receive(10, 0.5)
    assert time.monotonic() - start_s < 5
    assert seconds(subscription.close) < 6
