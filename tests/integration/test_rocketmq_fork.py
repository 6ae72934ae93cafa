"""The RocketMQ client after a fork: it must be made in the process that uses it, and leave nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.chaos import scaled
from tests.services.rocketmq import RocketMq
from tests.services.rocketmq_forking import connections_to
from tests.services.rocketmq_queue import RocketMqQueue
from tests.services.wait import wait_for

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("children", "when"), [(scaled(200, 5), ()), (scaled(200, 30), ("loaded",))], ids=["as workers", "already loaded"]
)
def test_every_child_publishes_and_leaves_no_connection(
    rocketmq: RocketMq, children: int, when: tuple[str, ...]
) -> None:
    """Workers come and go for months. A client that a fork has copied would hang for ever, or send with its ids."""
    queue = RocketMqQueue(rocketmq)
    port = int(rocketmq.endpoints.rpartition(":")[2])
    before = len(connections_to(port))
    module = ("-m", "tests.services.rocketmq_forking", rocketmq.endpoints, queue.topic, str(children))
    run = subprocess.run(
        [sys.executable, *module, *when], cwd=ROOT, capture_output=True, text=True, timeout=20 * children, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    wait_for(lambda: len(connections_to(port)) <= before, 20, "the server to be rid of them")
    messages = queue.read("after", 2 * children)
    assert {key for message in messages for key in message.keys} == {
        f"{number}{place}" for number in range(children) for place in "ab"
    }
    assert len({message.message_id for message in messages}) == 2 * children


def test_a_home_that_cannot_be_written_is_said_with_the_remedy() -> None:
    """The client writes to it while it is loaded; under systemd or in a container it may be read-only."""
    program = (
        "from outboxd.config.schema import RocketMq, RocketMqServer\n"
        "from outboxd.errors import PublisherError\n"
        "from outboxd.publishers import open_publisher\n"
        "try:\n"
        "    open_publisher(RocketMq(name='queue', server=RocketMqServer()), 'room_outbox', 1.0)\n"
        "except PublisherError as error:\n"
        "    print(error)\n"
    )
    environ = {"HOME": "/proc/nobody", "PATH": "/usr/bin:/bin"}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "cannot load the RocketMQ client, which writes to ~/logs/rocketmq_python: No such file" in run.stdout
    assert "set HOME to a folder that can be written" in run.stdout
