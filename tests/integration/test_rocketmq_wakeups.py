"""A rocket is ignited: the publisher schedules a wake-up at a real RocketMQ, and the room service is woken in time."""

import time
from collections.abc import Iterator

import pytest

from outboxd.config.schema import RocketLaunch
from outboxd.errors import PublisherError
from outboxd.event import INVALID, MISCONFIGURED, REJECTED, Dead, Delivered, Retry
from outboxd.publishers import check, open_publisher
from outboxd.publishers.api import Publisher
from outboxd.wakeups import command_id
from outboxd.wakeups.rocketmq import RocketMqWakeups
from tests.services.publishing import make_event, publish
from tests.services.rocketmq import RocketMq, make_topics
from tests.services.rocketmq_queue import RocketMqQueue
from tests.services.rockets import PATIENCE_S, ignited, launch_of, now_ms, publishing, reading, take

HOUR_MS = 3_600_000


@pytest.fixture
def queue(rocketmq: RocketMq) -> RocketMqQueue:
    """A topic for delayed messages."""
    return RocketMqQueue(rocketmq, "DELAY")


@pytest.fixture
def launch(rocketmq: RocketMq, queue: RocketMqQueue) -> RocketLaunch:
    """The publisher's settings."""
    return launch_of(rocketmq, queue)


@pytest.fixture
def publisher(launch: RocketLaunch) -> Iterator[Publisher]:
    """Closed at the end."""
    with publishing(launch) as made:
        yield made


@pytest.fixture
def wakeups(rocketmq: RocketMq, queue: RocketMqQueue) -> Iterator[RocketMqWakeups]:
    """What the room service reads from."""
    with reading(rocketmq, queue) as made:
        yield made


def test_a_wakeup_comes_at_its_time(publisher: Publisher, wakeups: RocketMqWakeups) -> None:
    """Never early; RocketMQ delivers at whole seconds, so up to one later, and here a loaded machine may add to it."""
    due = {f"rocket-{number}": now_ms() + 1500 + 173 * number for number in range(12)}
    for rocket_id, launch_at_ms in due.items():
        assert isinstance(publish(publisher, ignited(rocket_id, launch_at_ms)), Delivered)
    taken = take(wakeups, len(due))
    for one, came_at_ms in taken:
        late_ms = came_at_ms - one.wakeup.launch_at_ms
        assert 0 <= late_ms < 3000, one
        assert (one.wakeup.launch_at_ms, one.attempt) == (due.pop(one.wakeup.rocket_id), 1)
        assert one.wakeup.command_id == command_id("app", "room-1", one.wakeup.rocket_id, 3)
        wakeups.done(one)
    assert due == {}
    assert wakeups.receive(0.3) == []


def test_a_time_in_the_past_is_now_and_repeats_have_the_same_command_id(
    publisher: Publisher, wakeups: RocketMqWakeups
) -> None:
    """An event that waited in the outbox for longer than the rocket burns; one that is published twice."""
    late = ignited("rocket", now_ms() - HOUR_MS)
    assert [publish(publisher, late) for _ in range(2)] == [Delivered()] * 2
    taken = take(wakeups, 2)
    assert [one.wakeup.command_id for one, _ in taken] == ["rocket:app:room-1:rocket:3"] * 2
    for one, _ in taken:
        wakeups.done(one)


def test_what_the_broker_cannot_delay_so_long_is_dead_and_says_why(publisher: Publisher) -> None:
    """It can never be accepted; 24 hours are the proxy's limit."""
    assert isinstance(publish(publisher, ignited("near", now_ms() + 24 * HOUR_MS - 60_000)), Delivered)
    outcome = publish(publisher, ignited("far", now_ms() + 25 * HOUR_MS))
    assert isinstance(outcome, Dead)
    assert outcome.reason == REJECTED
    assert outcome.error.startswith("later than the broker allows (24 h unless it is told otherwise): 4")
    outcome = publish(publisher, ignited("farther", 10**18))
    assert isinstance(outcome, Dead)
    assert (outcome.reason, "after the year 2099" in outcome.error) == (INVALID, True)
    assert isinstance(publish(publisher, make_event(envelope=b"{}")), Dead)


def test_a_topic_without_delays_is_a_misconfiguration(rocketmq: RocketMq, launch: RocketLaunch) -> None:
    """G6: every wake-up would come at once; `check` says it too."""
    topic = f"{launch.topic}_normal"
    make_topics(rocketmq, [topic])
    wrong = RocketLaunch(name="rocket", server=launch.server, topic=topic)
    made = open_publisher(wrong, "room_outbox", 3.0)
    outcome = publish(made, ignited("rocket", now_ms() + 1000))
    made.close(time.monotonic() + 2)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (MISCONFIGURED, False)
    with pytest.raises(PublisherError, match="takes messages of type NORMAL, not DELAY"):
        check(wrong, 5)
    assert f"serves the topic {launch.topic} (DELAY)" in check(launch, 5)


def test_what_is_no_wakeup_is_buried(queue: RocketMqQueue, wakeups: RocketMqWakeups) -> None:
    """G7: somebody else's message must not come again and again."""
    queue.put([b"no wake-up"], delivery_timestamp=int(time.time()))
    until_s = time.monotonic() + PATIENCE_S
    while not (dead := queue.dead_letters("rooms")):
        assert time.monotonic() < until_s
        assert wakeups.receive(0.5) == []
    assert dead == [b"no wake-up"]
