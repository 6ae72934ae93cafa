"""The publisher that calls a person's own function or class."""

import threading
import time
from collections.abc import Iterator
from typing import cast

import pytest

from outboxd.config.schema import PythonCallable
from outboxd.errors import PublisherError
from outboxd.event import DELIVERED, Dead, Retry
from outboxd.publishers import check, open_publisher
from outboxd.publishers.python_callable import ERROR_CHARACTERS, CallablePublisher
from tests.services import python_targets
from tests.services.publishing import collect, make_event, publish, step
from tests.services.wait import wait_for


def settings(name: str, threads: int = 4) -> PythonCallable:
    return PythonCallable(name="own", target=f"tests.services.python_targets:{name}", threads=threads)


def open_callable(name: str, threads: int = 4) -> CallablePublisher:
    return cast(CallablePublisher, open_publisher(settings(name, threads), "room_outbox", 1.0))


@pytest.fixture
def stuck() -> Iterator[CallablePublisher]:
    """Its calls hang until `python_targets.gate` is set."""
    python_targets.gate.clear()
    publisher = open_callable("wait_for_gate")
    yield publisher
    python_targets.gate.set()
    publisher.close(time.monotonic() + 5)


def test_the_function_gets_the_event() -> None:
    """The whole of it, as the store gave it."""
    publisher = open_callable("accept")
    event = make_event()
    assert publish(publisher, event) is DELIVERED
    assert python_targets.seen[-1] is event
    publisher.close(time.monotonic() + 1)


@pytest.mark.parametrize(
    ("event_type", "expected"),
    [
        ("reject", Dead("rejected", "Reject: why")),
        ("fail", Retry("exception", "ValueError: why")),
        ("exit", Retry("exception", "SystemExit: why")),
        ("interrupt", Retry("exception", "KeyboardInterrupt: why")),
        ("unspeakable", Retry("exception", "UnspeakableError")),
    ],
)
def test_what_the_function_raises_is_the_outcome(event_type: str, expected: object) -> None:
    """Nothing it raises ends the thread or the process: the next call works."""
    publisher = open_callable("misbehave", threads=1)
    for _ in range(3):
        assert publish(publisher, make_event(event_type=event_type, envelope=b"why")) == expected
    publisher.close(time.monotonic() + 1)


@pytest.mark.parametrize("event_type", ["coroutine", "future", "generator"])
def test_a_result_that_is_work_still_to_be_done_is_no_success(event_type: str) -> None:
    """G1: the event would be lost. It is held until someone mends the function, and costs no attempt."""
    publisher = open_callable("return_oddly")
    outcome = publish(publisher, make_event(event_type=event_type))
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == ("misconfigured", False)
    assert f"returned a {event_type}" in outcome.error.lower()
    publisher.close(time.monotonic() + 1)


@pytest.mark.parametrize("event_type", ["false", "zero", "error", "text"])
def test_whatever_else_is_returned_is_success(event_type: str) -> None:
    """A function fails by raising."""
    publisher = open_callable("return_oddly")
    assert publish(publisher, make_event(event_type=event_type)) is DELIVERED
    publisher.close(time.monotonic() + 1)


def test_an_exceptions_text_is_bounded_and_shows_no_credentials() -> None:
    """G9, G11: exceptions of clients like to quote the URL they failed at."""
    publisher = open_callable("misbehave")
    event = make_event(event_type="fail", envelope=b"http://user:hunter2@host/?key=hunter3 \n" + b"x" * 10_000)
    outcome = publish(publisher, event)
    assert isinstance(outcome, Retry)
    assert "hunter" not in outcome.error
    assert "\n" not in outcome.error
    assert len(outcome.error) == ERROR_CHARACTERS
    publisher.close(time.monotonic() + 1)


def test_a_call_past_its_deadline_costs_a_thread(stuck: CallablePublisher) -> None:
    """G4: the event is given up, counted; the thread is gone for as long as the call lasts."""
    outcome = publish(stuck, make_event(), timeout_s=0.1)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.counted) == ("timeout", True)
    assert stuck.capacity == 3
    assert not stuck.worn_out


