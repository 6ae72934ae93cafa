"""Handlers by their names: what a job calls whose `url` is no URL. Registered by whoever imports this, once each."""

import importlib
import inspect
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from outboxd.config.schema import Jobs, Lane
from outboxd.errors import HandlerError, StoreUnavailable
from outboxd.redact import clip, redact
from outboxd.schedule.records import CRON
from outboxd.store.connection import Connection

ERROR_CHARACTERS = 1000
BUILT_IN = "outboxd.jobs.handlers"
"""The package whose modules are loaded first."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_RETURN_EARLY = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def _nowhere() -> Connection:
    raise StoreUnavailable("this run was given no database")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One run, as its handler sees it.

    fire_at_ms: the tick's nominal time, or when the run was asked for, UTC epoch milliseconds. triggered_by: `cron`, or
    who asked. stop: set when the daemon is about to end; a handler that goes on for `jobs.drain_timeout` after that is
    cut off.

    The rest is what the built-in handlers need: the configured lanes by their names, the section `jobs`, and a database
    session of one's own, to be closed by whoever opened it.
    """

    job_id: int
    job_name: str
    fire_at_ms: int
    triggered_by: str = CRON
    node_id: str = ""
    stop: threading.Event = field(default_factory=threading.Event)
    lanes: Mapping[str, Lane] = field(default_factory=dict)
    settings: Jobs = field(default_factory=Jobs)
    open_connection: Callable[[], Connection] = _nowhere

    def should_stop(self) -> bool:
        """Is it time to come to an end? Ask between two pieces of work."""
        return self.stop.is_set()

    def wait(self, duration_s: float) -> None:
        """Sleep so many seconds, or less if it becomes time to stop."""
        self.stop.wait(duration_s)


Handler = Callable[[Context, str], str | None]
"""Gets the run and the job's params as they stand in the table; returns what the job log keeps."""

_registered: dict[str, Handler] = {}


def handler(name: object) -> Callable[[Handler], Handler]:
    """Register the function below under the name, which jobs have as their `url`.

    Names begin with a letter or _, go on with letters, digits and _ . -, and have at most 64 characters. Raises
    HandlerError for another one, for one that is registered already, and for what returns before its work is done.
    """
    if not isinstance(name, str):  # of an application, which nobody has checked
        raise HandlerError('a handler needs a name: write @outboxd.jobs.handler("Name")')
    if _NAME.fullmatch(name) is None:
        rule = "write a letter or _, then letters, digits and _ . -, at most 64 characters"
        raise HandlerError(f"{clip(name, 80)!r} cannot name a handler: {rule}")

    def register(function: Handler) -> Handler:
        if not callable(function) or any(is_kind(function) for is_kind in _RETURN_EARLY):
            raise HandlerError(f"the handler {name} must be a plain function, not async and no generator")
        if name in _registered:
            raise HandlerError(f"the handler {name} is registered twice, {_home(_registered[name])} has it already")
        _registered[name] = function
        return function

    return register


def registered() -> Mapping[str, Handler]:
    """What is registered so far."""
    return _registered


def load_handlers(modules: Sequence[str], about_to: Callable[[str], None] | None = None) -> tuple[str, ...]:
    """Import the built-in handlers, then these modules; the names there are then, sorted. Only where jobs run: modules
    may do anything while they are imported. about_to: told of each module before it is imported.

    Raises HandlerError with everything that is wrong, a part for each module.
    """
    importlib.import_module(BUILT_IN)
    problems = []
    for module in modules:
        if about_to is not None:
            about_to(module)
        try:
            importlib.import_module(module)
        except HandlerError as error:
            problems.append(f"jobs.handlers: {module}: {error}")
        except (Exception, SystemExit) as error:  # noqa: BLE001  # someone else's code may do anything
            hint = "; is its folder on PYTHONPATH?" if isinstance(error, ModuleNotFoundError) else ""
            problems.append(f"jobs.handlers: {module} cannot be imported: {described(error)}{hint}")
    if problems:
        raise HandlerError("; ".join(problems))
    return tuple(sorted(_registered))


def described(error: BaseException) -> str:
    """`Type: message`, redacted, clipped, on one line."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # its own __str__ is broken
        text = ""
    name = type(error).__name__
    return clip(redact(f"{name}: {text}" if text else name), ERROR_CHARACTERS)


def _home(function: Handler) -> str:
    return str(getattr(function, "__module__", None) or type(function).__name__)
