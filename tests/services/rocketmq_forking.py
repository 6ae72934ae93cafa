"""A process that forks children, one after the other, each of which publishes to RocketMQ as a worker does.

    python -m tests.services.rocketmq_forking ENDPOINTS TOPIC CHILDREN [loaded]

It ends with 0 when all of them have published two events and left no connection open. loaded: the client library is
loaded before the forks, which a supervisor does not do.
"""

import os
import sys
import time
import traceback
from pathlib import Path

from outboxd.config.schema import RocketMq, RocketMqServer
from outboxd.event import Delivered
from outboxd.publishers import open_publisher
from tests.services.publishing import make_event, publish
from tests.services.wait import wait_for


def connections_to(port: int) -> set[str]:
    """Established ones, of all processes, on the side that made them: the sockets as /proc/PID/fd names them."""
    texts = [Path(name).read_text(encoding="ascii") for name in ("/proc/net/tcp", "/proc/net/tcp6")]
    lines = [line.split() for text in texts for line in text.splitlines()[1:]]
    return {f"socket:[{line[9]}]" for line in lines if line[2].endswith(f":{port:04X}") and line[3] == "01"}


def own_connections_to(port: int) -> set[str]:
    """Those of this process."""
    connections = connections_to(port)
    links = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return {name for link in links if link.is_symlink() and (name := os.readlink(link)) in connections}


def publish_two(endpoints: str, topic: str, number: int) -> None:
    """What one child does."""
    settings = RocketMq(name="queue", server=RocketMqServer(endpoints=endpoints), topic=topic)
    publisher = open_publisher(settings, "room_outbox", 5.0)
    for place in "ab":
        assert isinstance(publish(publisher, make_event(event_id=f"{number}{place}"), 10), Delivered)
    port = int(endpoints.rpartition(":")[2])
    assert own_connections_to(port), "the search for connections found none"
    publisher.close(time.monotonic() + 5)
    wait_for(lambda: not own_connections_to(port), 5, "the connections to be closed")


def main(endpoints: str, topic: str, children: int, is_loaded: bool) -> None:
    """Fork, wait, fork again."""
    if is_loaded:
        import outboxd.publishers.rocketmq  # noqa: F401, PLC0415  before the fork, as the docstring says
    for number in range(children):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                publish_two(endpoints, topic, number)
                status = 0
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                os._exit(status)
        if os.waitpid(pid, 0)[1] != 0:
            sys.exit(f"child {number} failed")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), "loaded" in sys.argv[4:])
