"""Asking the daemon of this machine over its Unix socket."""

import http.client
import json
import socket
from typing import Any

from outboxd.errors import OutboxdError

TIMEOUT_S = 2.0
MOST_BYTES = 16 * 1024 * 1024


class Unanswered(OutboxdError):
    """No daemon answers; the text says why."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)


def ask(path: str, target: str) -> dict[str, Any]:
    """The document that the daemon at that socket answers. Raises Unanswered."""
    status, body = _get(_Connection(path), target)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Unanswered("what answers is no outboxd")
    if status != http.client.OK:
        raise Unanswered(f"it answers {status}: {document.get('error')}")
    return document


def is_daemon(path: str) -> bool:
    """Does one answer at that socket?"""
    return _is_alive(_Connection(path))


def is_daemon_at(host: str, port: int) -> bool:
    """Does one answer at that address?"""
    return _is_alive(http.client.HTTPConnection(host, port, timeout=TIMEOUT_S))


def _is_alive(connection: http.client.HTTPConnection) -> bool:
    try:
        return _get(connection, "/healthz") == (http.client.OK, b"alive\n")
    except Unanswered:
        return False


def _get(connection: http.client.HTTPConnection, target: str) -> tuple[int, bytes]:
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        return response.status, response.read(MOST_BYTES)
    except TimeoutError:
        raise Unanswered(f"no answer within {TIMEOUT_S:g} s") from None
    except OSError as error:
        raise Unanswered((error.strerror or str(error)).lower()) from None
    except http.client.HTTPException:
        raise Unanswered("what answers is no outboxd") from None
    finally:
        connection.close()
