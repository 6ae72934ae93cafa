"""Functions and classes that tests name as the target of a Python publisher."""

import functools
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future

from outboxd.config.schema import PythonCallable
from outboxd.errors import Reject
from outboxd.event import Event
from outboxd.jobs.registry import Context, handler, registered
from outboxd.publishers.null import NullPublisher

seen: list[Event] = []
gate = threading.Event()
"""Calls of `wait_for_gate` end when it is set."""
inside = threading.Semaphore(0)
"""Released once for each call of `wait_for_gate` that has begun."""


def accept(event: Event) -> None:
    """Remembers the event."""
    seen.append(event)


def wait_for_gate(event: Event) -> None:
    """Hangs, until the test ends it."""
    inside.release()
    gate.wait(30)


def misbehave(event: Event) -> None:
    """Raises what the event's type says."""
    kinds: dict[str, type[BaseException]] = {
        "reject": Reject,
        "fail": ValueError,
        "exit": SystemExit,
        "interrupt": KeyboardInterrupt,
        "unspeakable": UnspeakableError,
    }
    raise kinds[event.event_type](event.envelope.decode())


class UnspeakableError(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Whole(NullPublisher):
    """A publisher as a class."""

    def __init__(self, settings: PythonCallable, lane: str, publish_timeout_s: float) -> None:
        super().__init__()
        self.arguments = (settings, lane, publish_timeout_s)


class Half:
    """A class that is none."""

    def submit(self, event: Event, deadline_s: float) -> bool:
        """The one thing it can do."""
        return True


class Broken(NullPublisher):
    """A publisher that cannot be made."""

    def __init__(self, *_: object) -> None:
        raise OSError("no such device")


async def later(event: Event) -> None:
    """Would never run."""


async def stream(event: Event) -> AsyncIterator[int]:
    """Neither would this."""
    yield 1


postponed = functools.partial(later)
"""Nothing shows that it would never run."""

ODD: dict[str, object] = {
    "coroutine": None,  # made for each call
    "future": Future(),
    "generator": (number for number in (1, 2)),
    "false": False,
    "zero": 0,
    "error": ValueError("returned, not raised"),
    "text": "failed",
}


def return_oddly(event: Event) -> object:
    """Returns what the event's type says."""
    return postponed(event) if event.event_type == "coroutine" else ODD[event.event_type]


NUMBER = 7


def job_waits_for_gate() -> str:
    """The name of a job's handler that hangs until the test ends it."""
    name = "WaitsForGate"
    if name not in registered():

        @handler(name)
        def waits_for_gate(_context: Context, _params: str) -> str:
            inside.release()
            gate.wait(30)
            return "the gate is open"

    return name
