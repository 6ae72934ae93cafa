"""A receiver to look at: prints every event it is sent, a line each, and accepts it.

    receiver.py [PORT]          default: 8080

It answers 204 to every POST and 200 to every GET. Only for trying things: it remembers nothing.
"""

import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MOST_SHOWN = 200


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """An event: its headers as CloudEvents has them, and what it holds."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        names = ("ce-type", "ce-id", "ce-subject")
        told = " ".join(f"{name}={self.headers.get(name, '-')}" for name in names)
        print(told, body[:MOST_SHOWN].decode("utf-8", "backslashreplace"), flush=True)
        self._answer(204)

    def do_GET(self) -> None:
        """Alive."""
        self._answer(200)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: an event is a line already."""


def main() -> None:
    """Serve until SIGTERM."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    with ThreadingHTTPServer(("", port), Handler) as server:
        server.daemon_threads = True
        # shutdown() waits for the loop, which this thread runs: so another one calls it
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        print(f"listening on port {server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
