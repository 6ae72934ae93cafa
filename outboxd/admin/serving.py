"""One listener served by threads, as outboxd wants it of waitress: bounded, quiet, one request for each connection."""

import logging
import socket
import threading
from io import BytesIO
from wsgiref.types import WSGIApplication

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import BaseWSGIServer, create_server
from waitress.task import ErrorTask, WSGITask

from outboxd.admin.app import MOST_BODY_BYTES

THREADS = 6
"""Two of them more than wait for a database (desks.py): metrics and health are answered meanwhile."""
MOST_CONNECTIONS = 500
"""At once, of each listener; others wait in the kernel's queue."""
SILENT_S = 15
"""A client that says nothing for so long is cut off."""
MOST_READ_BYTES = 64 * 1024 * 1024
"""Of a body. More is refused before it is read; who still sends then may see a broken connection and no answer."""


class _Beginning:
    """A body's first MOST_BODY_BYTES, as waitress's buffers are used; its length is that of all of it. The rest is read
    and thrown away, so that its sender gets the API's answer: that this is too much.
    """

    def __init__(self) -> None:
        self._kept = BytesIO()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, data: bytes) -> None:
        room = max(0, MOST_BODY_BYTES - self._count)
        self._kept.write(data[:room])
        self._count += len(data)

    def getfile(self) -> BytesIO:
        self._kept.seek(0)
        return self._kept

    def close(self) -> None:
        self._kept.close()


class _Parser(HTTPRequestParser):
    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        if self.body_rcv is not None:
            self.body_rcv.buf = _Beginning()  # type: ignore[assignment]  # as far as it is used


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
    parser_class = _Parser


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
        max_request_body_size=MOST_READ_BYTES,
        asyncore_use_poll=True,  # select() knows no descriptor above 1023
        clear_untrusted_proxy_headers=False,  # access.py looks at them, and never grants anything for one
        ident=None,
    )
    assert isinstance(server, BaseWSGIServer)  # one socket, one server
    server.channel_class = _Channel
    thread = threading.Thread(target=server.run, name=f"serve-{listener.family.name}", daemon=True)
    thread.start()
    return thread
