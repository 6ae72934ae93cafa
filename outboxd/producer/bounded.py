"""Somebody else's function, called for so long and no longer."""

import contextvars
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

Argument = TypeVar("Argument")

MOST_LOST = 16
"""Calls that were given up and have not returned yet: beyond so many none is begun, so that a receiver that hangs does
not fill the process with threads."""

_lock = threading.Lock()
_lost: set[threading.Thread] = set()


class Unpublished(Exception):
    """A publish that did not succeed, or not in time. Its text says why."""


def call(function: Callable[[Argument], object], argument: Argument, limit_s: float) -> BaseException | None:
    """What the call raised, None if it returned in time. One that did not is given up: it goes on in its thread, and
    what becomes of it is nobody's business any more. The caller's context variables are seen in it.
    """
    with _lock:
        _lost.intersection_update({thread for thread in _lost if thread.is_alive()})
        if len(_lost) >= MOST_LOST:
            return Unpublished(f"{len(_lost)} earlier publishes have not returned yet")
    answer: SimpleQueue[BaseException | None] = SimpleQueue()
    context = contextvars.copy_context()

    def work() -> None:
        answer.put(context.run(_tried, function, argument))

    thread = threading.Thread(target=work, name="outboxd-publish", daemon=True)
    thread.start()
    try:
        return answer.get(timeout=limit_s)
    except Empty:
        with _lock:
            _lost.add(thread)
        return Unpublished(f"the publisher did not return within {limit_s:.3g} s and was given up")


def _tried(function: Callable[[Argument], object], argument: Argument) -> BaseException | None:
    try:
        result = function(argument)
    except BaseException as error:  # noqa: BLE001  whatever it raises, the event was not published
        return error
    if hasattr(result, "__await__"):
        if hasattr(result, "close"):
            result.close()  # else Python warns that it was never awaited
        return Unpublished(
            f"the publisher returned a {type(result).__name__}, its work not done: give a plain function"
        )
    return None
