"""What `outboxd check` says of the admin role: its addresses, its tokens, the folders it needs."""

import errno
import os
import socket

from outboxd.cli import ask
from outboxd.config.schema import Admin, Config
from outboxd.errors import OutboxdError


def listen(settings: Admin) -> str:
    """Can the daemon listen there, or does it already? Raises OutboxdError."""
    if not settings.host:
        return "no TCP listener"
    address = f"{settings.host}:{settings.port}"
    try:
        family, _, _, _, where = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(where)
    except OSError as error:
        near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
        if error.errno == errno.EADDRINUSE and ask.is_daemon_at(near, settings.port):
            return f"{address} is taken, by a daemon that answers"
        why = (error.strerror or str(error)).lower()
        raise OutboxdError(f"{address}: {why}: set admin.listen to another one") from None
    return f"{address} is free"


def unix_socket(settings: Admin) -> str:
    """Does a daemon answer there, or could one? Raises OutboxdError."""
    if ask.is_daemon(settings.socket):
        return f"{settings.socket}: a daemon answers"
    _check_writable(os.path.dirname(settings.socket), "admin.socket")
    return f"{settings.socket} can be made; no daemon answers"


def tokens(settings: Admin) -> str:
    """Who may use the API."""
    names = ", ".join(token.name for token in settings.tokens)
    return f"the API takes tokens: {names}" if names else "none: changes are taken over admin.socket only"


def metrics(config: Config) -> str:
    """Where workers write their numbers. Raises OutboxdError."""
    if config.metrics_dir is None:
        folder = os.path.dirname(config.admin.socket)
        _check_writable(folder, "admin.socket or metrics_dir")
        return f"a private folder in {folder}"
    _check_writable(config.metrics_dir, "metrics_dir")
    return f"{config.metrics_dir} can be written"


def _check_writable(folder: str, key: str) -> None:
    """Can files be made in it, once it is made itself if need be?"""
    there = folder
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        raise OutboxdError(f"{there} is no folder that can be written: set {key} to another, or correct its rights")
