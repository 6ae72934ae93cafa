"""Events through a real RocketMQ, read back by an ordinary consumer; and what its failures are taken for."""

import json
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from outboxd.config.schema import RocketMq, RocketMqServer
from outboxd.errors import PublisherError
from outboxd.event import CONNECT, DNS, INVALID, MISCONFIGURED, RESET, TIMEOUT, TLS, Dead, Delivered, Event, Retry
from outboxd.message import decode
from outboxd.publishers import check, open_publisher
from outboxd.publishers.api import Publisher
from tests.services import rocketmq as servers
from tests.services.find import free_port
from tests.services.processes import descriptors_of
from tests.services.publishing import make_event, publish, step
from tests.services.rocketmq_admin import drop_topic, make_group
from tests.services.rocketmq_reading import read
from tests.services.silent import silent_server
from tests.services.wait import let_pass, wait_for

EVENTS = 10_000
PUBLISH_TIMEOUT_S = 3.0
PATIENT_S = 10.0
"""For a server that has just started, on a machine with other things to do."""

Opens = Callable[..., Publisher]


@pytest.fixture
def topic(rocketmq: servers.RocketMq) -> str:
    """A topic of one queue, and a group of the same name."""
    name = f"test_{secrets.token_hex(6)}"
    servers.make_topics(rocketmq, [name])
    make_group(rocketmq.broker, name)
    return name


@pytest.fixture
def open_it(rocketmq_server: servers.RocketMq) -> Iterator[Opens]:
    """Makes publishers that are closed at the end."""
    made: list[Publisher] = []

    def open_one(topic: str, **server: object) -> Publisher:
        usual: dict[str, object] = {"endpoints": rocketmq_server.endpoints}
        settings = RocketMq(name="queue", server=RocketMqServer(**{**usual, **server}), topic=topic)  # type: ignore[arg-type]
        made.append(open_publisher(settings, "room_outbox", PUBLISH_TIMEOUT_S))
        return made[-1]

    yield open_one
    for publisher in made:
        publisher.close(time.monotonic() + 2)


def publish_through_outage(
    publisher: Publisher, events: list[Event], outage: Iterator[None]
) -> list[tuple[Event, Retry]]:
    """Publish all as a worker would, again and again until each is delivered; the outage goes on between the turns.
    The failures on the way.
    """
    waiting, delivered = list(events)[::-1], 0
    failures: list[tuple[Event, Retry]] = []
    until_s = time.monotonic() + 120
    while delivered < len(events):
        assert time.monotonic() < until_s, f"{delivered} of {len(events)} delivered, {failures[-1:]}"
        if delivered > len(events) // 3:
            next(outage, None)
        while waiting and publisher.submit(waiting[-1], time.monotonic() + PATIENT_S):
            waiting.pop()
        outcomes = step(publisher, time.monotonic() + 1)
        if any(isinstance(outcome, Retry) for _, outcome in outcomes):
            let_pass(0.1)  # a worker's breaker would open
        for event, outcome in outcomes:
            if isinstance(outcome, Delivered):
                delivered += 1
            else:
                assert isinstance(outcome, Retry), outcome
                failures.append((event, outcome))
                waiting.append(event)
    return failures


