"""The receiver as a process of its own that keeps every request in a file, body and all, to be read afterwards.

python -m tests.services.recorder FILE
"""

import os
import signal
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services import children
from tests.services.daemon import ROOT
from tests.services.receiver import Receiver
from tests.services.receiver_answers import Request
from tests.services.wait import wait_for

_SIZES = struct.Struct("!II")


class _File(list[Request]):
    """Takes requests in and keeps them on disk only."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._file = Path(path).open("ab", buffering=0)  # noqa: SIM115  closed with the process

    def append(self, request: Request) -> None:
        """One write, so that a request is there whole or not at all."""
        self._file.write(_SIZES.pack(len(request.head), len(request.body)) + request.head + request.body)


def read(path: Path) -> list[Request]:
    """The requests in the order in which they were complete."""
    data = path.read_bytes()
    found, at = [], 0
    while at < len(data):
        head, body = _SIZES.unpack_from(data, at)
        at += _SIZES.size
        found.append(Request(0, data[at : at + head], data[at + head : at + head + body], 0.0))
        at += head + body
    return found


@contextmanager
def recording(directory: Path) -> Iterator[tuple[str, Path]]:
    """One that runs: its URL, and the file that `read` reads."""
    path, log = directory / "requests", directory / "recorder.log"
    command = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.services.recorder", str(path)]
    process = children.start(command, log)
    try:
        port = wait_for(lambda: log.exists() and log.read_text().strip(), 10, "the recorder to listen")
        yield f"http://127.0.0.1:{port}/events", path
    finally:
        children.stop(process)


def main() -> None:
    """Serve until told to end."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    receiver = Receiver(requests=_File(sys.argv[1]))
    print(receiver.port, flush=True)
    receiver.serve()


if __name__ == "__main__":
    main()
