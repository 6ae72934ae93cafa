"""Signals of the supervisor and of its children. A handler appends, nothing else; a pipe wakes the loop that then asks.

Invariant: the pipe is a doorbell only. What arrived is read from the handlers' own record, never from its bytes, which
may be another process's (a child inherits the pipe until it makes its own).
"""

import os
import signal
from collections import deque
from collections.abc import Iterable

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""What asks the supervisor to end."""

SUPERVISOR_SIGNALS = (*STOPS, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
"""What the supervisor handles; blocked around every fork."""


class Doorbell:
    """A pipe that becomes readable when this process has received a signal with a handler of its own."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._previous = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """The end to wait for."""
        return self._read

    def clear(self) -> None:
        """Make it silent until the next signal. Call it before asking what has arrived."""
        try:
            while os.read(self._read, 4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Give back both ends, and the wake-up descriptor that was there before."""
        signal.set_wakeup_fd(self._previous, warn_on_full_buffer=False)
        self.forget()

    def forget(self) -> None:
        """Close both ends only: for a forked child, whose parent goes on using them."""
        os.close(self._read)
        os.close(self._write)


class Signals:
    """What the supervisor has been sent, in order. Made and closed in the main thread."""

    def __init__(self) -> None:
        self._received: deque[int] = deque()
        self.doorbell = Doorbell()
        self._previous = {signum: signal.signal(signum, self._append) for signum in SUPERVISOR_SIGNALS}
        self._mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, SUPERVISOR_SIGNALS)  # they may be blocked until now

    def _append(self, signum: int, _frame: object) -> None:
        self._received.append(signum)

    def take(self) -> Iterable[int]:
        """Those that came since the last call; silences the doorbell first, so that none is overlooked."""
        self.doorbell.clear()
        while self._received:
            yield self._received.popleft()

    def was_ignored(self, signum: signal.Signals) -> bool:
        """Had whoever started this process asked it to ignore the signal, as `nohup` does?"""
        return self._previous[signum] is signal.SIG_IGN

    def close(self) -> None:
        """Put back what was there before: where they were blocked, what comes from now on changes no exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SUPERVISOR_SIGNALS)
        for signum, handler in self._previous.items():
            signal.signal(signum, handler if handler is not None else signal.SIG_DFL)
        self.doorbell.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


class Stop:
    """In a child: has it been asked to end? Its descriptor goes into the child's own selector.

    SIGTERM asks for a drain, however often it comes: a service manager may send it to the whole group while the
    supervisor passes it on, and the parent-death signal may follow. SIGQUIT asks for the end at once, within 0.5 s; the
    supervisor sends it on its own second signal. SIGINT, SIGHUP and SIGUSR1 are ignored: a terminal or a service
    manager sends them to the whole group, and they are the supervisor's to understand.
    """

    def __init__(self) -> None:
        self._requested = 0
        self._doorbell = Doorbell()
        for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(signum, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._drain)
        signal.signal(signal.SIGQUIT, self._at_once)

    def _drain(self, _signum: int, _frame: object) -> None:
        self._requested = max(self._requested, 1)

    def _at_once(self, _signum: int, _frame: object) -> None:
        self._requested = 2

    @property
    def requested(self) -> int:
        """0: go on. 1: drain, then end. 2: end at once."""
        return self._requested

    def fileno(self) -> int:
        """Readable when a signal has come; then call `clear` and look at `requested`."""
        return self._doorbell.fileno()

    def clear(self) -> None:
        """Make the descriptor silent until the next signal."""
        self._doorbell.clear()


def reset_in_child() -> None:
    """Forget the parent's handlers and its doorbell: both would act on the parent's behalf in the wrong process.

    And that SIGABRT was ignored, should it have been: faulthandler ends a hung child by what was there before.
    """
    signal.set_wakeup_fd(-1)
    for signum in signal.valid_signals():
        if callable(signal.getsignal(signum)) or signum == signal.SIGABRT:
            signal.signal(signum, signal.SIG_DFL)
