"""Your own publisher: a function called with one event, in a small pool of threads, or a class that is a Publisher.

Invariant: at most as many calls are handed out as there are free threads, so a call begins at once. A call past its
deadline is given up: its outcome is told, its thread is lost until the call returns by itself.
"""

import importlib
import inspect
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from outboxd.config.schema import PythonCallable
from outboxd.errors import PublisherError, Reject
from outboxd.event import DELIVERED, EXCEPTION, MISCONFIGURED, REJECTED, TIMEOUT, Dead, Event, Outcome, Retry
from outboxd.publishers.api import Publisher, Waits
from outboxd.redact import clip, redact

ERROR_CHARACTERS = 400

_RETURN_EARLY = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_METHODS = ("submit", "collect", "wait_on", "close")


def find_target(settings: PythonCallable) -> Callable[..., object]:
    """Import `package.module:name`. Raises PublisherError with what is wrong."""
    where = f"publishers.{settings.name}.target: {settings.target!r}"
    module_name, colon, path = settings.target.partition(":")
    if not (module_name and colon and path):
        raise PublisherError(f"{where} must be written as package.module:name")
    try:
        target: object = importlib.import_module(module_name)
        for name in path.split("."):
            target = getattr(target, name)
    except (Exception, SystemExit) as error:  # a module may do anything while it is imported
        hint = "; is its folder on PYTHONPATH?" if isinstance(error, ModuleNotFoundError) else ""
        raise PublisherError(f"{where} cannot be imported: {_describe(error)}{hint}") from error
    if not callable(target):
        raise PublisherError(f"{where} is a {type(target).__name__}, not a function or class")
    if any(is_kind(target) for is_kind in _RETURN_EARLY):
        raise PublisherError(f"{where} returns before its work is done (async or generator); make it a plain function")
    if isinstance(target, type):
        missing = [name for name in _METHODS if not callable(getattr(target, name, None))]
        if missing:
            raise PublisherError(f"{where} is a class without {', '.join(missing)}; see outboxd.publishers.api")
    return target


def open_python(settings: PythonCallable, lane: str, publish_timeout_s: float) -> Publisher:
    """A class is instantiated with (settings, lane, publish_timeout_s) and used as it is; a function gets threads."""
    target = find_target(settings)
    if not isinstance(target, type):
        return CallablePublisher(target, settings.threads, settings.name)
    try:
        return target(settings, lane, publish_timeout_s)  # type: ignore[no-any-return]  # find_target has looked
    except Exception as error:  # someone else's code: whatever it raises, it cannot be set up
        where = f"publishers.{settings.name}.target: {settings.target!r}"
        raise PublisherError(f"{where} cannot be set up: {_describe(error)}") from error


class _Call:
    """One event in a thread's hands."""

    __slots__ = ("deadline_s", "event", "given_up")

    def __init__(self, event: Event, deadline_s: float) -> None:
        self.event = event
        self.deadline_s = deadline_s
        self.given_up = False


class CallablePublisher:
    """A Publisher; see api.py."""

    def __init__(self, function: Callable[[Event], object], threads: int, name: str) -> None:
        self._function = function
        self._thread_count = threads
        self._calls: dict[_Call, None] = {}  # in flight, oldest first
        self._lost: set[_Call] = set()
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._returned: deque[tuple[_Call, Outcome]] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._bell_lock = threading.Lock()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def capacity(self) -> int:
        """Threads that are not lost; 1 when all are, although `submit` then says False."""
        return max(1, self._thread_count - len(self._lost))

    @property
    def worn_out(self) -> bool:
        """Is half of the threads lost? The worker should then drain and be replaced."""
        return 2 * len(self._lost) >= self._thread_count

    def submit(self, event: Event, deadline_s: float) -> bool:
        """Hand an event to a free thread."""
        if len(self._calls) + len(self._lost) >= self._thread_count or self._is_closed:
            return False
        call = _Call(event, deadline_s)
        self._calls[call] = None
        self._queue.put(call)
        return True

    def collect(self) -> list[tuple[Event, Outcome]]:
        """What has returned, and what is given up."""
        outcomes: list[tuple[Event, Outcome]] = []
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass
        while self._returned:
            call, outcome = self._returned.popleft()
            self._lost.discard(call)
            if call in self._calls:
                del self._calls[call]
                outcomes.append((call.event, outcome))
        now_s = time.monotonic()
        for call in [call for call in self._calls if call.deadline_s <= now_s]:
            call.given_up = True
            del self._calls[call]
            self._lost.add(call)
            outcomes.append((call.event, Retry(TIMEOUT, "the call did not return in time and was given up")))
        return outcomes

    def wait_on(self) -> Waits:
        """The bell that threads ring, and the first deadline."""
        return Waits((self._bell,), (), min((call.deadline_s for call in self._calls), default=None))

    def close(self, deadline_s: float) -> None:
        """Let the threads end. One whose call goes on is not waited for beyond deadline_s: it dies with the process."""
        for call in self._calls:
            call.given_up = True
        for _ in self._threads:
            self._queue.put(None)
        if not self._lost:
            for thread in self._threads:
                thread.join(max(0.0, deadline_s - time.monotonic()))
        with self._bell_lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._bell)

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            outcome = self._run(call)
            self._returned.append((call, outcome))
            with self._bell_lock:  # a late call must not write into whatever has got the number since
                if not self._is_closed:
                    os.eventfd_write(self._bell, 1)

    def _run(self, call: _Call) -> Outcome:
        if call.given_up:
            return Retry(TIMEOUT, "given up before it began", counted=False)
        try:
            result = self._function(call.event)
        except Reject as error:
            return Dead(REJECTED, _describe(error))
        except BaseException as error:  # noqa: BLE001  # someone else's code; SystemExit too would end the thread without a word
            return Retry(EXCEPTION, _describe(error))
        return DELIVERED if result is None else _judge_result(result)


def _judge_result(result: object) -> Outcome:
    """Any value is success, save one that stands for work still to be done: what only returns such a value cannot be
    told at the start (a wrapped or partial function), and the event would be lost with it."""
    is_unfinished = inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)
    if not (is_unfinished or isinstance(result, Future)):
        return DELIVERED
    if inspect.iscoroutine(result):
        result.close()  # else Python warns that it was never awaited
    error = f"the target returned a {type(result).__name__}, its work not done; make it a plain function"
    return Retry(MISCONFIGURED, error, counted=False)


def _describe(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # its own __str__ is broken
        text = ""
    name = type(error).__name__
    return clip(redact(f"{name}: {text}" if text else name), ERROR_CHARACTERS)