def test_ten_thousand_events_survive_a_broker_that_dies_and_comes_back(
    rocketmq: servers.RocketMq, topic: str, open_it: Opens
) -> None:
    """G1, G6: every event is there, byte for byte; the same publisher goes on, and no outage was blamed on an event."""
    events = [
        make_event(event_type=f"Type{number % 7}", room_id=f"room-{number % 100}", envelope=b'{"n": %d}' % number)
        for number in range(EVENTS)
    ]

    def outage() -> Iterator[None]:
        rocketmq.kill()
        until_s = time.monotonic() + 2
        while time.monotonic() < until_s:
            yield
        rocketmq.start()

    publisher = open_it(topic, send_timeout_s=PATIENT_S)
    failures = publish_through_outage(publisher, events, outage())
    # Blamed are those that it died under, and those that it took too long over when it had just come back.
    blamed = [(event.id, failure.reason) for event, failure in failures if failure.counted]
    assert {reason for _, reason in blamed} <= {RESET, TIMEOUT}
    assert max(Counter(event_id for event_id, _ in blamed).values(), default=0) <= 2
    assert {failure.reason for _, failure in failures if not failure.counted} == {CONNECT}
    found = {}
    for message in read(rocketmq.endpoints, topic, topic, EVENTS):
        (key,) = message.keys
        found[key] = message
    assert len(found) == EVENTS
    for event in events:
        message = found[event.event_id]
        assert message.tag == event.event_type
        assert message.properties == {
            "id": event.event_id, "source": "/outboxd/room_outbox", "type": event.event_type,
            "subject": event.room_id, "partitionkey": event.room_id, "appcode": event.app_code,
        }  # fmt: skip
        body = decode(message.body)
        assert (body.outbox_id, body.event_id, body.envelope) == (event.id, event.event_id, event.envelope)


def test_what_rocketmq_forbids_in_names_is_percent_encoded(
    rocketmq: servers.RocketMq, topic: str, open_it: Opens
) -> None:
    """An event is not lost over a character; the body has the true text."""
    headers = json.dumps({"traceparent": "00-1-2-01", "tracestate": "a=\n", "baggage": "b", "other": 1})
    odd = make_event(event_id="a b\x85", event_type="A||B\n", room_id="房 间\x01", app_code=" ", headers=headers)
    bare = make_event(
        event_id=" ", event_type="", room_id="", app_code="", headers='{"traceparent": 1}', envelope=b"\xff"
    )
    publisher = open_it(topic)
    assert isinstance(publish(publisher, odd), Delivered)
    assert isinstance(publish(publisher, bare), Delivered)
    first, second = sorted(
        read(rocketmq.endpoints, topic, topic, 2), key=lambda message: len(message.keys), reverse=True
    )
    assert (first.keys, first.tag) == ({"a%20b%C2%85"}, "A%7C%7CB%0A")
    assert first.properties == {
        "id": "a b%C2%85", "source": "/outboxd/room_outbox", "type": "A||B%0A", "subject": "房 间%01",
        "partitionkey": "房 间%01", "traceparent": "00-1-2-01", "tracestate": "a=%0A",
    }  # fmt: skip
    assert decode(first.body).event_type == odd.event_type
    assert (second.keys, second.tag, second.properties) == (set(), None, {"source": "/outboxd/room_outbox"})
    assert decode(second.body).envelope == b"\xff"


def test_a_body_of_up_to_four_mebibytes_goes_through_and_a_larger_one_is_dead(topic: str, open_it: Opens) -> None:
    """G9: it could never be accepted, however often it is tried."""
    publisher = open_it(topic)
    spare = len(b'""') + 2000  # for the head of the message
    assert isinstance(publish(publisher, make_event(envelope=b'"%b"' % (b"x" * ((4 << 20) - spare))), 10), Delivered)
    outcome = publish(publisher, make_event(envelope=b'"%b"' % (b"x" * (4 << 20))), 10)
    assert isinstance(outcome, Dead)
    assert (outcome.reason, "RocketMQ takes 4194304 at the most" in outcome.error) == (INVALID, True)
    assert isinstance(publish(publisher, make_event()), Delivered)


def test_a_topic_that_is_missing_or_of_another_type_is_a_misconfiguration(
    rocketmq: servers.RocketMq, topic: str, open_it: Opens
) -> None:
    """G6: a person must change something; the events wait for it. Once it is changed, they go through."""
    missing, delayed = f"{topic}_missing", f"{topic}_delay"
    servers.make_topics(rocketmq, [delayed], "DELAY")
    outcomes = [publish(open_it(name), make_event()) for name in (missing, delayed)]
    assert [(outcome.reason, outcome.counted) for outcome in outcomes if isinstance(outcome, Retry)] == [
        (MISCONFIGURED, False)
    ] * 2
    assert missing in outcomes[0].error  # type: ignore[union-attr]
    assert "takes messages of type DELAY, not NORMAL: make it with +message.type=NORMAL" in outcomes[1].error  # type: ignore[union-attr]
    publisher = open_it(missing)
    publish(publisher, make_event())
    servers.make_topics(rocketmq, [missing])
    wait_for(lambda: isinstance(publish(publisher, make_event()), Delivered), 10, "the topic to be used")


