"""A process that forks as the supervisor does: child after child makes a publisher, uses it, and ends or is killed.

    python -m tests.services.forking '{"kind": "ActivityGrpc", "settings": {...}, "children": 30}'

It prints one line: {"ended": 15, "killed": 15, "descriptors": [6, 6], "resident_bytes": [first, last]}, taken before
the first child and behind the last.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from outboxd.config import schema
from outboxd.event import Delivered
from outboxd.publishers import open_publisher
from tests.services.processes import descriptors_of, resident_bytes
from tests.services.publishing import make_event, publish_all

ROOT = Path(__file__).parents[2]
ENVELOPE = b'{"event_id": "e", "event_type": "RoomCreated", "body": {"n": 1}}'
EVENTS = 20
TOGETHER = 5
CHILD_S = 30
"""A child that takes longer hangs."""


def fork_children(kind: str, settings: dict[str, Any], children: int) -> dict[str, Any]:
    """Run one; what it printed."""
    asked = json.dumps({"kind": kind, "settings": settings, "children": children})
    run = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.services.forking", asked],
        cwd=ROOT, capture_output=True, text=True, timeout=CHILD_S + 5 * children, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr == ""
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def _child(settings: schema.PublisherSettings, is_killed: bool) -> int:
    publisher = open_publisher(settings, "room_outbox", 5.0)
    outcomes = publish_all(publisher, [make_event(envelope=ENVELOPE) for _ in range(EVENTS)])
    if not all(isinstance(outcome, Delivered) for _, outcome in outcomes):
        print(outcomes[0], file=sys.stderr)
        return 3
    if is_killed:
        publisher.submit(make_event(envelope=ENVELOPE), time.monotonic() + 5)
        os.kill(os.getpid(), signal.SIGKILL)
    publisher.close(time.monotonic() + 2)
    return 0


def _wait(pid: int) -> int:
    until_s = time.monotonic() + CHILD_S
    while time.monotonic() < until_s:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("a child hangs")


def main() -> int:
    asked = json.loads(sys.argv[1])
    settings = getattr(schema, asked["kind"])(name="forked", **asked["settings"])
    codes: list[int] = []
    me = os.getpid()
    before = (len(descriptors_of(me)), resident_bytes(me))
    for first in range(0, asked["children"], TOGETHER):
        pids = []
        for number in range(first, min(first + TOGETHER, asked["children"])):
            pids.append(os.fork())
            if pids[-1] == 0:
                # Ends as a worker does: through the interpreter, with what its libraries do then.
                sys.exit(_child(settings, number % 2 == 1))
        codes += map(_wait, pids)
    after = (len(descriptors_of(me)), resident_bytes(me))
    known = {0: "ended", -signal.SIGKILL: "killed"}
    strange = sorted({code for code in codes if code not in known})
    assert not strange, f"children ended with {strange}"
    result = {name: codes.count(code) for code, name in known.items()}
    print(json.dumps({**result, "descriptors": [before[0], after[0]], "resident_bytes": [before[1], after[1]]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
