"""Where the program starts: small, so that Ctrl-C is understood while everything else is still being loaded."""

import os
import signal
import sys
from collections.abc import Sequence

INTERRUPTED = 1
"""The exit status, as main.py has it for an interrupt later on."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    if os.getpid() == 1:  # of a container: the kernel drops what it has no handler for, so let it wait for one
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        _open_closed_streams()
        from outboxd.cli.main import main as run

        return run(arguments)
    except KeyboardInterrupt:
        _interrupted()
        return INTERRUPTED
    finally:
        _drop_unwritten()


def _interrupted() -> None:
    try:
        os.write(2, b"outboxd: interrupted\n")
    except OSError:  # nobody to tell
        pass


def _open_closed_streams() -> None:
    """A standard stream that was closed (`>&-`) becomes one that refuses: else the next connection would get its
    number. The modes are the wrong ones on purpose, so that reading and writing fail as they do when it is closed.
    """
    if sys.stdin is None:
        sys.stdin = open(_plugged(0, os.O_WRONLY), closefd=False)  # noqa: SIM115  open for good
    if sys.stdout is None:
        sys.stdout = open(_plugged(1, os.O_RDONLY), "w", closefd=False)  # noqa: SIM115  open for good
    if sys.stderr is None:
        sys.stderr = open(_plugged(2, os.O_RDONLY), "w", closefd=False, errors="backslashreplace")  # noqa: SIM115  open for good


def _plugged(descriptor: int, mode: int) -> int:
    opened = os.open(os.devnull, mode)
    os.dup2(opened, descriptor)
    if opened != descriptor:
        os.close(opened)
    return descriptor


def _drop_unwritten() -> None:
    """What a full or closed stream did not take is dropped: it was told, and the interpreter would complain again."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            _plugged(descriptor, os.O_WRONLY)