def test_with_half_of_its_threads_lost_it_is_worn_out(stuck: CallablePublisher) -> None:
    """The worker drains and is replaced; until then what is left goes on working."""
    for _ in range(4):
        publish(stuck, make_event(), timeout_s=0.05)
    assert stuck.worn_out
    assert stuck.capacity == 1
    assert not stuck.submit(make_event(), time.monotonic() + 1)


def test_a_call_that_returns_late_gives_its_thread_back(stuck: CallablePublisher) -> None:
    """Its outcome is not told a second time."""
    for _ in range(4):
        publish(stuck, make_event(), timeout_s=0.05)
    python_targets.gate.set()
    late = wait_for(lambda: (stuck.collect(), stuck.capacity == 4)[1] or None, 5, "the threads to be back")
    assert late
    assert not stuck.worn_out
    assert publish(stuck, make_event()) is DELIVERED


def test_calls_run_side_by_side(stuck: CallablePublisher) -> None:
    """As many as there are threads, each begun at once."""
    while python_targets.inside.acquire(blocking=False):
        pass
    for _ in range(4):
        assert stuck.submit(make_event(), time.monotonic() + 5)
    for _ in range(4):
        assert python_targets.inside.acquire(timeout=5)
    assert not stuck.submit(make_event(), time.monotonic() + 5)
    python_targets.gate.set()
    assert {outcome for _, outcome in collect(stuck, 4)} == {DELIVERED}


def test_a_late_call_does_not_disturb_what_came_after_the_close() -> None:
    """The descriptor it would ring may belong to someone else by then."""
    python_targets.gate.clear()
    while python_targets.inside.acquire(blocking=False):
        pass
    publisher = open_callable("wait_for_gate", threads=1)
    publisher.submit(make_event(), time.monotonic() + 5)
    assert python_targets.inside.acquire(timeout=5)
    publisher.close(time.monotonic() + 0.1)
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "own-0")
    python_targets.gate.set()
    thread.join(5)  # an exception in it would fail the test
    assert not thread.is_alive()


def test_a_class_is_made_with_its_settings_and_used_as_it_is() -> None:
    """For what a function cannot do: batches, a connection of its own, an event loop."""
    publisher = open_publisher(settings("Whole"), "room_outbox", 1.5)
    assert isinstance(publisher, python_targets.Whole)
    assert publisher.arguments == (settings("Whole"), "room_outbox", 1.5)
    assert publish(publisher, make_event()) is DELIVERED
    assert step(publisher, time.monotonic()) == []


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("no_colon", "must be written as package.module:name"),
        (":name", "must be written as package.module:name"),
        ("no_such_module_here:publish", "cannot be imported: ModuleNotFoundError.*PYTHONPATH"),
        ("tests.services.python_targets:nothing", "cannot be imported: AttributeError"),
        ("tests.services.python_targets:NUMBER", "is a int, not a function or class"),
        ("tests.services.python_targets:later", "make it a plain function"),
        ("tests.services.python_targets:stream", "make it a plain function"),
        ("tests.services.python_targets:Half", "is a class without collect, wait_on, close"),
    ],
)
def test_a_target_that_cannot_work_is_refused_at_the_start(target: str, problem: str) -> None:
    """By the worker and by `check` alike, naming the key."""
    wrong = PythonCallable(name="own", target=target)
    with pytest.raises(PublisherError, match=rf"publishers\.own\.target: .*{problem}"):
        open_publisher(wrong, "room_outbox", 1.0)
    with pytest.raises(PublisherError, match=problem):
        check(wrong, 1.0)


def test_a_class_that_cannot_be_made_says_why() -> None:
    """Only at the start: `check` does not make it."""
    with pytest.raises(PublisherError, match="cannot be set up: OSError: no such device"):
        open_publisher(settings("Broken"), "room_outbox", 1.0)
    assert check(settings("Broken"), 1.0) == "tests.services.python_targets:Broken is a class"


def test_check_imports_the_target() -> None:
    """One line."""
    assert check(settings("accept"), 1.0) == "tests.services.python_targets:accept is a function"
