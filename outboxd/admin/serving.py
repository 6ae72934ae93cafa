"""One listener served by threads, as outboxd wants it of waitress: bounded, quiet, one request for each connection."""

import logging
import socket
import threading
from wsgiref.types import WSGIApplication

from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer, create_server
from waitress.task import ErrorTask, WSGITask

THREADS = 6
"""Two of them more than wait for a database (desks.py): metrics and health are answered meanwhile."""
MOST_CONNECTIONS = 500
"""At once, of each listener; others wait in the kernel's queue."""
SILENT_S = 15
"""A client that says nothing for so long is cut off."""
MOST_BODY_BYTES = 256 * 1024
"""More is refused before it is read; the API's own limit is lower, and told as JSON."""


class _Task(WSGITask):
    """Its connection is closed behind it. A client that sends many requests at once and reads no answer would else
    block thread after thread: waitress waits for the answers before to be read.
    """

    def build_response_header(self) -> bytes:
        self.set_close_on_finish()
        return super().build_response_header()


class _Channel(HTTPChannel):
    task_class = _Task
    error_task_class = ErrorTask


def serve(app: WSGIApplication, listener: socket.socket) -> threading.Thread:
    """Answer at the listener, in a thread that is running."""
    logging.getLogger("waitress").setLevel(logging.ERROR)  # what a client can bring about is no line of our log
    server = create_server(
        app,
        sockets=[listener],
        threads=THREADS,
        connection_limit=MOST_CONNECTIONS,
        cleanup_interval=SILENT_S // 3,
        channel_timeout=SILENT_S,
        max_request_body_size=MOST_BODY_BYTES,
        asyncore_use_poll=True,  # select() knows no descriptor above 1023
        clear_untrusted_proxy_headers=False,  # access.py looks at them, and never grants anything for one
        ident=None,
    )
    assert isinstance(server, BaseWSGIServer)  # one socket, one server
    server.channel_class = _Channel
    thread = threading.Thread(target=server.run, name=f"serve-{listener.family.name}", daemon=True)
    thread.start()
    return thread
