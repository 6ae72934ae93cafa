"""A server that takes connections and never says a word."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def silent_server(port: int) -> Iterator[None]:
    """On 127.0.0.1. The kernel takes the connections; nobody reads."""
    with socket.create_server(("127.0.0.1", port), backlog=128):
        yield
