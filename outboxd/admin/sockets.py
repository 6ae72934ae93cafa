"""The admin role's listeners. The supervisor binds them before the first fork, so that a port that is taken is an error
at the start, and a reload or a crash of the role refuses nobody: connections wait for the next one.
"""

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outboxd.config.schema import Admin
from outboxd.errors import OutboxdError

WITHIN_S = 10.0
"""How long an address that is taken is tried: the workers of a daemon that was killed let go of it by themselves."""
PAUSE_S = 0.1
BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Listeners:
    """What is bound. tcp: None where there is no TCP listener. lock: a descriptor that holds the socket's name."""

    unix: socket.socket
    tcp: socket.socket | None
    lock: int

    def close(self) -> None:
        """Let go of the descriptors, in a child that does not serve them."""
        self.unix.close()
        if self.tcp is not None:
            self.tcp.close()
        os.close(self.lock)

    def keep_for_serving(self) -> None:
        """In the child that serves them: the name is the supervisor's to hold."""
        os.close(self.lock)


@contextlib.contextmanager
def bound(settings: Admin, within_s: float = WITHIN_S, give_up: Callable[[], bool] = bool) -> Iterator[Listeners]:
    """Both listeners, and the socket's file removed at the end. give_up: asked while an address is taken. Raises
    OutboxdError.
    """
    started_s = time.monotonic()

    def is_over() -> bool:
        return give_up() or time.monotonic() >= started_s + within_s

    lock = _lock(settings.socket, is_over)
    try:
        unix = _bind_unix(settings.socket)
        try:
            tcp = _bind_tcp(settings, is_over) if settings.host else None
            with contextlib.closing(unix), contextlib.closing(tcp or unix):
                yield Listeners(unix, tcp, lock)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(settings.socket)
    finally:
        os.close(lock)


def _lock(path: str, is_over: Callable[[], bool]) -> int:
    """Make the socket's name ours. The lock ends with the supervisor, however it ends."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if folder.startswith("/tmp/") and os.stat(folder).st_uid != os.geteuid():  # anybody may have made it
            raise OutboxdError(
                f"admin.socket: {folder} belongs to another user: set admin.socket to a path of your own"
            )
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise OutboxdError(
            f"admin.socket: {path}: {error.strerror}; set admin.socket to a path that can be written"
        ) from error
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if is_over():
                os.close(lock)
                raise OutboxdError(
                    f"admin.socket: another outboxd holds {path}: stop it, or give this one an admin.socket and an "
                    "admin.listen of its own"
                ) from None
            time.sleep(PAUSE_S)


def _bind_unix(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # left by one that was killed: the lock says that nobody answers there
        listener.bind(path)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise OutboxdError(
            f"admin.socket: {path}: {error.strerror}; set admin.socket to a path that can be written"
        ) from error
    finally:
        os.umask(before)
    return listener


def _bind_tcp(settings: Admin, is_over: Callable[[], bool]) -> socket.socket:
    address = f"{settings.host}:{settings.port}"
    while True:
        try:
            family, _, _, _, where = socket.getaddrinfo(
                settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, socket.SOCK_STREAM)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(where)
                listener.listen(BACKLOG)
            except OSError:
                listener.close()
                raise
            return listener
        except OSError as error:
            if is_over() or not _may_pass(error):
                raise OutboxdError(
                    f"admin.listen: {address}: {error.strerror}; set admin.listen to an address that is free, or to "
                    '"" for none'
                ) from error
            time.sleep(PAUSE_S)


def _may_pass(error: OSError) -> bool:
    """The address is taken, or the machine does not have it yet (a boot)."""
    return error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
