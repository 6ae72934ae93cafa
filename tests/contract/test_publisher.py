"""What every publisher promises (outboxd/publishers/api.py), asked of each of them."""

import os
import random
import threading
import time
from collections import Counter

import pytest

from outboxd.config.schema import Console, Null
from outboxd.event import Delivered, Event, Outcome, Retry
from outboxd.publishers import check, open_publisher
from tests.services.kinds import KINDS, NEVER_STUCK, Kind
from tests.services.publishing import collect, publish, publish_all, seconds, step
from tests.services.publishing import make_event as make_any_event

TOLERANCE_S = 0.2
ENVELOPE = b'{"event_id": "e", "event_type": "RoomCreated"}'
"""Some publishers send what an envelope says, and not the envelope: it has to be one."""


def make_event(**columns: object) -> Event:
    """An event that every publisher can send, unless the columns say otherwise."""
    return make_any_event(**{"envelope": ENVELOPE, **columns})


every_kind = pytest.mark.parametrize("kind", list(KINDS), indirect=True)
every_stuck_kind = pytest.mark.parametrize("kind", [name for name in KINDS if name not in NEVER_STUCK], indirect=True)


def times_seen(outcomes: list[tuple[Event, Outcome]]) -> Counter[int]:
    return Counter(event.id for event, _ in outcomes)


@every_kind
def test_every_event_comes_out_exactly_once(kind: Kind) -> None:
    """G1: one that came out never would be lost, one that came out twice would be settled twice."""
    events = [make_event() for _ in range(500)]
    outcomes = publish_all(kind.accepting, events)
    assert times_seen(outcomes) == Counter(event.id for event in events)
    assert {type(outcome) for _, outcome in outcomes} == {Delivered}
    assert kind.accepting.collect() == []


@every_kind
def test_a_full_publisher_says_so_and_takes_events_again_once_collected(kind: Kind) -> None:
    """G9: what it holds is bounded by its capacity; an event it did not take does not come out of it."""
    publisher = kind.accepting
    assert publisher.capacity >= 1
    taken = []
    while publisher.submit(event := make_event(), time.monotonic() + 5):
        taken.append(event)
        assert len(taken) <= publisher.capacity
    assert len(taken) == publisher.capacity
    assert times_seen(collect(publisher, len(taken))) == Counter(event.id for event in taken)
    assert isinstance(publish(publisher, make_event()), Delivered)


@every_kind
def test_any_order_of_calls_keeps_every_event(kind: Kind) -> None:
    """The worker submits and collects as its own work allows."""
    chance = random.Random(7)
    publisher, taken, outcomes = kind.accepting, [], []
    for _ in range(300):
        if chance.random() < 0.7:
            event = make_event(envelope=b'{"x": "%b"}' % (b"y" * chance.randrange(20_000)))
            if publisher.submit(event, time.monotonic() + 5):
                taken.append(event)
        else:
            outcomes += step(publisher, time.monotonic() + chance.random() * 0.01)
    outcomes += collect(publisher, len(taken) - len(outcomes))
    assert times_seen(outcomes) == Counter(event.id for event in taken)


@every_stuck_kind
def test_a_publish_ends_at_its_deadline(kind: Kind) -> None:
    """G4: whatever the far side does; here it does nothing. Each event has a deadline of its own."""
    publisher = kind.make_stuck()
    start_s = time.monotonic()
    deadlines = {}
    for after_s in (0.6, 0.2, 0.4):
        event = make_event()
        deadlines[event.id] = start_s + after_s
        assert publisher.submit(event, deadlines[event.id])
    while deadlines:
        for event, outcome in step(publisher, start_s + 5):
            late_s = time.monotonic() - deadlines.pop(event.id)
            assert -TOLERANCE_S < late_s < TOLERANCE_S
            assert isinstance(outcome, Retry)
        assert time.monotonic() < start_s + 5


@every_stuck_kind
def test_collect_does_not_wait_for_the_far_side(kind: Kind) -> None:
    """The worker's loop has other things to do: leases, signals, other publishers."""
    publisher = kind.make_stuck()
    assert publisher.submit(make_event(), time.monotonic() + 5)
    for _ in range(20):
        assert seconds(publisher.collect) < TOLERANCE_S


@every_stuck_kind
def test_waiting_does_not_spin(kind: Kind) -> None:
    """A worker whose receiver is slow sleeps until something happens."""
    publisher = kind.make_stuck()
    assert publisher.submit(make_event(), time.monotonic() + 0.5)
    turns = 0
    while not step(publisher, time.monotonic() + 5):
        turns += 1
    assert turns < 20


@every_kind
def test_an_idle_publisher_asks_for_nothing(kind: Kind) -> None:
    """After its work too: an idle worker must not wake up again and again."""
    publish(kind.accepting, make_event())
    start_s = time.monotonic()
    turns = 0
    while time.monotonic() < start_s + 0.3:
        assert step(kind.accepting, start_s + 0.3) == []
        turns += 1
    assert turns < 5


@every_kind
@pytest.mark.parametrize(
    "columns",
    [
        {"headers": "[1]"},
        {"headers": "{not json"},
        {"headers": '{"traceparent": {"a": "\\r\\nX: y"}, "baggage": "a\\r\\nX: y"}'},
        {"envelope": b""},
        {"envelope": b"\xff\x00\r\n" * 1000},
        {"event_id": "a\r\nX: y", "event_type": "b\r\nX: y", "room_id": "c\r\n\r\n", "app_code": "\x00"},
        {"content_type": "text/plain\r\nX: y"},
        {"content_type": "", "room_id": "", "app_code": ""},
        {"event_type": ""},
        {"event_id": ""},
        {"event_id": "\ud800", "event_type": "\ud800", "room_id": "\ud800", "content_type": "\ud800"},
        {"event_id": "房" * 64, "event_type": "🚀" * 64, "room_id": "é" * 64},
        {"created_at_ms": -1},
        {"created_at_ms": 2**63 - 1},
    ],
)
def test_nothing_about_an_event_makes_a_publisher_raise(kind: Kind, columns: dict[str, object]) -> None:
    """G7: one bad event ends with its own outcome, and the next one goes through."""
    publish(kind.accepting, make_event(**columns))
    assert isinstance(publish(kind.accepting, make_event()), Delivered)


@every_stuck_kind
def test_closing_gives_up_what_is_in_flight_in_time(kind: Kind) -> None:
    """G5: a drain ends, whatever the far side does."""
    publisher = kind.make_stuck()
    assert publisher.submit(make_event(), time.monotonic() + 30)
    publisher.collect()
    assert seconds(lambda: publisher.close(time.monotonic() + 0.5)) < 0.5 + TOLERANCE_S


@every_kind
def test_closing_leaves_nothing_open(kind: Kind) -> None:
    """What `close` frees: descriptors, and threads that wait for work."""
    publish(kind.accepting, make_event())
    before = len(os.listdir("/proc/self/fd"))
    held = len(kind.accepting.wait_on().read)
    kind.accepting.close(time.monotonic() + 5)
    assert len(os.listdir("/proc/self/fd")) <= before - held
    assert [thread for thread in threading.enumerate() if thread.name.startswith("accept-")] == []


@pytest.mark.parametrize("settings", [Console(name="console"), Null(name="nothing")])
def test_check_says_what_a_simple_publisher_does(settings: Console | Null) -> None:
    """`outboxd check` has one line for each publisher."""
    assert "\n" not in check(settings, 1.0)
    open_publisher(settings, "room_outbox", 1.0).close(time.monotonic() + 1)
