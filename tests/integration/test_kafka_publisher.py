"""The publisher `kafka`, in front of a real broker."""

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from outboxd.config import schema
from outboxd.errors import PublisherError
from outboxd.event import (
    CONNECT,
    DNS,
    INVALID,
    MISCONFIGURED,
    REJECTED,
    TIMEOUT,
    TLS,
    Dead,
    Delivered,
    Event,
    Outcome,
    Retry,
)  # fmt: skip
from outboxd.message import decode, encode
from outboxd.publishers import check, open_publisher
from outboxd.publishers.api import Publisher
from tests.services.find import free_port
from tests.services.forking import fork_children
from tests.services.kafka import Kafka, make_topic, read_topic
from tests.services.publishing import collect, make_event, publish, publish_all, seconds, step
from tests.services.silent import silent_server
from tests.services.wait import wait_for

Opens = Callable[..., Publisher]

IS_LONG = os.environ.get("OUTBOXD_CHAOS") == "full"

_numbers = itertools.count()


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """An empty one."""
    name = f"outbox-{os.getpid()}-{next(_numbers)}"
    make_topic(kafka.servers, name)
    return name


@pytest.fixture
def opens() -> Iterator[Opens]:
    """Makes publishers that are closed at the end of the test."""
    made: list[Publisher] = []

    def open_one(servers: str, topic: str, publish_timeout_s: float = 3.0, **options: str) -> Publisher:
        settings = schema.Kafka(name="mq", bootstrap_servers=servers, topic=topic, options=options)
        made.append(open_publisher(settings, "room_outbox", publish_timeout_s))
        return made[-1]

    yield open_one
    for publisher in made:
        publisher.close(time.monotonic() + 1)


def blame(outcome: Outcome) -> tuple[str, bool]:
    assert isinstance(outcome, Retry), outcome
    return outcome.reason, outcome.counted


def publish_stubbornly(
    publisher: Publisher, events: list[Event], look: Callable[[int, int], None]
) -> list[Outcome]:
    """Publish until every event is delivered, as the relay does. look: called with how many are, and the number of
    failures so far.
    """
    failures: list[Outcome] = []
    waiting, delivered = events[::-1], 0
    until_s = time.monotonic() + 90
    while delivered < len(events):
        assert time.monotonic() < until_s, f"{delivered} of {len(events)} delivered; {failures[-3:]}"
        while waiting and publisher.submit(waiting[-1], time.monotonic() + 3):
            waiting.pop()
        for event, outcome in step(publisher, time.monotonic() + 0.1):
            if isinstance(outcome, Delivered):
                delivered += 1
            else:
                failures.append(outcome)
                waiting.insert(0, event)
        look(delivered, len(failures))
    return failures


def test_ten_thousand_events_are_read_back_as_they_were(kafka: Kafka, topic: str, opens: Opens) -> None:
    """G1, G8: keys, headers and bytes; one partition for each room, in the order of their publishing."""
    events = [
        make_event(
            envelope=b'{ "n": %d, "text": "\xf0\x9f\x9a\x80" }' % number, room_id=f"房-{number % 97}",
            event_type="RoomCreated" if number % 2 else "RoomClosed", headers='{"traceparent": "00-1"}',
        )
        for number in range(10_000)
    ]  # fmt: skip
    outcomes = publish_all(opens(kafka.servers, topic), events)
    assert {type(outcome) for _, outcome in outcomes} == {Delivered}
    messages = read_topic(kafka.servers, topic, len(events))
    assert len(messages) == len(events)
    by_id = {decode(message.value() or b"").outbox_id: message for message in messages}
    for event in events:
        message = by_id[event.id]
        assert (message.value(), message.key()) == (encode(event), event.room_id.encode())
        assert dict(message.headers() or []) == {
            "content-type": b"application/json", "ce_specversion": b"1.0", "ce_id": event.event_id.encode(),
            "ce_source": b"/outboxd/room_outbox", "ce_type": event.event_type.encode(), "ce_appcode": b"app",
            "ce_subject": event.room_id.encode(), "ce_partitionkey": event.room_id.encode(),
            "ce_time": b"2023-11-14T22:13:20.123Z",
        }  # fmt: skip
    rooms: dict[bytes, list[tuple[int, int]]] = {}
    for message in messages:
        place = (message.partition() or 0, decode(message.value() or b"").outbox_id)
        rooms.setdefault(bytes(message.key() or b""), []).append(place)
    assert all(places == sorted(places) and places[0][0] == places[-1][0] for places in rooms.values())


