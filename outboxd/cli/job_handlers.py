"""The handlers of scheduled jobs, looked at before the role that runs them loads them for good.

Their modules are somebody else's code: importing one may hang, end the process, or crash it. So each look happens in a
forked child, with a deadline, and whatever becomes of it is told with the module's name.
"""

import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from typing import NoReturn

from outboxd.config.schema import Jobs
from outboxd.errors import HandlerError
from outboxd.redact import clip, redact
from outboxd.supervisor.spawn import end_with_parent
from outboxd.vitals import EXIT_OK

LIMIT_S = 10.0
"""For all modules together."""
DEAD_LOOK_S = 0.1
LONGEST_BYTES = 65_536
_IMPORTS, _REGISTERED, _WRONG = b"i", b"r", b"w"
"""What the child writes begins with one of these, and ends with a NUL."""


def look(jobs: Jobs, limit_s: float = LIMIT_S) -> str:
    """Import the modules in a child; which handlers there are. Raises HandlerError with everything that is wrong."""
    kind, text = _seen(_looked(jobs, limit_s))
    if kind == _REGISTERED:
        return f"registered: {text}"
    raise HandlerError(text)


def refusals(jobs: Jobs) -> Iterator[str]:
    """What a person must put right before jobs can run on this node."""
    if jobs.enabled:
        try:
            look(jobs)
        except HandlerError as error:
            yield str(error)


def _looked(jobs: Jobs, limit_s: float) -> bytes:
    """What the child has written, with a last word of ours if it had none."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # else what is still buffered would be written twice
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if whoever started us ignores it, nothing can be waited for
    parent_pid = os.getpid()
    with warnings.catch_warnings():
        # Python warns of threads. A reload's look has a timer, which holds no lock; there is no other one here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _be_child(jobs, write_end, parent_pid)
    os.close(write_end)
    status: int | None = None
    try:
        written, status = _await(pid, read_end, time.monotonic() + limit_s)
    finally:
        os.close(read_end)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if _seen(written)[0] != _IMPORTS:
        return written
    module = _seen(written)[1]
    why = f"was not imported within {limit_s:g} s" if status is None else f"{_ended(status)} while it was imported"
    return written + _WRONG + f"jobs.handlers: {module} {why}: a module of handlers must only define them\0".encode()


def _await(pid: int, read_end: int, until_s: float) -> tuple[bytes, int | None]:
    """(what the child has written until it ended or the time was over, how it ended; None: it goes on). Something that
    the module has started may hold the pipe for longer than the child lives."""
    written, status = b"", None
    poll = select.poll()
    poll.register(read_end, select.POLLIN)
    while time.monotonic() < until_s and len(written) < LONGEST_BYTES:
        if status is None:
            found, how = os.waitpid(pid, os.WNOHANG)
            status = how if found == pid else None
        if poll.poll(0 if status is not None else 1000 * DEAD_LOOK_S):
            some = os.read(read_end, LONGEST_BYTES)
            written += some
            if some:
                continue
            poll.unregister(read_end)  # it was closed: the child ends, or will not say more
        if status is not None or _seen(written)[0] != _IMPORTS:
            break
    return written, status


def _seen(written: bytes) -> tuple[bytes, str]:
    """The last word that is whole."""
    words = written.split(b"\0")[:-1]
    last = words[-1] if words else _IMPORTS + b"outboxd"
    return last[:1], last[1:].decode("utf-8", "replace")


def _ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"ended its process with exit status {code}" if code >= 0 else f"ended its process by signal {-code}"


def _be_child(jobs: Jobs, write_end: int, parent_pid: int) -> NoReturn:
    def tell(kind: bytes, text: str) -> None:
        os.write(write_end, kind + clip(redact(text), LONGEST_BYTES // 16).encode() + b"\0")

    try:
        end_with_parent(signal.SIGKILL)
        if os.getppid() != parent_pid:
            os._exit(EXIT_OK)
        from outboxd.jobs.registry import load_handlers

        try:
            names = load_handlers(jobs.handlers, lambda module: tell(_IMPORTS, module))
        except HandlerError as error:
            tell(_WRONG, str(error))
        else:
            tell(_REGISTERED, ", ".join(names))
        os._exit(EXIT_OK)
    finally:
        os._exit(1)
