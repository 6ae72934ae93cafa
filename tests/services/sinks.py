"""Publishers that tests configure as `type: python`: they write down what was published, where no fault can lose it.

Each process appends to a file of its own in the directory that OUTBOXD_TEST_SINK names: one line per event, written
before the outcome can be collected.
"""

import os
import signal
import time
from pathlib import Path

from outboxd.config.schema import PythonCallable
from outboxd.errors import Reject
from outboxd.event import Event
from outboxd.publishers.null import NullPublisher

VARIABLE = "OUTBOXD_TEST_SINK"


def published(directory: Path) -> list[str]:
    """The event ids of every publish so far, over all processes."""
    return [line for path in directory.iterdir() for line in path.read_text(encoding="utf-8").splitlines()]


def _file() -> int:
    path = os.path.join(os.environ[VARIABLE], str(os.getpid()))
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


class Recording(NullPublisher):
    """Accepts every event at once."""

    def __init__(self, settings: PythonCallable, lane: str, publish_timeout_s: float) -> None:
        super().__init__()
        self._fd = _file()

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Write the id down, then accept."""
        if not super().submit(event, deadline_s):
            return False
        os.write(self._fd, f"{event.event_id}\n".encode())
        return True


class Killing(Recording):
    """Ends its process, without a word, by an event of type `Killer`."""

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Die, or accept."""
        if event.event_type == "Killer":
            os.write(self._fd, f"{event.event_id}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)
        return super().submit(event, deadline_s)


def moody(event: Event) -> object:
    """A function that does what the event's type says, if that is one of its moods; the id is written down first."""
    fd = _file()
    os.write(fd, f"{event.event_id}\n".encode())
    os.close(fd)
    if event.event_type == "hang":
        time.sleep(60)
    if event.event_type == "odd":
        return ValueError("returned, not raised")
    moods = {"fail": ValueError, "exit": SystemExit, "interrupt": KeyboardInterrupt, "reject": Reject}
    if event.event_type in moods:
        raise moods[event.event_type](event.envelope.decode())
    return None


def slowly(event: Event) -> None:
    """A function for a pool of threads: takes 5 ms, then writes the id down."""
    time.sleep(0.005)
    fd = _file()
    os.write(fd, f"{event.event_id}\n".encode())
    os.close(fd)
