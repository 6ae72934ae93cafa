"""Batches through a client that blocks: what goes along, and what becomes of it when the client does not come back."""

import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from outboxd.event import DELIVERED, EXCEPTION, Event, Outcome, Retry
from outboxd.publishers.courier import BEHIND, NOT_SENT, WEDGED_AFTER_S, Courier
from outboxd.publishers.mailbox import GIVEN_UP
from tests.services.publishing import collect, make_event, step
from tests.services.wait import wait_for


class Blocking:
    """A client that the test lets go on."""

    def __init__(self) -> None:
        self.batches: list[list[Event]] = []
        self.gate = threading.Event()
        self.raises: Exception | None = None
        self.is_closed = False

    def send(self, events: Sequence[Event], deadline_s: float) -> Sequence[Outcome]:
        """Wait for the gate, then accept."""
        self.batches.append(list(events))
        self.gate.wait()
        if self.raises:
            raise self.raises
        return [DELIVERED] * len(events)

    def close(self) -> None:
        """Remember it."""
        self.is_closed = True


@pytest.fixture
def client() -> Blocking:
    return Blocking()


@pytest.fixture
def courier(client: Blocking) -> Iterator[Courier]:
    made = Courier("test", 10, client.send, client.close)
    yield made
    client.gate.set()
    made.close(time.monotonic() + 5)
    assert client.is_closed


def test_what_comes_while_a_batch_is_sent_goes_along_with_the_next(client: Blocking, courier: Courier) -> None:
    """Batches grow with the load, and a lone event waits for nobody."""
    events = [make_event() for _ in range(5)]
    until_s = time.monotonic() + 30
    assert courier.submit(events[0], until_s)
    courier.collect()
    wait_for(lambda: client.batches == [events[:1]], 10, "the first batch")
    for event in events[1:]:
        assert courier.submit(event, until_s)
    assert courier.collect() == []
    client.gate.set()
    assert collect(courier, 5) == [(event, DELIVERED) for event in events]
    assert client.batches == [events[:1], events[1:]]


def test_a_client_that_does_not_return_costs_its_events_their_time_and_then_the_process(
    client: Blocking, courier: Courier
) -> None:
    """G4: what is in its hands may have been sent and is blamed; what waits behind it was not, and is not."""
    sent, waiting = make_event(), make_event()
    until_s = time.monotonic() + 0.3
    courier.submit(sent, until_s)
    courier.collect()
    courier.submit(waiting, until_s)
    outcomes = dict(collect(courier, 2, timeout_s=5))
    assert outcomes[waiting] == NOT_SENT
    assert outcomes[sent] is GIVEN_UP
    assert not courier.worn_out
    wait_for(lambda: courier.worn_out, WEDGED_AFTER_S + 5, "the client to be given up")
    client.gate.set()
    wait_for(lambda: not courier.worn_out, 5, "the client to be back")
    assert step(courier, time.monotonic() + 0.1) == []


def test_a_client_that_raises_ends_no_thread(client: Blocking, courier: Courier) -> None:
    client.gate.set()
    client.raises = RuntimeError("something nobody thought of")
    courier.submit(make_event(), time.monotonic() + 10)
    ((_, outcome),) = collect(courier, 1)
    assert outcome == Retry(EXCEPTION, "RuntimeError: something nobody thought of")
    client.raises = None
    courier.submit(make_event(), time.monotonic() + 10)
    assert collect(courier, 1)[0][1] is DELIVERED


@pytest.fixture
def chained(client: Blocking) -> Iterator[Courier]:
    """Of an ordered lane."""
    made = Courier("test", 10, client.send, client.close, is_ordered=True)
    yield made
    client.gate.set()
    made.close(time.monotonic() + 5)


def test_behind_a_failure_nothing_of_its_room_is_handed_over(client: Blocking, chained: Courier) -> None:
    """Order: also while the failure is known to the thread alone. Other rooms go on, and so does this one later."""
    first, behind, other = (make_event(room_id=room) for room in ("a", "a", "b"))
    client.raises = RuntimeError("no")
    chained.submit(first, time.monotonic() + 30)
    chained.collect()
    chained.submit(behind, time.monotonic() + 30)
    chained.submit(other, time.monotonic() + 30)
    client.gate.set()
    wait_for(lambda: chained._busy_until_s is None, 10, "the first batch to end")
    chained.wait_on()
    client.raises = None
    outcomes = dict(collect(chained, 3))
    assert outcomes[first] == Retry(EXCEPTION, "RuntimeError: no")
    assert (outcomes[behind], outcomes[other]) == (BEHIND, DELIVERED)
    assert client.batches == [[first], [other]]
    chained.submit(first, time.monotonic() + 30)
    assert collect(chained, 1) == [(first, DELIVERED)]