@pytest.mark.parametrize("signum", [signal.SIGKILL, *([signal.SIGTERM] if IS_LONG else [])])
def test_no_event_is_lost_when_the_broker_goes_and_comes_back(
    kafka: Kafka, topic: str, opens: Opens, signum: int
) -> None:
    """G1, G6: nothing counts against an event while the broker is away; the same producer works on afterwards."""
    events = [make_event(room_id=f"room-{number % 50}") for number in range(6000)]
    stages = ["running", "away", "back"]

    def look(delivered: int, failures: int) -> None:
        if stages[0] == "running" and delivered >= 1000:
            kafka.stop(signum)
            stages.pop(0)
        elif stages[0] == "away" and failures:
            kafka.start()
            stages.pop(0)

    failures = publish_stubbornly(opens(kafka.servers, topic), events, look)
    assert stages == ["back"]
    assert {blame(outcome) for outcome in failures} == {(CONNECT, False)}
    ids = {decode(message.value() or b"").outbox_id for message in read_topic(kafka.servers, topic, len(events))}
    assert ids == {event.id for event in events}


def test_a_topic_that_is_missing_waits_for_a_person(kafka: Kafka, opens: Opens) -> None:
    """G6: held, not dead; and once it is made, events go there without a restart."""
    topic = f"late-{os.getpid()}-{next(_numbers)}"
    publisher = opens(kafka.servers, topic)
    for _ in range(2):
        assert blame(publish(publisher, make_event(), timeout_s=3)) == (MISCONFIGURED, False)
    make_topic(kafka.servers, topic)
    wait_for(lambda: isinstance(publish(publisher, make_event(), timeout_s=3), Delivered), 20, "the topic to be seen")


def test_an_event_above_the_clients_limit_is_dead(kafka: Kafka, topic: str, opens: Opens) -> None:
    """It can never be accepted; the next one is."""
    publisher = opens(kafka.servers, topic)
    outcome = publish(publisher, make_event(envelope=b'"%b"' % (b"x" * 1_000_000)), timeout_s=3)
    assert isinstance(outcome, Dead)
    assert outcome.reason == INVALID
    assert isinstance(publish(publisher, make_event(), timeout_s=3), Delivered)


def test_an_event_above_the_topics_limit_takes_no_other_one_along(kafka: Kafka, opens: Opens) -> None:
    """The broker refuses a whole batch for one message: none of them is dead, each is tried again."""
    topic = f"small-{os.getpid()}-{next(_numbers)}"
    make_topic(kafka.servers, topic, partitions=1, config={"max.message.bytes": "20000"})
    publisher = opens(kafka.servers, topic, **{"linger.ms": "50"})
    publish(publisher, make_event(), timeout_s=3)
    events = [make_event(envelope=b'"%b"' % (b"x" * (30_000 if number == 5 else 1000))) for number in range(10)]
    kinds = {event.id: outcome for event, outcome in publish_all(publisher, events)}
    assert blame(kinds[events[5].id]) == (REJECTED, True)
    assert not any(isinstance(outcome, Dead) for outcome in kinds.values())
    assert all(isinstance(publish(publisher, event, timeout_s=3), Delivered) for event in events[:5])


def test_a_broker_that_hangs_uses_up_the_events_time(kafka: Kafka, topic: str, opens: Opens) -> None:
    """G4, G5, G6: sent and not answered; closing waits for nothing; afterwards the same producer works on."""
    publisher, drained = opens(kafka.servers, topic), opens(kafka.servers, topic)
    for one in (publisher, drained):
        assert isinstance(publish(one, make_event(), timeout_s=3), Delivered)
    kafka.freeze(True)
    try:
        assert drained.submit(make_event(), time.monotonic() + 3)
        assert seconds(lambda: drained.close(time.monotonic() + 0.5)) < 1.5
        start_s = time.monotonic()
        outcome = publish(publisher, make_event(), timeout_s=3)
        assert time.monotonic() - start_s < 4
    finally:
        kafka.freeze(False)
    assert blame(outcome) == (TIMEOUT, True)
    wait_for(lambda: isinstance(publish(publisher, make_event(), timeout_s=3), Delivered), 20, "an answer again")