def test_a_topic_that_is_dropped_under_way_is_a_misconfiguration(
    rocketmq: servers.RocketMq, topic: str, open_it: Opens
) -> None:
    """G6: it is the same for a publisher that has been sending to it."""
    publisher = open_it(topic)
    assert isinstance(publish(publisher, make_event()), Delivered)
    drop_topic(rocketmq.broker, topic)

    def refused() -> Retry | None:
        outcome = publish(publisher, make_event())
        return outcome if isinstance(outcome, Retry) else None

    outcome = wait_for(refused, 10, "a refusal")
    assert (outcome.reason, outcome.counted) == (MISCONFIGURED, False)


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ({"endpoints": f"127.0.0.1:{free_port()}"}, CONNECT),
        ({"endpoints": "no-such-host.invalid:8081"}, DNS),
        ({"tls": True}, TLS),
    ],
    ids=["refused", "unknown host", "a certificate that nobody vouches for"],
)
def test_a_server_that_cannot_be_reached_is_not_blamed_on_the_event(
    rocketmq: servers.RocketMq, open_it: Opens, server: dict[str, object], reason: str
) -> None:
    """G6: the request never left."""
    outcome = publish(open_it("any", **server), make_event())
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == (reason, False)


def test_a_server_that_takes_connections_and_says_nothing_is_given_up_in_time(open_it: Opens) -> None:
    """G4, G6: an outcome is there by the deadline, and no event is blamed."""
    port = free_port()
    with silent_server(port):
        publisher = open_it("any", endpoints=f"127.0.0.1:{port}")
        start_s = time.monotonic()
        outcome = publish(publisher, make_event(), 1)
        assert time.monotonic() - start_s < 2
        assert isinstance(outcome, Retry)
        assert (outcome.reason, outcome.counted) == (CONNECT, False)
        start_s = time.monotonic()
        publisher.close(time.monotonic() + 0.5)
        assert time.monotonic() - start_s < 1


def test_check_says_what_it_finds(rocketmq: servers.RocketMq, topic: str) -> None:
    """`outboxd check` has one line for it: the topic, or what is wrong with it."""
    server = RocketMqServer(endpoints=rocketmq.endpoints)
    said = check(RocketMq(name="queue", server=server, topic=topic), 5)
    assert said.startswith(f"{rocketmq.endpoints} serves the topic {topic} (NORMAL), ")
    with pytest.raises(PublisherError, match=r"40402.*No topic route info in name server for the topic: nothing"):
        check(RocketMq(name="queue", server=server, topic="nothing"), 5)
    closed = RocketMqServer(endpoints=f"127.0.0.1:{free_port()}")
    with pytest.raises(PublisherError, match="Connection refused"):
        check(RocketMq(name="queue", server=closed, topic=topic), 5)


@pytest.mark.parametrize("endpoints", ["[::1]:8081", "one.example:1;two.example:2"])
def test_endpoints_that_the_client_cannot_use_are_refused_at_the_start(endpoints: str) -> None:
    """The client itself would only log it, and fail on something else later."""
    with pytest.raises(PublisherError, match="cannot use the RocketMQ endpoints"):
        open_publisher(RocketMq(name="queue", server=RocketMqServer(endpoints=endpoints)), "room_outbox", 1.0)


def test_the_client_leaves_no_log_file_open(topic: str, open_it: Opens) -> None:
    """G9: it opens one in the home directory when it is loaded, of up to a gigabyte in the end."""
    publish(open_it(topic), make_event())
    links = [f"/proc/self/fd/{number}" for number in descriptors_of(os.getpid())]
    assert [link for link in links if os.path.exists(link) and "rocketmq" in os.readlink(link)] == []
