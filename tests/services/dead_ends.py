"""Places on the network where a connection does not come about."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def full_backlog() -> Iterator[int]:
    """A port whose listener accepts nobody any more: connecting hangs, as at a host that is gone."""
    with ExitStack() as stack:
        listener, *fillers = (stack.enter_context(socket.socket()) for _ in range(6))
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        yield int(address[1])


@contextmanager
def dripping(first: bytes, every_s: float) -> Iterator[int]:
    """A port where everybody gets these bytes, and then one more now and then, whatever is sent."""
    is_over = threading.Event()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        listener.settimeout(0.1)

        def drip(link: socket.socket) -> None:
            with link:
                try:
                    link.sendall(first)
                    while not is_over.wait(every_s):
                        link.sendall(b"x")
                except OSError:  # the client has had enough
                    return

        def serve() -> None:
            while not is_over.is_set():
                try:
                    link, _ = listener.accept()
                except TimeoutError:
                    continue
                threading.Thread(target=drip, args=(link,), daemon=True).start()

        server = threading.Thread(target=serve)
        server.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            is_over.set()
            server.join(5)
