"""Before the daemon forks its workers: what no waiting mends is found, and told in one line.

It happens in a child of its own that soon ends, so that the supervisor never loads a client library and never holds a
database handle. A database that is away is no reason to stop: the workers wait for it.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from outboxd.cli import bridge, job_handlers
from outboxd.config.schema import Config, Lane, PublisherSettings, PythonCallable
from outboxd.errors import PublisherError, StoreConflict, StoreRefused, StoreUnavailable
from outboxd.redact import clip, redact
from outboxd.supervisor.signals import STOPS, SUPERVISOR_SIGNALS
from outboxd.supervisor.spawn import end_with_parent
from outboxd.vitals import EXIT_OK

MARGIN_S = 5.0
LONGEST_TEXT = 4000
"""Characters; they fit into a pipe, so the child never waits for us."""

SIGNALS = SUPERVISOR_SIGNALS
"""To be blocked by the caller, so that none is lost between here and the supervisor's own handlers."""


@dataclass(frozen=True, slots=True)
class Preflight:
    """refusal: why the daemon cannot start, "" if it can. stopped: it was asked to end meanwhile."""

    refusal: str = ""
    stopped: bool = False


def preflight(config: Config, lanes: Sequence[Lane]) -> Preflight:
    """Look at database, tables, publishers, handlers of jobs. On SQLite, create what is missing. Call it with SIGNALS
    blocked.
    """
    return run_in_child(lambda: "; ".join(refusals(config, lanes)), limit_s(config))


def limit_s(config: Config) -> float:
    """How long the look may take."""
    handlers_s = job_handlers.LIMIT_S if config.jobs.enabled else 0.0  # which has a limit of its own, that refuses
    return config.database.connect_timeout_s + 4 * config.database.statement_timeout_s + handlers_s + MARGIN_S


def run_in_child(work: Callable[[], str], limit_s: float) -> Preflight:
    """Do the work in a forked child; its text is the refusal. Over the limit it is given up, and refuses nothing."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # else what is still buffered would be written twice
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if whoever started us ignores it, nothing can be waited for
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_child(work, write_end, parent_pid)
    os.close(write_end)
    try:
        stopped = _await(pid, limit_s)
        return Preflight(stopped=True) if stopped else Preflight(_read(read_end))
    finally:
        os.close(read_end)


def _be_child(work: Callable[[], str], write_end: int, parent_pid: int) -> NoReturn:
    try:
        end_with_parent(signal.SIGKILL)
        if os.getppid() != parent_pid:
            os._exit(EXIT_OK)
        os.write(write_end, clip(redact(work()), LONGEST_TEXT).encode())
    except BaseException:  # noqa: BLE001  whatever it was, the workers meet it too, and have a log to tell it
        pass
    finally:
        os._exit(EXIT_OK)


def _await(pid: int, limit_s: float) -> bool:
    """Until the child has ended; True if we were asked to end first."""
    until_s = time.monotonic() + limit_s
    while True:
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
        # The others stay pending until the supervisor has its handlers: a reload asked for now happens then.
        received = signal.sigtimedwait((*STOPS, signal.SIGCHLD), max(0.0, until_s - time.monotonic()))
        if received is None or received.si_signo in STOPS:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return received is not None


def _read(read_end: int) -> str:
    try:
        return os.read(read_end, 8 * LONGEST_TEXT).decode("utf-8", "replace")
    except BlockingIOError:  # it ended without a word, and something that it started holds the other end
        return ""


def refusals(config: Config, lanes: Sequence[Lane]) -> Iterator[str]:
    """What keeps the daemon from working until a person has acted."""
    yield from _database(config, lanes)
    for lane in lanes:
        for name in lane.publishers:
            try:
                set_up(config.publishers[name], lane)
            except PublisherError as error:
                yield str(error)
    yield from bridge.refusals(config)
    yield from job_handlers.refusals(config.jobs)


def _database(config: Config, lanes: Sequence[Lane]) -> Iterator[str]:
    from outboxd.store import connect
    from outboxd.store.migrate import create_missing, verify

    try:
        connection = connect(config.database)
    except StoreUnavailable:
        return
    except StoreRefused as error:
        yield str(error)
        return
    try:
        create_missing(connection, lanes)
        for lane in lanes:
            verify(connection, lane)
    except (StoreUnavailable, StoreConflict):  # it went away, or is busy just now
        return
    except StoreRefused as error:
        yield f"{config.database.shown}: {error}"
    finally:
        connection.close()


def set_up(settings: PublisherSettings, lane: Lane) -> None:
    """Make the publisher and close it again; of a class of the user's own only see that it is there. Nothing is sent.

    Raises PublisherError.
    """
    from outboxd.publishers import open_publisher
    from outboxd.publishers.python_callable import find_target

    if isinstance(settings, PythonCallable):
        find_target(settings)
    else:
        open_publisher(settings, lane.name, lane.publish_timeout_s).close(time.monotonic())
