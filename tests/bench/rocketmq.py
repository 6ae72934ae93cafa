"""RocketMQ: what the relay costs, beside what the client library costs alone in a bare loop of send_async.

Both publish the same events to the same topic; CPU of their processes per event, of user and system.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from outboxd.config.load import parse
from outboxd.config.schema import Config
from tests.bench import contestants, lane
from tests.services.find import program
from tests.services.mariadb import PrivateServer

IN_FLIGHT = 128
"""As many as the publisher keeps with the client."""
TOPIC = "bench"

CONFIG = """
node_id: bench
database: {{url: "{url}"}}
admin: {{listen: "", socket: "{socket}"}}
lanes: {{room_outbox: {{}}, room_history: {{}}}}
outbox_worker: {{publish_mode: mq, direct: [], concurrency: 1, batch_size: 500}}
rocketmq: {{enabled: true, endpoints: "{endpoints}", room_outbox: {{enabled: true, topic: {topic}}}}}
log: {{level: warning, format: console}}
"""


def compare(server: PrivateServer, url: str, endpoints: str, topic: str, count: int) -> dict[str, float]:
    """Microseconds of CPU per event, and events per second, of the relay with one worker and of the bare loop.

    url: of an empty database on `server`. The topic must exist. Forks: the calling process must have no threads.
    """
    text = CONFIG.format(url=url, socket=lane.SOCKET, endpoints=endpoints, topic=topic)
    settings: Config = parse(text, {}, "the benchmark's configuration")
    bare_us, bare_rate = _in_child(lambda: _bare_loop(endpoints, topic, count))
    run = contestants.relay(server, settings, count)
    return {
        "rocketmq_client_us": bare_us,
        "rocketmq_client_per_s": bare_rate,
        "rocketmq_relay_us": run.relay_us,
        "rocketmq_relay_per_s": run.rate,
    }


def _bare_loop(endpoints: str, topic: str, count: int) -> tuple[float, float]:
    """The client by itself, as its documentation has it: no database, no outcomes to record."""
    from rocketmq import ClientConfiguration, Credentials, Message, Producer  # noqa: PLC0415 - in the child only

    cpu_s, start_s = time.process_time(), time.perf_counter()
    producer = Producer(ClientConfiguration(endpoints, Credentials()), topics=[topic])
    producer.startup()
    room = threading.Semaphore(IN_FLIGHT)
    failures = []

    def sent(future: object) -> None:
        if (error := future.exception()) is not None:  # type: ignore[attr-defined]  # a Future
            failures.append(error)
        room.release()

    for number in range(count):
        message = Message()
        message.topic, message.body, message.tag = topic, lane.ENVELOPE, "RoomChanged"
        message.keys = f"e{number}"
        room.acquire()
        producer.send_async(message).add_done_callback(sent)
    for _ in range(IN_FLIGHT):
        room.acquire()
    producer.shutdown()
    assert not failures, failures[0]
    return (time.process_time() - cpu_s) / count * 1e6, count / (time.perf_counter() - start_s)


def _in_child(work: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """What it returns; in a process of its own, since the client leaves threads behind."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.write(writing, json.dumps(work()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the bare loop failed"
    cost_us, rate = json.loads(text)
    return cost_us, rate


@contextmanager
def server_with_topic(directory: Path) -> Iterator[str]:
    """Endpoints of a server of its own. It is the child's: to make the topic, the client library is loaded."""
    command = [sys.executable, "-m", "tests.bench.rocketmq", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield child.stdout.readline().strip()
        child.communicate()  # it ends when its standard input does


def _serve(directory: Path) -> None:
    from tests.services.rocketmq import PrivateRocketMq, make_topics  # noqa: PLC0415 - as said above

    server = PrivateRocketMq(directory, program("java") or "java")
    try:
        make_topics(server, [TOPIC])
        print(server.endpoints, flush=True)
        sys.stdin.read()
    finally:
        server.end()


def measure(server: PrivateServer, url: str, count: int, rounds: int) -> dict[str, float]:
    """The medians, with a broker of its own, and what the relay costs beyond the client, as a share of the client."""
    directory = Path(tempfile.mkdtemp(prefix="outboxd-bench-rocketmq-"))
    try:
        with server_with_topic(directory) as endpoints:
            compare(server, url, endpoints, TOPIC, count // 4)  # warms the broker up
            found = [compare(server, url, endpoints, TOPIC, count) for _ in range(rounds)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    report = {name: statistics.median(one[name] for one in found) for name in found[0]}
    own_us = report["rocketmq_relay_us"] - report["rocketmq_client_us"]
    return {**report, "rocketmq_own_to_client": max(0.0, own_us) / report["rocketmq_client_us"]}


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