def test_what_hangs_is_bounded_and_its_place_comes_back(kafka: Kafka, topic: str, opens: Opens) -> None:
    """G9: events that are given up are in the client's hands still; they take up room until it lets them go."""
    publisher = opens(kafka.servers, topic, publish_timeout_s=3.0)
    assert isinstance(publish(publisher, make_event(), timeout_s=3), Delivered)
    kafka.freeze(True)
    try:
        taken = 0
        while publisher.submit(make_event(), time.monotonic() + 0.3):
            taken += 1
        assert taken == publisher.capacity
        assert {type(outcome) for _, outcome in collect(publisher, taken, 5)} == {Retry}
        refused = make_event()
        assert not publisher.submit(refused, time.monotonic())
        assert publisher.collect() == []
    finally:
        kafka.freeze(False)
    until_s = time.monotonic() + 10
    while not publisher.submit(refused, time.monotonic() + 3):
        assert step(publisher, until_s) == [], "told of an event that it did not take, or twice of one"
        assert time.monotonic() < until_s


@pytest.mark.parametrize(
    ("servers", "options", "reason"),
    [
        ("127.0.0.1:{free}", {}, CONNECT),
        ("127.0.0.1:{silent}", {}, CONNECT),
        ("kafka.invalid:9092", {}, DNS),
        ("{kafka}", {"security.protocol": "SSL"}, TLS),
        ("{kafka}", {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "a",
                     "sasl.password": "b"}, MISCONFIGURED),
    ],
    ids=["refused", "silent", "dns", "tls", "sasl"],
)  # fmt: skip
def test_what_keeps_it_from_the_broker_counts_against_no_event(
    kafka: Kafka, topic: str, opens: Opens, servers: str, options: dict[str, str], reason: str
) -> None:
    """G6: the reason says what to look at."""
    with silent_server(port := free_port()):
        address = servers.format(free=free_port(), silent=port, kafka=kafka.servers)
        publisher = opens(address, topic, publish_timeout_s=2.0, **options)
        assert blame(publish(publisher, make_event(), timeout_s=2)) == (reason, False)


def test_options_that_librdkafka_refuses_are_told_at_the_start(opens: Opens) -> None:
    """G10: the worker does not begin with half of them."""
    with pytest.raises(PublisherError, match=r"publishers\.mq\.options: .*no\.such\.option"):
        opens("127.0.0.1:9", "t", **{"no.such.option": "1"})


def test_check_tells_a_topic_from_none(kafka: Kafka, topic: str) -> None:
    """`outboxd check` has one line for each publisher; it makes no topic, and sends nothing."""
    settings = schema.Kafka(name="mq", bootstrap_servers=kafka.servers, topic=topic)
    assert check(settings, 10.0) == f"{kafka.servers} is reachable; topic {topic!r}, 4 partitions"
    assert read_topic(kafka.servers, topic, 0) == []
    with pytest.raises(PublisherError, match="there is no topic 'nowhere'; create it"):
        check(schema.Kafka(name="mq", bootstrap_servers=kafka.servers, topic="nowhere"), 10.0)
    with pytest.raises(PublisherError, match=r"cannot reach 127\.0\.0\.1:.*Connection refused"):
        check(schema.Kafka(name="mq", bootstrap_servers=f"127.0.0.1:{free_port()}", topic=topic), 1.0)


def test_publishers_of_forked_children_leave_nothing_behind(kafka: Kafka, topic: str) -> None:
    """G7: a worker that is killed and replaced, again and again, with messages in flight."""
    children = 200 if IS_LONG else 30
    result = fork_children("Kafka", {"bootstrap_servers": kafka.servers, "topic": topic}, children)
    assert (result["ended"], result["killed"]) == (children // 2, children // 2)
    assert result["descriptors"][0] == result["descriptors"][1]
    assert result["resident_bytes"][1] < result["resident_bytes"][0] + (8 << 20)
    assert len(read_topic(kafka.servers, topic, 20 * children)) >= 20 * children
