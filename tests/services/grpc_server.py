"""The activity service as a process of its own: it writes down what it is called with, and answers as the event says.

An event's body may hold `answer` (a code's name), `details`, `retry_delay_s` and `hang` (true: until the call is over).
It runs code that grpcio-tools generates from the .proto file that outboxd ships: none of it is outboxd's own.
"""

import argparse
import json
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.rpc import error_details_pb2, status_pb2

from tests.services import children
from tests.services.certificates import Certificates
from tests.services.find import free_port
from tests.services.wait import wait_for

ROOT = Path(__file__).parents[2]
PROTO = ROOT / "outboxd" / "proto"
LARGEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class GrpcServer:
    """A running one."""

    port: int
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def target(self) -> str:
        """As the publisher's settings have it."""
        return f"127.0.0.1:{self.port}"

    def calls(self) -> list[dict[str, Any]]:
        """All so far: `event` as protobuf's JSON form has it, `metadata`, `left_s` until the call's deadline."""
        if not self.log.exists():
            return []
        text = self.log.read_text(encoding="utf-8")
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def stop(self, signum: int = signal.SIGKILL) -> None:
        """End it as it is, with calls still open."""
        children.stop(self.process, signum, timeout_s=10)


def start_grpc_server(
    directory: Path, port: int | None = None, certificates: Certificates | None = None, writes: bool = True
) -> GrpcServer:
    """Start one. With the port and directory of one that was stopped it takes its place and goes on with its log."""
    port = port or free_port()
    log, output = directory / "grpc.jsonl", directory / "grpc.log"
    command = [sys.executable, "-m", "tests.services.grpc_server", "--port", str(port)]
    if writes:
        command += ["--log", str(log)]
    if certificates is not None:
        command += ["--certificate", str(certificates.server), "--key", str(certificates.server_key)]
    process = children.start(["env", f"PYTHONPATH={ROOT}", *command], output)

    def answers() -> bool:
        assert process.poll() is None, f"the server ended with {process.returncode}:\n{children.tail(output)}"
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    wait_for(answers, 20, "the gRPC server to listen")
    return GrpcServer(port, log, process)


def _serve(arguments: argparse.Namespace) -> None:
    sys.path.insert(0, str(PROTO))
    messages, services = grpc.protos_and_services("room_events.proto")
    log = arguments.log.open("a", encoding="utf-8") if arguments.log else None
    lock = threading.Lock()

    class Activity(services.ActivityServiceServicer):  # type: ignore[misc, name-defined]  # generated a moment ago
        def ConsumeRoomEvent(self, request: Any, context: Any) -> Any:
            event = MessageToDict(request, preserving_proto_field_name=True)
            if log is not None:
                metadata, left_s = dict(context.invocation_metadata()), context.time_remaining()
                call = {"event": event, "metadata": metadata, "left_s": left_s}
                with lock:
                    log.write(json.dumps(call) + "\n")
                    log.flush()
            _answer(event.get("body", {}), context)
            return messages.ConsumeRoomEventResponse()

    options = [("grpc.max_receive_message_length", LARGEST_BYTES), ("grpc.so_reuseport", 0)]
    server = grpc.server(ThreadPoolExecutor(16), options=options)
    services.add_ActivityServiceServicer_to_server(Activity(), server)
    address = f"127.0.0.1:{arguments.port}"
    if arguments.key:
        pair = (arguments.key.read_bytes(), arguments.certificate.read_bytes())
        server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    else:
        server.add_insecure_port(address)
    server.start()
    signal.signal(signal.SIGTERM, lambda *_: server.stop(0))
    server.wait_for_termination()


def _answer(body: dict[str, Any], context: Any) -> None:
    if body.get("hang"):
        over = threading.Event()
        if context.add_callback(over.set):
            over.wait(60)
    if "answer" not in body:
        return
    code = grpc.StatusCode[body["answer"]]
    if "retry_delay_s" in body:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(int(body["retry_delay_s"] * 1000))
        status = status_pb2.Status(code=code.value[0], message="as asked")
        status.details.add().Pack(error_details_pb2.LocalizedMessage(locale="en", message="no"))
        status.details.add().Pack(retry)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, body.get("details", "as asked"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    for name in ("--log", "--certificate", "--key"):
        parser.add_argument(name, type=Path)
    _serve(parser.parse_args())


if __name__ == "__main__":
    main()
