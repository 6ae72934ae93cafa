"""The receiver as a process of its own: it outlives what the test kills, and takes nothing of the test's time."""

import json
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.services import children
from tests.services.find import free_port
from tests.services.wait import wait_for

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class ReceiverProcess:
    """A running one. What it receives is in `log` before it is answered."""

    port: int
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Any path is served."""
        return f"http://127.0.0.1:{self.port}/events"

    def requests(self) -> list[dict[str, object]]:
        """All so far: event_id, connection, path, headers, body_bytes, received_s."""
        text = self.log.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def event_ids(self) -> list[str]:
        """Of all requests so far, repeats too."""
        return [str(request["event_id"]) for request in self.requests()]

    def stop(self, signum: int = signal.SIGTERM) -> None:
        """End it as it is, with requests still open."""
        children.stop(self.process, signum, timeout_s=10)


def start_receiver(directory: Path, *rules: dict[str, object], port: int | None = None) -> ReceiverProcess:
    """Start one that answers 204, or as the rules say: the arguments of `Receiver.answer`, the last rule comes first.

    With the port and directory of one that was stopped it takes its place and goes on with its log.
    """
    port = port or free_port()
    log = directory / "receiver.jsonl"
    command = [sys.executable, "-m", "tests.services.receiver", "--port", str(port), "--log", str(log)]
    for rule in rules:
        command += ["--rule", json.dumps(rule)]
    output = directory / "receiver.log"
    process = children.start(["env", f"PYTHONPATH={ROOT}", *command], output)

    def answers() -> bool:
        assert process.poll() is None, f"the receiver ended with {process.returncode}:\n{children.tail(output)}"
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    wait_for(answers, 10, "the receiver to listen")
    return ReceiverProcess(port, log, process)
