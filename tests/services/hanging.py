"""Publishers that tests configure as `type: python`: each hangs somewhere, in one process only, and else accepts.

OUTBOXD_TEST_HANG names an empty directory: what is to happen once is claimed there with a file.
"""

import ctypes
import os
import threading
from pathlib import Path

from outboxd.config.schema import PythonCallable
from outboxd.event import Event
from outboxd.publishers.null import NullPublisher

VARIABLE = "OUTBOXD_TEST_HANG"


def has_hung(directory: Path, what: str) -> bool:
    """Has a process come to that?"""
    return (directory / what).exists()


def _is_first(what: str) -> bool:
    try:
        os.close(os.open(os.path.join(os.environ[VARIABLE], what), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _for_ever() -> None:
    threading.Event().wait()


def _for_ever_in_c() -> None:
    """No signal interrupts it, as it would a sleep."""
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)  # of zeros: a mutex that is free
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


class Hanging(NullPublisher):
    """By an event of type Loop, or of type C: in a call that holds the interpreter's lock, so that no thread of the
    process runs Python any more.
    """

    def __init__(self, settings: PythonCallable, lane: str, publish_timeout_s: float) -> None:
        super().__init__()

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Hang, or accept."""
        if event.event_type == "Loop" and _is_first("loop"):
            _for_ever()
        if event.event_type == "C" and _is_first("c"):
            _for_ever_in_c()
        return super().submit(event, deadline_s)


class HangingAtBoot(Hanging):
    """And before that, the first one made never comes to be."""

    def __init__(self, settings: PythonCallable, lane: str, publish_timeout_s: float) -> None:
        super().__init__(settings, lane, publish_timeout_s)
        if _is_first("boot"):
            _for_ever()


class HangingInClose(Hanging):
    """Accepts, and does not end."""

    def close(self, deadline_s: float) -> None:
        """Hang."""
        _is_first("close")
        _for_ever()
