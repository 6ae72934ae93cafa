"""One line of the log for each command: where its time went. And how lines are written: JSON, standard error."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

STEPS = ("idempotency", "lease", "wallet_debit", "save_mutation", "snapshot", "projection", "activity", "tencent_im")
_lock = threading.Lock()


def log(event: str, node: str, **fields: object) -> None:
    """One line, whole, whatever other threads write."""
    moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = json.dumps({"time": moment, "event": event, "node": node, **fields}, ensure_ascii=False)
    with _lock:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class Timing:
    """Of one command. What a step did not do took 0 ms."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._took_s = dict.fromkeys(STEPS, 0.0)
        self._open: dict[str, float] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """The time within is this step's, also where it raises, or goes on in a thread that was given up; a step may
        come more than once.
        """
        began_s = self._open[name] = time.monotonic()
        try:
            yield
        finally:
            self._open.pop(name, None)
            self._took_s[name] += time.monotonic() - began_s

    def fields(self) -> dict[str, float]:
        """Milliseconds of each step, and of all so far."""
        now_s = time.monotonic()
        took_s = {name: took_s + now_s - self._open.get(name, now_s) for name, took_s in self._took_s.items()}
        took_s["total"] = now_s - self._began_s
        return {f"{name}_ms": round(1000 * each_s, 3) for name, each_s in took_s.items()}
