"""Publishers that tests configure as `type: python`: they write down what was published, where no fault can lose it.

Each process appends to a file of its own in the directory that OUTBOXD_TEST_SINK names: one line per event, written
before the outcome can be collected, with the time.
"""

import ctypes
import heapq
import os
import signal
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from outboxd.config.schema import PythonCallable
from outboxd.errors import Reject
from outboxd.event import DELIVERED, Event, Outcome
from outboxd.publishers.api import NOTHING, Waits
from outboxd.publishers.null import NullPublisher

VARIABLE = "OUTBOXD_TEST_SINK"

CURED = "cured"
"""A file of that name beside the directory: `Stillborn` lives from then on."""


class Publish(NamedTuple):
    """One event left one process. at_ms: UTC epoch milliseconds."""

    event_id: str
    pid: int
    at_ms: int


def publishes(directory: Path) -> list[Publish]:
    """Every publish so far, over all processes."""
    lines = [(int(path.name), line) for path in directory.iterdir() for line in path.read_text("utf-8").splitlines()]
    return [Publish(line.split()[0], pid, int(line.split()[1])) for pid, line in lines]


def published(directory: Path) -> list[str]:
    """The event ids of every publish so far, over all processes."""
    return [publish.event_id for publish in publishes(directory)]


def _file() -> int:
    path = os.path.join(os.environ[VARIABLE], str(os.getpid()))
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _note(fd: int, event: Event) -> None:
    os.write(fd, f"{event.event_id} {time.time_ns() // 1_000_000}\n".encode())


def _beside(name: str) -> Path:
    return Path(os.environ[VARIABLE]).parent / name


class Recording(NullPublisher):
    """Accepts every event at once."""

    def __init__(self, settings: PythonCallable, lane: str, publish_timeout_s: float) -> None:
        super().__init__()
        self._fd = _file()

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Write the id down, then accept."""
        if not super().submit(event, deadline_s):
            return False
        _note(self._fd, event)
        return True


class Lingering(Recording):
    """Has an event at once and says so 1 to 20 ms later, as an answer on its way would: a few are always in flight."""

    capacity = 16

    def __init__(self, settings: PythonCallable, lane: str, publish_timeout_s: float) -> None:
        super().__init__(settings, lane, publish_timeout_s)
        self._answers: list[tuple[float, int, Event]] = []

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Write the id down; the id says how long the answer takes."""
        if len(self._answers) >= self.capacity:
            return False
        _note(self._fd, event)
        delay_s = (1 + zlib.crc32(event.event_id.encode()) % 20) / 1000
        heapq.heappush(self._answers, (time.monotonic() + delay_s, event.id, event))
        return True

    def collect(self) -> list[tuple[Event, Outcome]]:
        """The answers that have come."""
        ended: list[tuple[Event, Outcome]] = []
        while self._answers and self._answers[0][0] <= time.monotonic():
            ended.append((heapq.heappop(self._answers)[2], DELIVERED))
        return ended

    def wait_on(self) -> Waits:
        """The next answer."""
        return Waits((), (), self._answers[0][0]) if self._answers else NOTHING


DEATHS: Mapping[str, Callable[[], object]] = {
    "Killer": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "Quitter": lambda: os._exit(0),
    "Crasher": lambda: ctypes.string_at(0),
}
"""Event type -> how it ends the process that publishes it: as the kernel does when memory runs out, as a library that
thinks it may, as native code with a bug."""


class Killing(Recording):
    """Dies of events of the types above, having written them down."""

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Die, or accept."""
        if event.event_type in DEATHS:
            _note(self._fd, event)
            DEATHS[event.event_type]()
        return super().submit(event, deadline_s)


class Stillborn(Recording):
    """Ends its process while it is made, until the test says that it is cured."""

    def __init__(self, settings: PythonCallable, lane: str, publish_timeout_s: float) -> None:
        if not _beside(CURED).exists():
            os._exit(3)
        super().__init__(settings, lane, publish_timeout_s)


def moody(event: Event) -> object:
    """A function that does what the event's type says, if that is one of its moods; the id is written down first."""
    write_down(event)
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
    write_down(event)


def write_down(event: Event) -> None:
    """A function for a pool of threads."""
    fd = _file()
    _note(fd, event)
    os.close(fd)


def dying(event: Event) -> None:
    """The same, in a process that ends by it, if the event's type says so."""
    write_down(event)
    DEATHS.get(event.event_type, lambda: None)()


def hanging(event: Event) -> None:
    """The same; the first call with an event of type `Hanger` never returns."""
    if event.event_type == "Hanger":
        try:
            _beside(f"hung-{event.event_id}").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            threading.Event().wait()
    write_down(event)


class Parting(Recording):
    """Leaves a process without a parent behind by an event of type `Leaves78`, or `Leaves-9`: how it ends."""

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Leave it, then accept."""
        kind, is_so, how = event.event_type.partition("Leaves")
        if is_so and not kind:
            _leave_a_process(int(how))
        return super().submit(event, deadline_s)


def _leave_a_process(how: int) -> None:
    parent = os.fork()
    if parent:
        os.waitpid(parent, 0)
        return
    if os.fork() == 0:
        time.sleep(0.05)
        if how < 0:
            if how != -signal.SIGKILL:
                signal.signal(-how, signal.SIG_DFL)
            os.kill(os.getpid(), -how)
        os._exit(how)
    os._exit(0)
