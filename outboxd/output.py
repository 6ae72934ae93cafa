"""Standard error as the log uses it: whole lines, and no wait for a reader that is not there."""

import contextlib
import os
import select
import socket
import stat

_WAIT_S = 0.05
"""How long one line waits for a reader that is behind."""


class Output:
    """Writes whole lines to a descriptor without ever waiting long. `lost`: lines that it did not take."""

    def __init__(self, fd: int) -> None:
        self.lost = 0
        self._fd = fd
        self._socket: socket.socket | None = None
        mode = os.fstat(fd).st_mode
        if stat.S_ISSOCK(mode):
            self._socket = socket.socket(fileno=os.dup(fd))
        elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            # A description of our own: O_NONBLOCK on the inherited one would change it for everyone who shares it. Not
            # allowed where another user made the pipe; a write may then have to wait.
            with contextlib.suppress(OSError):
                self._fd = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)

    def write(self, line: bytes, is_note: bool = False) -> None:
        """Write the line, or count it as lost. A note of the loss resets the count, and is not counted itself."""
        try:
            self._write(line)
        except OSError:  # nobody reads, no space left: there is nowhere to say so
            if not is_note:
                self.lost += 1
        else:
            if is_note:
                self.lost = 0

    def _write(self, line: bytes) -> None:
        may_wait = not self.lost  # once lines are lost the reader has had its chance
        while line:
            if not _is_writable(self._fd, _WAIT_S if may_wait else 0.0):
                raise BlockingIOError
            if self._socket is None:
                line = line[os.write(self._fd, line) :]
            else:
                line = line[self._socket.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL) :]


def _is_writable(fd: int, wait_s: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(wait_s * 1000))


def plug_standard_descriptors() -> None:
    """A closed one of 0, 1 and 2 would go to the next file or connection opened, and the log into it."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
