"""Handlers that the daemon under test loads (`jobs.handlers`): each leaves a mark where a run begins and where it ends.

params: JSON of `marks`, the file; `nap_s`, how long a run takes; `fails`, true if it is to fail.
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import outboxd.jobs

MODULE = "tests.services.job_handlers"
BEGIN, END, STOPPED = "begin", "end", "stopped"


class Mark(NamedTuple):
    """at_s: time.monotonic(), which all processes of a machine read from the same clock. fire_ms: the nominal time."""

    what: str
    job: str
    node_id: str
    pid: int
    fire_ms: int
    triggered_by: str
    at_s: float


def marks(path: Path) -> list[Mark]:
    """Those in the file, in the order in which they were made."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Mark(*json.loads(line)) for line in lines]


def _mark(options: Mapping[str, Any], what: str, context: outboxd.jobs.Context) -> None:
    mark = Mark(
        what, context.job_name, context.node_id, os.getpid(), context.fire_at_ms, context.triggered_by, time.monotonic()
    )
    descriptor = os.open(options["marks"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, json.dumps(mark).encode() + b"\n")
    finally:
        os.close(descriptor)


@outboxd.jobs.handler("Nap")
def nap(context: outboxd.jobs.Context, params: str) -> str:
    """Does not heed that it should stop."""
    options = json.loads(params)
    _mark(options, BEGIN, context)
    until_s = time.monotonic() + options.get("nap_s", 0.0)
    while (rest_s := until_s - time.monotonic()) > 0:
        time.sleep(min(rest_s, 0.02))
    _mark(options, END, context)
    if options.get("fails"):
        raise RuntimeError("it was told to")
    return f"slept {options.get('nap_s', 0.0)} s"


@outboxd.jobs.handler("Watchful")
def watchful(context: outboxd.jobs.Context, params: str) -> str:
    """Ends when it should stop."""
    options = json.loads(params)
    _mark(options, BEGIN, context)
    until_s = time.monotonic() + options.get("nap_s", 0.0)
    while time.monotonic() < until_s:
        if context.should_stop():
            _mark(options, STOPPED, context)
            return "stopped early"
        time.sleep(0.02)
    _mark(options, END, context)
    return "slept to the end"
