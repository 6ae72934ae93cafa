"""outboxd in front of a gRPC server on the same machine, beside the client library's own bare loop of calls.

What the relay adds (claims, settles, making requests) is to cost less CPU than the client library spends on a call.
"""

import itertools
import shutil
import statistics
import tempfile
import threading
from pathlib import Path

from outboxd.envelope import to_protobuf
from outboxd.proto.messages import CONSUME_ROOM_EVENT
from tests.bench import contestants, lane
from tests.bench.contestants import Run
from tests.services.grpc_server import start_grpc_server
from tests.services.mariadb import PrivateServer
from tests.services.publishing import make_event

IN_FLIGHT = 128
"""As many as the publisher has."""


def bare_client(server: PrivateServer, target: str, count: int) -> Run:
    """grpc alone: calls by `future`, so many in flight, from one process that does nothing else."""
    request = to_protobuf(make_event(envelope=lane.ENVELOPE))

    def loop() -> int:
        import grpc  # noqa: PLC0415 - in the child that uses it

        with grpc.insecure_channel(target, [("grpc.enable_retries", 0), ("grpc.enable_http_proxy", 0)]) as channel:
            consume = channel.unary_unary(CONSUME_ROOM_EVENT)
            room, failed = threading.Semaphore(IN_FLIGHT), itertools.count()

            def done(future: grpc.Future) -> None:
                if future.exception() is not None:
                    next(failed)
                room.release()

            for _ in range(count):
                room.acquire()
                consume.future(request, timeout=30).add_done_callback(done)
            for _ in range(IN_FLIGHT):
                room.acquire()
        return next(failed)

    return contestants.timed(server, count, lambda: contestants.in_child(loop))


def compare(server: PrivateServer, url: str, count: int, rounds: int, workers: int, batch: int) -> dict[str, float]:
    """Microseconds of CPU per event: of the whole relay, and of the client library alone."""
    directory = Path(tempfile.mkdtemp(prefix="outboxd-bench-grpc-"))
    receiver = start_grpc_server(directory, writes=False)
    more = f'  activity: {{type: activity_grpc, target: "{receiver.target}"}}'
    settings = lane.config(url, "activity", workers=workers, batch=batch, more=more)
    try:
        clients, relays = [], []
        for number in range(1, rounds + 1):
            clients.append(bare_client(server, receiver.target, count))
            relays.append(contestants.relay(server, settings, count))
            rates = f"client alone {clients[-1].rate:,.0f}/s, relay {relays[-1].rate:,.0f}/s"
            print(f"round {number}: gRPC: {rates}", flush=True)
    finally:
        receiver.stop()
        shutil.rmtree(directory, ignore_errors=True)
    relay_us = statistics.median(run.relay_us for run in relays)
    client_us = statistics.median(run.relay_us for run in clients)
    return {
        "grpc_per_s": statistics.median(run.rate for run in relays),
        "grpc_relay_us": relay_us,
        "grpc_client_us": client_us,
        "grpc_own_to_client": (relay_us - client_us) / client_us,
    }
